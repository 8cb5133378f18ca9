#pragma once

#include <ccl/detail/base/bytes.hpp>
#include <ccl/detail/exchange/counts.hpp>
#include <ccl/detail/exchange/mailbox.hpp>
#include <ccl/detail/lanes/collect.hpp>
#include <ccl/detail/lanes/phases.hpp>
#include <ccl/detail/numeric/user_buffer.hpp>
#include <ccl/types/macros.hpp>

#include <cuda/std/limits>

CCL_ANY_SPACE_BEGIN

namespace ccl::detail {

/// Operations of `OneShot` on messages of any size between any two ranks. A rank pushes each tile
/// into a box of the peer and collects the tiles that peers pushed into its own boxes. Runs of a
/// few tiles are assigned to groups.
///
/// The two halves of a box alternate. A sender reuses a half after the receiver has begun the
/// message that follows the half's last message.
///
/// `Notes`: times of the launch, for `Traced`.
template <ReducingLanes Group, Protocol<Group> Proto, int Align, int Most = max_unrolled_ranks,
          class Notes = NoPhaseNotes>
class PacketExchange {
  using Work = BasicPeerExchangeWork<Most>;
  using Memory = typename Group::Memory;
  using Lane = typename Proto::template Lane<Group, 1>;
  using Fragment = typename Lane::Fragment;
  static constexpr Fill fill = Align == 16 ? Fill::cells : Fill::any;
  static constexpr int words_per_lane = div_up(Work::state_words, Group::width);
  static constexpr int run = 4;  // tiles in flight per group, if there are many
  static_assert(Proto::carries_flags,
                "Algorithms over peer memory need a protocol whose packets carry flags.");

 public:
  template <class OtherGroup>
  using Over = PacketExchange<OtherGroup, Proto, Align, Most, Notes>;

  static constexpr int tile_bytes = Lane::tile_cells * int(sizeof(Word));
  /// Returns the maximum bytes of a message, a multiple of 128, so that the next piece has the same
  /// alignment. 0 if the scratch has no tile for each rank.
  static constexpr Index max_bytes(const PeerView& peers) {
    using Count = typename WidePeerExchangeWork::TileAssignment::Count;
    constexpr Index max_counted = cuda::std::numeric_limits<Count>::max();
    Index most = box_tiles(peers);
    if (peers.ranks > max_unrolled_ranks && most > max_counted) most = max_counted;
    return most * tile_bytes / 128 * 128;
  }
  /// Returns the tiles of all messages of one direction, which is the number of groups with work.
  static constexpr Index tiles(const Message* messages, int ranks) {
    Index n = 0;
    for (int p = 0; p < ranks; ++p) n += div_up<Index>(messages[p].bytes, tile_bytes);
    return n;
  }

  /// Assigns the tiles to groups, on the host, after `channels` is set. The runs of a message begin
  /// at the group after the last run of the previous message. Small messages thus go to different
  /// groups.
  static void assign_tiles(Work& work) {
    work.box_packets = box_tiles(work.peers) * Lane::tile_packets;
    for (const bool sends : {true, false}) {
      const Message* const messages = sends ? work.out : work.in;
      auto& assignment = sends ? work.send_tiles : work.recv_tiles;
      const Index all = tiles(messages, work.peers.ranks);
      assignment.run = all > Index{work.channels} * run ? run : 1;
      int next = 0;
      for (int k = 0; k < work.peers.ranks; ++k) {
        const int p = (work.peers.rank + k) % work.peers.ranks;
        using Count = typename Work::TileAssignment::Count;
        const int tiles_of_it = int(div_up<Index>(messages[p].bytes, tile_bytes));
        assignment.tiles[p] = Count(tiles_of_it);
        assignment.first[p] = Count(next);
        next = (next + div_up(tiles_of_it, assignment.run)) % work.channels;
      }
    }
  }

  CCL_HD PacketExchange(Group group, const Work& work, int channel)
      : group_{group},
        lane_{group},
        work_{work},
        channel_{channel},
        rank_{work.peers.rank},
        state_{work.state.copies + channel % work.blocks},
        mailbox_{detail::mailbox<Most>(work.peers, work.peers.rank, 0)},
        first_{push_to(0)},
        spin_wait_{work.watch},
        notes_{group, work.watch, channel} {
    detail::look_at(work_);
    Memory::await_previous();
    notes_.ready();
  }

  /// Must run before any push. Each lane loads its words of the state and the credits of its
  /// receivers, in one latency with the first tile.
  ///
  /// No lane branches around a load, because the other lanes would wait for it. A lane without a
  /// load of its own reads a nearby word.
  CCL_HD void begin() {
    CCL_UNROLL for (int i = 0; i < words_per_lane; ++i) {
      const int word = i * Group::width + group_.rank();
      const bool mine = word < Work::state_words && work_.counts.contains(word);
      const bool sends = mine && word < Most;
      counted_[i] = Memory::load_relaxed(state_ + (mine ? word : 0) * work_.state.count);
      begun_[i] = Memory::load_credit(mailbox_[sends ? word : rank_].begun);
    }
  }

  CCL_HD void push_all() {
    Push push = first_;
    CCL_ROLL for (int k = 0; k < work_.to.count; ++k) {
      if (k > 0) push = push_to(k);
      if (push.tiles.t >= push.end) continue;
      if (push.peer == rank_) {
        keep(push);
        continue;
      }
      Fragment next = load(push.data, push.bytes, push.tiles.t);
      report_begun();
      const Word flag = sequence(true, push.peer);
      Word begun = held(begun_, push.peer);
      // The peer has begun the previous message, so it has read the half.
      while (!group_.all(Index(begun + 1 - flag) >= 0)) {
        if (group_.all(spin_wait_.ends(push.peer, flag - 1))) return;
        begun = Memory::load_credit(mailbox_[push.peer].begun);
      }
      Packet* const box = push.box + half(flag);
      while (push.tiles.t < push.end) {
        const Fragment f = next;
        Packet* const tile = box + Index{push.tiles.t} * Lane::tile_packets;
        push.tiles.next();
        next = load(push.data, push.bytes, push.tiles.t);
        lane_.store(tile, f, flag);
      }
    }
    // The tiles of the peers arrive meanwhile.
    if (channel_ >= work_.blocks) return;
    detail::count_for_absent(work_, work_.counts, channel_, group_.rank(), Group::width);
  }

  CCL_HD void collect_all() {
    report_begun();
    CCL_ROLL for (int k = 0; k < work_.from.count; ++k) {
      const int p = work_.from.rank[k];
      const Message& m = work_.in[p];
      const int n = work_.recv_tiles.tiles[p];
      Tiles tiles = tiles_of(work_.recv_tiles, p);
      if (tiles.t >= n) continue;
      const Data data{nullptr, m.data};
      const Word flag = sequence(false, p);
      const Packet* const box = box_of(rank_, p) + half(flag);
      while (tiles.t < n) {
        if (tiles.length == run && tiles.t + run <= n) {
          take<run>(data, m, box, tiles.t, flag, p);
          tiles.next_run();
        } else {
          take<1>(data, m, box, tiles.t, flag, p);
          tiles.next();
        }
      }
    }
  }

 private:
  using Data = UserBuffer<cuda::std::uint8_t, Align>;

  /// Tiles of one message that this group moves: every `groups`-th run of `length` tiles.
  struct Tiles {
    int t, length, groups;
    int left;  // tiles left in the current run, t included
    CCL_HD void next() {
      ++t;
      if (--left == 0) {
        t += (groups - 1) * length;
        left = length;
      }
    }
    /// Moves from the first tile of a run to the first tile of this group's next run.
    CCL_HD void next_run() { t += groups * length; }
  };
  /// Part of this group in one message that this rank sends.
  struct Push {
    int peer, end;  // end of the message's tiles
    Tiles tiles;
    Data data;
    Index bytes;
    Packet* box;  // at the peer, in the first half
  };
  CCL_HD Push push_to(int k) const {
    const int p = work_.to.rank[k];
    const Message& m = work_.out[p];
    return {
        p,       work_.send_tiles.tiles[p], tiles_of(work_.send_tiles, p), Data{m.data, nullptr},
        m.bytes, box_of(p, rank_)};
  }
  /// Copies the message of this rank to itself.
  CCL_HD void keep(Push& push) const {
    const Message& to = work_.in[rank_];
    if (work_.out[rank_].data == to.data || push.bytes != to.bytes) return;
    const Data data{work_.out[rank_].data, to.data};
    for (; push.tiles.t < push.end; push.tiles.next()) {
      store(data, push.bytes, push.tiles.t, load(data, push.bytes, push.tiles.t));
    }
  }
  /// Returns the tiles of a message that this group moves.
  CCL_HD Tiles tiles_of(const typename Work::TileAssignment& assignment, int p) const {
    const int behind = channel_ - assignment.first[p];
    const int mine = behind < 0 ? behind + work_.channels : behind;
    return {mine * assignment.run, assignment.run, work_.channels, assignment.run};
  }

  CCL_HD Fragment load(const Data& data, Index bytes, int t) const {
    const Index at = Index{t} * tile_bytes;
    return data.template load<fill>(lane_, at, bytes - at);
  }
  CCL_HD void store(const Data& data, Index bytes, int t, const Fragment& f) const {
    const Index at = Index{t} * tile_bytes;
    data.template store<fill>(lane_, at, bytes - at, f);
  }
  template <int N>
  CCL_HD void take(const Data& data, const Message& m, const Packet* box, int t, Word flag, int p) {
    const auto got = collect<N>(lane_, box + Index{t} * Lane::tile_packets, flag, p, spin_wait_);
    notes_.received();
    CCL_UNROLL for (int i = 0; i < N; ++i) store(data, m.bytes, t + i, got.of[i]);
  }
  static constexpr Index box_tiles(const PeerView& peers) {
    return peers.half_packets / peers.ranks / Lane::tile_packets;
  }
  CCL_HD Packet* box_of(int owner, int writer) const {
    return work_.peers.template scratch_of<Most>(owner) + writer * work_.box_packets;
  }
  CCL_HD Index half(Word flag) const { return Index(flag & 1) * work_.peers.half_packets; }
  /// Stores credits to the senders: this rank is done with all earlier messages. Must run before
  /// any wait.
  CCL_HD void report_begun() {
    if (reported_ || channel_ != 0) return;
    reported_ = true;
    CCL_ROLL for (int k = 0; k < work_.from.count; ++k) {
      const int p = work_.from.rank[k];
      const int word = Most + p;
      if (word % Group::width != group_.rank()) continue;
      Memory::store_credit(detail::mailbox<Most>(work_.peers, p, rank_)->begun,
                           counted_[slot(word)] + 1);
    }
  }
  /// Returns the value of `word` from the lane that holds it.
  CCL_HD Word held(const Word* words, int word) const {
    return group_.from(words[slot(word)], word % Group::width);
  }
  /// Returns the index of `word` among the words of a lane. A single word stays in a register only
  /// if its index is a constant.
  CCL_HD static constexpr int slot(int word) {
    return words_per_lane == 1 ? 0 : word / Group::width;
  }
  /// Returns the number of this launch's message to or from a peer.
  CCL_HD Word sequence(bool sends, int p) const {
    return held(counted_, (sends ? 0 : Most) + p) + 1;
  }

  Group group_;
  Lane lane_;
  const Work& work_;
  int channel_, rank_;
  const Word* state_;
  const Mailbox* mailbox_;                                          // of this rank
  Word counted_[words_per_lane] = {}, begun_[words_per_lane] = {};  // word i * width + rank
  bool reported_ = false;
  Push first_;  // known before the wait for the previous launch
  SpinWait<Memory> spin_wait_;
  [[no_unique_address]] Notes notes_;
};

}  // namespace ccl::detail

CCL_ANY_SPACE_END
