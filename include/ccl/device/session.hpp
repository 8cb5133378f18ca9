#pragma once

#include <ccl/detail/lanes/block_epilogue.hpp>
#include <ccl/detail/lanes/copy_run.hpp>
#include <ccl/device/team.hpp>
#include <ccl/types/macros.hpp>

#include <cuda/std/type_traits>

CCL_ANY_SPACE_BEGIN

namespace ccl {

/// Order of memory that a barrier gives.
enum class MemoryOrder {
  relaxed,  ///< none: only the arrival of all ranks is known
  acq_rel   ///< writes of every lane before the barrier are visible to every lane after it
};

template <class Group, class T, class Shape, class Proto, int MaxRanks, class TeamType>
class Tiles;

/// Part of one block in a launch of all ranks of a team. The group is the whole block, and all of
/// its lanes make every call.
///
/// All ranks make the same launches of a team, with the same number of blocks, one after the other.
/// A block waits for blocks of its peers, so all blocks of a launch must be resident at once.
///
/// Signals and packets carry the number of the launch, which is kept in memory of the device. A
/// replay of a graph is a launch like any other.
///
/// A wait or a loop of tests ends at the deadline of the communicator or with its failure. The
/// session has then failed: its waits return false at once, and its stores are dropped.
/// `DeviceComm::status` returns the error.
///
/// `TeamType`: `Team` or `NetworkTeam`, that of the kernel's argument.
template <class Group, class TeamType = Team>
class TeamSession {
  static_assert(
      LaneGroup<Group>,
      "ccl: a session's group must be a LaneGroup (such as BlockLanes<256> for a block of "
      "256 threads, or WarpLanes)");
  using Memory = typename Group::Memory;

 public:
  /// `block` of `blocks` is this block in the launch: blockIdx.x and gridDim.x. `team` must outlive
  /// the session; a __grid_constant__ argument costs no registers.
  template <class GivenTeam>
  CCL_HD TeamSession(Group group, const GivenTeam& team, int block, int blocks)
      : group_{group},
        team_{data_of(team)},
        block_{block},
        blocks_{blocks},
        spin_wait_{team_.watch} {
    detail::look_at(team_);
    Memory::await_previous();
    if (blocks < 1 || blocks > team_.blocks || block < 0 || block >= blocks) {
      // A `Team` with far ranks has no blocks: a check of its own took 10 registers (sm_90).
      const bool not_near = !has_network && team_.far_ranks > 0;
      misuse(not_near ? detail::LaneFailure::not_near : detail::LaneFailure::no_block, rank(),
             Word(not_near ? team_.far_ranks : blocks), Word(team_.blocks));
      return;
    }
    epoch_ = Memory::load_relaxed(team_.epochs() + block) + 1;
    if (block != 0) return;
    for (int p = group_.rank(); p < ranks(); p += Group::width) {
      // A credit: earlier launches of this rank have ended, so their packets are read.
      if (p != rank() && !is_far(p)) Memory::store_credit(team_.begun(p, rank()), epoch_);
    }
    set_far_words(team_.layout.begun, epoch_);
  }
  TeamSession(const TeamSession&) = delete;
  TeamSession& operator=(const TeamSession&) = delete;
  /// Counts the launch.
  CCL_HD ~TeamSession() {
    if (epoch_ == 0) return;
    group_.sync();  // every lane has read the epoch
    detail::count_at_end({team_.epochs(), team_.blocks}, epoch_ << 1, block_, blocks_,
                         group_.rank(), Group::width);
  }

  CCL_HD int rank() const { return team_.rank; }
  CCL_HD int ranks() const { return team_.ranks; }
  /// Returns the number of this launch of the team, from 1 on; equal on all ranks.
  CCL_HD Word launch() const { return epoch_; }
  /// True if a wait has failed or a call was wrong. Equal in all lanes.
  CCL_HD bool failed() const { return failed_; }

  /// Copies `count` elements into the window of a rank, from its element `at` on. `from` is memory
  /// that this rank reads, of any alignment. The peer may read the elements after a later `signal`
  /// or ordered `barrier` of this block.
  template <class T>
  CCL_HD void put(int peer, Index at, const T* from, Index count) {
    static_assert(cuda::std::is_trivially_copyable_v<T>,
                  "ccl: put copies bytes, so its elements must be trivially copyable");
    constexpr Index size = sizeof(T);
    if (!is_peer(peer)) return;
    if (at < 0 || count < 0 || at > team_.window_bytes / size ||
        count > team_.window_bytes / size - at) {
      return misuse(detail::LaneFailure::outside_window, peer, end_of(at, count, size),
                    Word(team_.window_bytes));
    }
    const auto* const bytes = reinterpret_cast<const char*>(from);
    if (is_far(peer)) return put_far(peer, at * size, bytes, count * size);
    detail::copy_run(group_, team_.window[peer] + at * size, bytes, count * size);
  }
  /// Copies as `put` does, then signals.
  template <class T>
  CCL_HD void put_signal(int peer, Index at, const T* from, Index count, int id, Word value = 1) {
    put(peer, at, from, count);
    signal(peer, id, value);
  }

  /// Sets signal `id` of this rank at a peer to `value`, with release order: all earlier writes of
  /// all lanes of the block are visible to the lanes that wait for it.
  ///
  /// `value` is from 1 to 2^32 - 1 and counts from the begin of the launch. It must grow with each
  /// signal of this id to this peer. One block at a time signals by an id to a peer.
  CCL_HD void signal(int peer, int id, Word value = 1) {
    if (!is_peer(peer) || !is_signal(id, value)) return;
    if (is_far(peer)) return set_far_word(peer, team_.signal_row(id), word_of(value));
    group_.sync();  // every lane's writes, then the signal
    if (group_.rank() == 0) Memory::store_release(team_.signal(peer, id, rank()), word_of(value));
  }
  /// Blocks until signal `id` of a peer is `value` or more in this launch. All lanes then see the
  /// writes before it. Returns false if the session has failed.
  CCL_HD bool wait(int peer, int id, Word value = 1) {
    if (!is_peer(peer) || !is_signal(id, value)) return false;
    const Word* const at = team_.signal(rank(), id, peer);
    return agree(group_.rank() != 0 || await<MemoryOrder::acq_rel>(at, word_of(value), peer));
  }
  /// Blocks as `wait` does, for the signals of all other ranks.
  CCL_HD bool wait_all(int id, Word value = 1) {
    if (failed_ || !is_signal(id, value)) return false;
    return agree(await_each<MemoryOrder::acq_rel>(
        word_of(value), [this, id](int p) { return team_.signal(rank(), id, p); }));
  }
  /// Returns true if `wait` would not block, and then has its order.
  ///
  /// A test that returns false counts as a poll of a wait. The session fails with the communicator,
  /// and at its deadline. The deadline counts from the first false test of a peer, and anew from a
  /// true one or a wait that succeeds. A loop of tests must therefore end if `failed()`.
  CCL_HD bool test(int peer, int id, Word value = 1) {
    if (!is_peer(peer) || !is_signal(id, value)) return false;
    const Word* const at = team_.signal(rank(), id, peer);
    if (vote(group_.rank() != 0 || is_reached(Memory::load_acquire(at), word_of(value)))) {
      if (peer == tested_) end_tests();
      return true;
    }
    count_test(peer);
    if (!group_.all(group_.rank() != 0 || !spin_wait_.ends(tested_, epoch_ - 1))) failed_ = true;
    return false;
  }

  /// Blocks until this block has arrived on all ranks. Other blocks have barriers of their own.
  /// Returns false if the session has failed.
  CCL_HD bool barrier(MemoryOrder order = MemoryOrder::acq_rel) {
    if (order == MemoryOrder::relaxed) return barrier_in<MemoryOrder::relaxed>();
    return barrier_in<MemoryOrder::acq_rel>();
  }

  /// Blocks until a word that the host or this rank writes is `least` or more. All lanes then see
  /// the writes before it. The wait has no deadline, because a kernel that serves requests may wait
  /// for the next one for long. Returns false if the session has failed.
  CCL_HD bool wait_word(const Word* word, Word least) {
    if (failed_) return false;
    bool good = true;
    if (group_.rank() == 0) {
      while (good && Index(Memory::load_acquire(word) - least) < 0) {
        good = !spin_wait_.ends(-1, epoch_ - 1);  // the failure of the communicator ends it
      }
    }
    return agree(good);
  }
  /// Stores a word that the host or this rank polls, with release order: all earlier writes of all
  /// lanes of the block are visible to whoever reads `value` with acquire order.
  CCL_HD void set_word(Word* word, Word value) {
    if (failed_) return;
    group_.sync();  // every lane's writes, then the word
    if (group_.rank() == 0) Memory::store_release(word, value);
  }

  /// Counts this block at counter `id` of this rank, which `blocks` blocks of a launch count once
  /// each. Returns true on the last of them, which then sees the writes of the others: a signal of
  /// that block releases them, too. The blocks may count again after the last one has returned.
  CCL_HD bool count(int id, int blocks) {
    if (failed_) return false;
    if (id < 0 || id >= team_.counters) {
      misuse(detail::LaneFailure::no_counter, rank(), Word(id), Word(team_.counters));
      return false;
    }
    if (blocks < 1 || blocks > blocks_) {
      misuse(detail::LaneFailure::no_blocks, rank(), Word(blocks), Word(blocks_));
      return false;
    }
    group_.sync();  // every lane's writes, then the count
    bool last = true;
    if (group_.rank() == 0) {
      Word* const counted = team_.counter(id);
      last = Memory::fetch_add(counted, 1) + 1 == Word(blocks);
      if (last) Memory::store_relaxed(counted, 0);  // another launch may have fewer blocks
    }
    return vote(last);
  }

 private:
  /// Byte after those of a put that does not fit: the largest `Index` if no memory has it, or if
  /// the place or the count is negative.
  static CCL_HD Word end_of(Index at, Index count, Index size) {
    constexpr Word most = ~Word{0} >> 1;
    if (at < 0 || count < 0) return most;
    const Word end = Word(at) + Word(count);
    return end > most / Word(size) ? most : end * Word(size);
  }
  template <class G, class T, class Shape, class Proto, int MaxRanks, class OfTeam>
  friend class Tiles;
  static constexpr bool has_network = cuda::std::is_same_v<TeamType, NetworkTeam>;

  template <class GivenTeam>
  CCL_HD static const detail::TeamData& data_of(const GivenTeam& team) {
    static_assert(cuda::std::is_same_v<GivenTeam, TeamType>,
                  "ccl: a session takes a Team; pass DeviceComm::team() to the kernel");
    return team.data();
  }
  /// Returns the word of a signal or barrier in this launch.
  CCL_HD Word word_of(Word value) const { return epoch_ << 32 | value; }
  /// True if the word of a peer is `want` or later. A peer may be ahead, but not by 2^28 launches:
  /// a word that seems to be is an old one, of a signal or a block that was not used for as long.
  CCL_HD static constexpr bool is_reached(Word word, Word want) {
    return word - want < Word{1} << (32 + 28);
  }
  /// Fails the session because of a call that is wrong on this rank.
  CCL_HD void misuse(detail::LaneFailure::Why why, int peer, Word given, Word limit) {
    failed_ = true;
    if (group_.rank() != 0) return;
    detail::LaneFailure* const failure = team_.watch.lane_failure;
    if (failure == nullptr || Memory::load_relaxed(&failure->peer) != 0) return;  // null: no team
    Memory::store_relaxed(&failure->why, Word(why));
    Memory::store_relaxed(&failure->count, given);
    Memory::store_relaxed(&failure->stride, limit);
    Memory::store_release(&failure->peer, Word(peer + 1));
  }
  CCL_HD bool is_peer(int peer) {
    if (failed_) return false;
    if (peer >= 0 && peer < ranks()) return true;
    misuse(detail::LaneFailure::no_rank, rank(), Word(peer), Word(ranks()));
    return false;
  }
  CCL_HD bool is_signal(int id, Word value) {
    constexpr Word max_value = 0xffff'ffff;  // the other bits are the launch
    if (id < 0 || id >= team_.signals) {
      misuse(detail::LaneFailure::no_signal, rank(), Word(id), Word(team_.signals));
      return false;
    }
    if (value >= 1 && value <= max_value) return true;
    misuse(detail::LaneFailure::no_value, rank(), value, max_value);
    return false;
  }

  /// Returns true on all lanes if `vote` is true on all. Orders memory as `sync` does.
  CCL_HD bool vote(bool vote) const {
    const bool all = group_.all(vote);
    group_.sync();
    return all;
  }
  /// Ends a wait of the group. `good`: this lane's part has not failed.
  CCL_HD bool agree(bool good) {
    if (!vote(good)) failed_ = true;
    spin_wait_.restart();
    return !failed_;
  }
  template <MemoryOrder Order>
  CCL_HD static Word load(const Word* at) {
    if constexpr (Order == MemoryOrder::relaxed) return Memory::load_relaxed(at);
    return Memory::load_acquire(at);
  }
  /// Polls until the word is at least `want`. Runs on one lane.
  template <MemoryOrder Order>
  CCL_HD bool await(const Word* at, Word want, int peer) {
    while (!is_reached(load<Order>(at), want)) {
      if (spin_wait_.ends(peer, epoch_ - 1)) return false;
    }
    return true;
  }
  /// Polls a word of every other rank. The lanes share them.
  template <MemoryOrder Order, class At>
  CCL_HD bool await_each(Word want, At at) {
    bool good = true;
    for (int p = group_.rank(); p < ranks(); p += Group::width) {
      if (p != rank() && good) good = await<Order>(at(p), want, p);
    }
    return good;
  }
  template <MemoryOrder Order>
  CCL_HD bool barrier_in() {
    if (failed_) return false;
    const Word want = word_of(++barriers_);
    group_.sync();  // all lanes have arrived, and their writes precede the stores of an order
    for (int p = group_.rank(); p < ranks(); p += Group::width) {
      if (p == rank() || is_far(p)) continue;
      Word* const at = team_.barrier(p, block_, rank());
      if constexpr (Order == MemoryOrder::relaxed) {
        Memory::store_relaxed(at, want);
      } else {
        Memory::store_release(at, want);
      }
    }
    set_far_words(team_.barrier_row(block_), want);
    if (failed_) return false;
    return agree(
        await_each<Order>(want, [this](int p) { return team_.barrier(rank(), block_, p); }));
  }
  /// Begins a wait of false tests for a peer if there is none. Tests of other peers are polls of
  /// the same wait, until so many have gone by that a loop over all signals would have come back.
  CCL_HD void count_test(int peer) {
    if (peer == tested_) {
      others_tested_ = 0;
    } else if (tested_ < 0 || ++others_tested_ > team_.signals * ranks()) {
      end_tests();
      tested_ = peer;
    }
  }
  CCL_HD void end_tests() {
    tested_ = -1;
    others_tested_ = 0;
    spin_wait_.restart();
  }
  /// True if calls to a rank go through the proxy.
  CCL_HD bool is_far(int peer) const {
    if constexpr (has_network) return team_.is_far(peer);
    return false;
  }
  /// Copies bytes into the window of a far rank, a slot of the queue at a time.
  CCL_HD void put_far(int peer, Index at, const char* from, Index bytes) {
    constexpr Index most = detail::FarQueue::payload_bytes;
    for (Index done = 0; done < bytes && !failed_; done += most) {
      const Index n = bytes - done < most ? bytes - done : most;
      detail::FarHeader* const slot = take_turn(peer);
      if (slot == nullptr) return;
      detail::copy_run(group_, detail::FarQueue::payload(slot), from + done, n);
      give_turn(slot, {0, Word(peer), detail::FarHeader::to_window, Word(at + done), Word(n), 0});
    }
  }
  /// Sets this rank's word of a row in the scratch of a far rank, after all earlier messages to it.
  CCL_HD void set_far_word(int peer, Index row, Word value) {
    detail::FarHeader* const slot = take_turn(peer);
    if (slot == nullptr) return;
    const Index at = row + rank() * Index{sizeof(Word)};
    give_turn(slot, {0, Word(peer), detail::FarHeader::set_word, Word(at), 0, value});
  }
  CCL_HD void set_far_words(Index row, Word value) {
    if constexpr (has_network) {
      if (team_.far_ranks == 0) return;
      for (int p = 0; p < ranks() && !failed_; ++p) {
        if (is_far(p)) set_far_word(p, row, value);
      }
    }
  }
  CCL_HD detail::FarHeader* take_turn(int peer) {
    detail::FarHeader* const slot =
        detail::take_turn(group_, team_.queue, team_.word(rank(), team_.layout.taken, 0),
                          team_.turn(block_, 0), peer, team_.watch);
    if (slot == nullptr) failed_ = true;
    return slot;
  }
  CCL_HD void give_turn(detail::FarHeader* slot, const detail::FarHeader& header) const {
    detail::give_turn(group_, slot, team_.turn(block_, 0), header);
  }

  /// Blocks until every peer is done with the launch before the previous one, which used the same
  /// half of the packets. Its first call in a session waits.
  CCL_HD bool begin_packets() {
    if (failed_) return false;
    if (in_step_) return true;
    in_step_ = true;
    bool good = true;
    for (int p = group_.rank(); p < ranks(); p += Group::width) {
      if (p == rank()) continue;
      const Word* const at = team_.begun(rank(), p);
      while (good && Index(Memory::load_credit(at) + 1 - epoch_) < 0) {
        good = !spin_wait_.ends(p, epoch_ - 1);
      }
    }
    return agree(good);
  }

  Group group_;
  const detail::TeamData& team_;
  int block_, blocks_;
  Word epoch_ = 0;     // number of this launch; 0: none
  Word barriers_ = 0;  // of this launch
  bool failed_ = false;
  bool in_step_ = false;   // `begin_packets` has run
  int tested_ = -1;        // peer of the wait that false tests make; -1: none
  int others_tested_ = 0;  // false tests of other peers since the last one of it
  detail::SpinWait<Memory> spin_wait_;
};

template <class Group, class GivenTeam>
TeamSession(Group, const GivenTeam&, int, int) -> TeamSession<Group>;
template <class Group>
TeamSession(Group, const NetworkTeam&, int, int) -> TeamSession<Group, NetworkTeam>;

}  // namespace ccl

CCL_ANY_SPACE_END
