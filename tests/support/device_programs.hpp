#pragma once

// Random programs of all calls of the device-side interface. All ranks derive the same program from
// a number, and check what they receive. CPU lanes, played lanes and GPUs run them.
#include <ccl/device/tiles.hpp>

namespace ccl::test {

/// Memory that the lanes of a block share.
struct ProgramMemory {
  static constexpr int words = 40, tile_bytes = 288;
  Packet message[words / 2];
  Packet tile[tile_bytes / 16], all[Team::max_ranks * tile_bytes / 16];
};

enum class ProgramCall {
  put_ring,
  put_all,
  barrier,
  relaxed_barrier,
  all_reduce,
  reduce,
  reduce_scatter,
  all_gather,
  send_recv,
  count,
  calls
};

/// One call of a program, equal on all ranks.
struct ProgramStep {
  ProgramCall call;
  bool large;  // which tiles
  int words;   // of a put
  int root;
  int shift;  // of a send
};

/// One block of one rank. The data of a launch depends on its number, too, so that replays of a
/// graph differ.
template <class Group, int MaxRanks = max_unrolled_ranks, class Wide = LL128, class TeamType = Team>
class DeviceProgram {
 public:
  using Lanes = Group;
  using OwnTeam = TeamType;
  using Small = Tiles<Group, float, TileShape<2, 7>, LL, MaxRanks, TeamType>;
  using Large = Tiles<Group, int, TileShape<9, 8>, Wide, MaxRanks, TeamType>;
  static constexpr int max_calls = 6, max_words = ProgramMemory::words;

  static DeviceRequirements needs(int ranks, int blocks) {
    const int slots = max_calls * blocks;
    const Index large = Large::bytes(slots, ranks);
    return {.blocks = blocks,
            .signals = slots + max_calls,
            .counters = max_calls,
            .ll_bytes = Small::bytes(slots, ranks) + (share_packets ? large + 256 : 0),
            .ll128_bytes = share_packets ? 0 : large};
  }
  static Index window_bytes(int ranks, int blocks) {
    return Index{max_calls} * blocks * ranks * max_words * Index{sizeof(Word)};
  }

  CCL_HD DeviceProgram(Group group, const TeamType& team, int block, int blocks,
                       ProgramMemory& memory)
      : group_{group}, team_{team}, block_{block}, blocks_{blocks}, memory_{memory} {}

  /// Makes one launch. Returns the number of wrong results that this lane has found.
  CCL_HD long play(Word seed) {
    Session session{group_, team_, block_, blocks_};
    session_ = &session;
    data_ = mix(seed ^ session.launch() << 32);
    wrong_ = 0;
    const int calls = 1 + below(mix(seed), max_calls);
    const bool puts = below(mix(seed + 1), 2) == 1;
    bool has_put = false;
    for (int n = 0; n < calls; ++n) {
      const ProgramStep step = step_of(seed, n, puts);
      has_put = has_put || step.call <= ProgramCall::put_all;
      run(step, n);
    }
    // A peer may still read what was put, and the next program puts data to the same place. Without
    // puts a rank may be launches ahead.
    if (has_put) good(session.barrier());
    return wrong_;
  }

 private:
  using Session = TeamSession<Group, TeamType>;
  static constexpr bool share_packets = cuda::std::is_same_v<Wide, LL>;  // both kinds of tiles

  CCL_HD static Word mix(Word x) {
    x = (x + 0x9e37'79b9'7f4a'7c15u) * 0xbf58'476d'1ce4'e5b9u;
    return (x ^ x >> 31) * 0x94d0'49bb'1331'11ebu >> 16;
  }
  CCL_HD static int below(Word random, int n) { return int(random % Word(unsigned(n))); }
  CCL_HD int me() const { return team_.rank(); }
  CCL_HD int ranks() const { return team_.ranks(); }

  CCL_HD ProgramStep step_of(Word seed, int n, bool puts) const {
    Word random = mix(seed * 64 + Word(unsigned(n)));
    const auto next = [&random](int n) { return below(random = mix(random), n); };
    constexpr int calls = int(ProgramCall::calls), first = int(ProgramCall::all_reduce);
    const auto call = ProgramCall(puts ? next(calls) : first + next(calls - first));
    const bool large = next(2) == 1;
    const int words = 1 + next(max_words), root = next(ranks());
    return {call, large, words, root, 1 + next(ranks() - 1)};
  }

  CCL_HD void good(bool is) { wrong_ += !is; }
  CCL_HD Word word(int from, int to, int n, Index i) const {
    return mix(data_ + Word(unsigned((from * 128 + to) * 16 + n)) * 64 + Word(i));
  }
  template <class T>
  CCL_HD T element(int rank, int n, int i) const {
    return T((int(data_ % 1000) + 5 * rank + 3 * n + i) % 11);
  }
  template <class T>
  CCL_HD T sum(int n, int i) const {
    T all = 0;
    for (int r = 0; r < ranks(); ++r) all += element<T>(r, n, i);
    return all;
  }
  CCL_HD Index place(int writer, int n) const {
    return ((Index{n} * blocks_ + block_) * ranks() + writer) * max_words;
  }
  CCL_HD int id(int n) const { return n * blocks_ + block_; }

  CCL_HD void put(int peer, const ProgramStep& step, int n) {
    Word* const message = &memory_.message[0].word[0];
    group_.sync();  // all lanes are done with the message before
    for (int i = group_.rank(); i < step.words; i += Group::width) {
      message[i] = word(me(), peer, n, i);
    }
    group_.sync();
    session_->put_signal(peer, place(me(), n), message, step.words, id(n));
  }
  CCL_HD void take(int peer, const ProgramStep& step, int n) {
    good(session_->wait(peer, id(n)));
    const Word* const got = team_.template window<Word>(me()) + place(peer, n);
    for (int i = group_.rank(); i < step.words; i += Group::width) {
      good(got[i] == word(peer, me(), n, i));
    }
  }

  CCL_HD void run(const ProgramStep& step, int n) {
    const int next = (me() + step.shift) % ranks();
    const int before = (me() + ranks() - step.shift) % ranks();
    switch (step.call) {
      case ProgramCall::put_ring:
        put(next, step, n);
        return take(before, step, n);
      case ProgramCall::put_all:
        for (int k = 0; k < ranks(); ++k) put((me() + k) % ranks(), step, n);
        for (int p = 0; p < ranks(); ++p) take(p, step, n);
        return;
      case ProgramCall::barrier:
        return good(session_->barrier());
      case ProgramCall::relaxed_barrier:
        return good(session_->barrier(MemoryOrder::relaxed));
      case ProgramCall::count:
        // The last block of the rank signals for all, and the others do not wait.
        if (!session_->count(n, blocks_)) return;
        for (int p = 0; p < ranks(); ++p) {
          if (p != me()) session_->signal(p, max_calls * blocks_ + n);
        }
        return good(session_->wait_all(max_calls * blocks_ + n));
      default:
        if (step.large) return run_tiles<Large, int>(step, n, next, before);
        return run_tiles<Small, float>(step, n, next, before);
    }
  }
  template <class Block, class T>
  CCL_HD void run_tiles(const ProgramStep& step, int n, int next, int before) {
    constexpr int size = Block::elements;
    static_assert(size * sizeof(T) <= ProgramMemory::tile_bytes);
    constexpr bool behind = share_packets && cuda::std::is_same_v<Block, Large>;
    Block tiles{*session_, behind ? Small::bytes(max_calls * team_.data().blocks, ranks()) : 0};
    T* const tile = reinterpret_cast<T*>(memory_.tile);
    T* const all = reinterpret_cast<T*>(memory_.all);
    const Index slot = id(n);
    group_.sync();  // all lanes are done with the tile before
    for (int i = group_.rank(); i < size; i += Group::width) tile[i] = element<T>(me(), n, i);
    switch (step.call) {
      case ProgramCall::all_reduce:
        good(tiles.all_reduce(slot, tile));
        return check_sums(tile, n, 0, size);
      case ProgramCall::reduce:
        good(tiles.reduce(step.root, slot, tile));
        if (me() == step.root) check_sums(tile, n, 0, size);
        return;
      case ProgramCall::reduce_scatter:
        good(tiles.reduce_scatter(slot, tile, all));
        return check_sums(all, n, me() * Block::share_elements(ranks()),
                          Block::share_count(me(), ranks()));
      case ProgramCall::all_gather:
        good(tiles.all_gather(slot, tile, all));
        for (int i = group_.rank(); i < ranks() * size; i += Group::width) {
          good(all[i] == element<T>(i / size, n, i % size));
        }
        return;
      default:
        good(tiles.send(next, slot, tile));
        good(tiles.recv(before, slot, tile));
        for (int i = group_.rank(); i < size; i += Group::width) {
          good(tile[i] == element<T>(before, n, i));
        }
    }
  }
  template <class T>
  CCL_HD void check_sums(const T* got, int n, int begin, int count) {
    for (int i = group_.rank(); i < count; i += Group::width) {
      good(got[i] == sum<T>(n, begin + i));
    }
  }

  Group group_;
  const TeamType& team_;
  Session* session_ = nullptr;
  int block_, blocks_;
  ProgramMemory& memory_;
  Word data_ = 0;
  long wrong_ = 0;
};

}  // namespace ccl::test
