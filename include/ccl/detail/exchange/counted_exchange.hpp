#pragma once

#include <ccl/algo/rank_counts.hpp>
#include <ccl/detail/exchange/counted_division.hpp>
#include <ccl/detail/exchange/counted_work.hpp>
#include <ccl/detail/exchange/mailbox.hpp>
#include <ccl/detail/lanes/peer_view.hpp>
#include <ccl/detail/lanes/phases.hpp>
#include <ccl/detail/lanes/spin_wait.hpp>
#include <ccl/detail/numeric/user_buffer.hpp>
#include <ccl/proto/lane_group.hpp>
#include <ccl/proto/protocol.hpp>
#include <ccl/types/macros.hpp>
#include <ccl/types/word.hpp>

CCL_ANY_SPACE_BEGIN

namespace ccl::detail {

/// Operations of `OneShot` on messages whose sizes only the sender's memory holds. The count
/// travels in a word of its own, ahead of the tiles. The place of a tile does not depend on the
/// size of its message.
///
/// A rank with too many rows for some peer sends no tiles. Each count word that it sends is then
/// either `nothing` or a count that exceeds the receiver's room.
///
/// A group waits for its peers as a whole, because a word that every warp of a GPU polls is slow to
/// read. The parts of the group move the tiles.
///
/// `Notes`: times of the launch, for `Traced`. The first part notes when its tiles arrive.
template <LaneGroup Group, class Proto, int Align, int Most = max_unrolled_ranks,
          class Notes = NoPhaseNotes>
class CountedExchange {
  using Memory = typename Group::Memory;
  using Part = typename Parts<Group>::Part;
  using Lane = typename Proto::template Lane<Part, 1>;
  using Fragment = typename Lane::Fragment;
  static constexpr Fill fill = Align == 16 ? Fill::cells : Fill::any;
  static constexpr int max_ranks = Most;
  static constexpr Word nothing = 0xffff'ffffu;  // replaces a count: the sender sends no tiles
  static_assert(Proto::carries_flags,
                "Algorithms over peer memory need a protocol whose packets carry flags.");

 public:
  using Division = CountedDivision<Lane>;

  CCL_HD CountedExchange(Group group, const CountedWork& work, int channel)
      : group_{group},
        lane_{Parts<Group>::part(group)},
        work_{work},
        first_{channel == 0},
        rank_{work.peers.rank},
        ranks_{work.peers.ranks},
        part_{Parts<Group>::index(group) * work.channels + channel},
        parts_{Parts<Group>::count * work.channels},
        state_{work.state.copies + channel % work.blocks},
        mailbox_{detail::mailbox<Most>(work.peers, work.peers.rank, 0)},
        spin_wait_{work.watch},
        notes_{group, work.watch, channel} {
    detail::look_at(work_);
    Memory::await_previous();
    notes_.ready();
  }

  /// Must run before any push. Loads this rank's counts and the peers' credits in one latency.
  /// Stores credits to the peers: this rank is done with all earlier messages.
  CCL_HD void begin() {
    Known& known = this->known();
    bool ready = true;
    CCL_ROLL for (int p = first_asked(group_); p < max_ranks; p += asks_every<Group>) {
      // No lane branches around a load. A lane without a load of its own reads a nearby word.
      const int q = p < ranks_ ? p : rank_;
      const int rows = work_.send_counts[q];
      Word out = 0, in = 0, begun = 0;
      if (ranks_ > 1) {
        out = next(q);
        in = next(max_ranks + q);
        begun = Memory::load_credit(mailbox_[q].begun);
      }
      known.rows_out[p] = p < ranks_ ? rows : 0;
      known.flag_out[p] = out;
      known.flag_in[p] = in;
      ready &= fits(known.rows_out[p], work_.max_sent());
      if (q == rank_) continue;
      ready &= Index(begun + 1 - out) >= 0;
      if (first_) Memory::store_credit(detail::mailbox<Most>(work_.peers, q, rank_)->begun, in);
    }
    ready_ = group_.all(ready);
  }

  CCL_HD void push_all() {
    if (!ready_) {
      too_many_ = wrong(known().rows_out, work_.max_sent());
      if (!await_begun()) return;
    }
    if (first_ && last_part()) tell_counts();
    if (too_many_ >= 0) {
      if (first_ && group_.rank() == 0) {
        report(LaneFailure::too_many, too_many_, unsigned(known().rows_out[too_many_]), true);
      }
      return;
    }
    many(known().rows_out) ? push<run>() : push<1>();
  }

  CCL_HD void collect_all() {
    if (too_many_ >= 0 || failed_ || !await_counts()) return;
    notes_.received();
    many(known().rows_in) ? collect<run>() : collect<1>();
  }

 private:
  using Message = typename Division::Message;
  using Run = typename Division::Run;
  static constexpr int run = Division::run, tile_bytes = Division::tile_bytes;
  using Data = UserBuffer<cuda::std::uint8_t, Align>;
  using SideData = UserBuffer<cuda::std::uint8_t, 1>;
  /// Counts and flags of the messages of each peer. Absent ranks have no rows, and no rows come
  /// from this rank. A GPU block loads them once for all its warps, because separate loads of all
  /// warps took longer than small messages.
  struct alignas(16) Known {
    int rows_out[max_ranks], rows_in[max_ranks];
    Word flag_out[max_ranks], flag_in[max_ranks];
  };
  struct Nothing {};
  struct Rows {
    Data data;
    SideData side;
  };

  /// Returns the number of the next message that a word of the state counts.
  CCL_HD Word next(int word) const {
    return Memory::load_relaxed(state_ + word * work_.state.count) + 1;
  }
  CCL_HD Known& known() {
    if constexpr (Parts<Group>::shares) {
      return Parts<Group>::template shared<Known>(group_);
    } else {
      return own_;
    }
  }
  /// Stride of the ranks that a lane loads. Lanes that share `Known` divide the ranks among
  /// themselves.
  template <class Lanes>
  static constexpr int asks_every = Parts<Group>::shares ? Lanes::width : 1;
  template <class Lanes>
  CCL_HD static int first_asked(Lanes lanes) {
    return Parts<Group>::shares ? lanes.rank() : 0;
  }

  /// True if the messages of a direction have more than one run of `run` tiles for each part.
  CCL_HD bool many(const int (&rows_of)[max_ranks]) const {
    Index rows = 0;
    if constexpr (max_ranks > max_unrolled_ranks) {
      CCL_ROLL for (int p = 0; p < ranks_; ++p) rows += moved(rows_of[p]);
    } else {
      CCL_UNROLL for (int p = 0; p < max_ranks; ++p) rows += moved(rows_of[p]);
    }
    return Division::tiles(work_, rows) > Index{parts_} * run;
  }

  template <int N>
  CCL_HD void push() {
    int begin = 0, g = part_;  // first run of the message, next run of this part
    CCL_ROLL for (int k = 0; k < ranks_; ++k) {
      const int p = peer(k);
      const Message m = Division::template cut<N>(work_, moved(known().rows_out[p]));
      if (g < begin + m.runs) {
        const Index base = Index{p} * work_.send_stride + work_.first;
        const Index own = k == 0 ? Index{p} * work_.recv_stride + work_.first : 0;
        const Word flag = k == 0 ? 0 : known().flag_out[p];
        Packet* const box = box_of(p, rank_, flag);
        for (; g < begin + m.runs; g += parts_) {
          const Run at = Division::template run_of<N>(m, g - begin);
          const Index from = row(base + at.piece), to = own + at.piece;
          const Rows rows{{work_.send + from * work_.row_bytes, work_.recv + to * work_.row_bytes},
                          {side(work_.send_side, from), side(work_.recv_side, to)}};
          Fragment f[N];
          CCL_UNROLL for (int i = 0; i < N; ++i) f[i] = load(rows, m, at.tile + i);
          Packet* const tile = box + (Index{at.piece} * m.tiles + at.tile) * Lane::tile_packets;
          CCL_UNROLL for (int i = 0; i < N; ++i) {
            if (at.tile + i >= at.end) continue;
            if (k == 0) {
              store(rows, m, at.tile + i, f[i]);
            } else {
              lane_.store(tile + i * Lane::tile_packets, f[i], flag);
            }
          }
        }
      }
      begin += m.runs;
    }
  }
  template <int N>
  CCL_HD void collect() {
    int begin = 0, g = part_;
    CCL_ROLL for (int k = 1; k < ranks_; ++k) {
      const int p = peer(k);
      const Message m = Division::template cut<N>(work_, moved(known().rows_in[p]));
      if (g < begin + m.runs) {
        const Index base = Index{p} * work_.recv_stride + work_.first;
        const Word flag = known().flag_in[p];
        const Packet* const box = box_of(rank_, p, flag);
        for (; g < begin + m.runs; g += parts_) {
          const Run at = Division::template run_of<N>(m, g - begin);
          const Rows rows{{nullptr, work_.recv + (base + at.piece) * work_.row_bytes},
                          {nullptr, side(work_.recv_side, base + at.piece)}};
          if (!take<N>(rows, m, box, at, flag, p)) return;
        }
      }
      begin += m.runs;
    }
  }

  /// Blocks until every peer has begun the previous message and so has read the half. All lanes
  /// call it. Returns false if the spin wait failed.
  CCL_HD bool await_begun() {
    for (;;) {
      int late = -1;
      CCL_ROLL for (int p = group_.rank(); p < ranks_; p += Group::width) {
        if (p == rank_) continue;
        if (Index(Memory::load_credit(mailbox_[p].begun) + 1 - known().flag_out[p]) < 0) late = p;
      }
      if (group_.all(late < 0)) return true;
      if (group_.all(spin_wait_.ends(late, late < 0 ? 0 : known().flag_out[late] - 1))) break;
    }
    failed_ = true;
    return false;
  }
  /// Sends the counts to the peers. The last part calls it, because it has the least to push.
  CCL_HD void tell_counts() {
    const auto part = Parts<Group>::part(group_);
    CCL_ROLL for (int p = part.rank(); p < ranks_; p += Part::width) {
      const int rows = known().rows_out[p];
      if (p == rank_) {
        if (too_many_ < 0) work_.recv_counts[p] = rows;
        continue;
      }
      // With a count that fits, the peer would wait for tiles.
      const bool waits = fits(rows, work_.recv_stride);
      const Word reported = too_many_ >= 0 && waits ? nothing : unsigned(rows);
      const Word flag = known().flag_out[p];
      Memory::store_relaxed(counted(p, rank_, flag), flag << 32 | reported);
    }
  }
  /// Blocks until all lanes have the counts of all peers. The last part polls, and the other parts
  /// join it after their pushes. Returns false if the spin wait failed or a count does not fit.
  CCL_HD bool await_counts() {
    bool fit = true;
    if (last_part()) fit = see_counts();
    if (group_.all(fit)) return true;
    const int p = wrong(known().rows_in, work_.recv_stride);
    failed_ = p < 0;
    if (!failed_ && first_ && group_.rank() == 0) {
      const Word reported = unsigned(known().rows_in[p]);
      report(reported == nothing ? LaneFailure::refused : LaneFailure::too_many, p, reported,
             false);
    }
    return false;
  }
  /// Polls the counts of the peers and stores those that fit in `recv_counts`. Returns false if the
  /// spin wait failed or a count does not fit.
  CCL_HD bool see_counts() {
    const auto part = Parts<Group>::part(group_);
    for (;;) {
      int late = -1;
      CCL_ROLL for (int p = first_asked(part); p < max_ranks; p += asks_every<Part>) {
        known().rows_in[p] = 0;
        if (p >= ranks_ || p == rank_) continue;
        const Word flag = known().flag_in[p];
        const Word reported = Memory::load_relaxed(counted(rank_, p, flag));
        if (reported >> 32 == (flag & 0xffff'ffffu)) {
          known().rows_in[p] = int(unsigned(reported));
        } else {
          late = p;
        }
      }
      if (part.all(late < 0)) break;
      if (part.all(spin_wait_.ends(late, late < 0 ? 0 : known().flag_in[late] - 1))) return false;
    }
    bool fit = true;
    CCL_ROLL for (int p = first_asked(part); p < ranks_; p += asks_every<Part>) {
      const int rows = known().rows_in[p];
      const bool fits_here = fits(rows, work_.recv_stride);
      fit &= fits_here;
      if (first_ && p != rank_ && fits_here) work_.recv_counts[p] = rows;
    }
    return fit;
  }
  CCL_HD void report(LaneFailure::Why why, int p, Word count, bool sends) const {
    LaneFailure* const lane_failure = work_.watch.lane_failure;
    if (Memory::load_relaxed(&lane_failure->peer) != 0) return;
    Memory::store_relaxed(&lane_failure->why, Word(why));
    Memory::store_relaxed(&lane_failure->count, count);
    Memory::store_relaxed(&lane_failure->stride,
                          Word(sends ? work_.max_sent() : work_.recv_stride));
    Memory::store_relaxed(&lane_failure->sends, Word(sends));
    Memory::store_release(&lane_failure->peer, Word(p + 1));
  }

  /// Receives the tiles of a run. Each poll loads all of them. Returns false if the spin wait
  /// failed.
  template <int N>
  CCL_HD bool take(const Rows& rows, const Message& m, const Packet* box, const Run& at, Word flag,
                   int p) {
    const Packet* const tile = box + (Index{at.piece} * m.tiles + at.tile) * Lane::tile_packets;
    typename Lane::Arrival got[N];
    for (;;) {
      // Past the end of the run, its last tile is loaded again. A branch would separate the loads.
      CCL_UNROLL for (int i = 0; i < N; ++i) {
        const int t = at.tile + i < at.end ? i : at.end - 1 - at.tile;
        got[i] = lane_.load(tile + t * Lane::tile_packets);
      }
      bool here = true;
      CCL_UNROLL for (int i = 0; i < N; ++i) here = here & lane_.has_arrived(got[i], flag);
      if (lane_.agree(here)) break;
      if (lane_.agree(spin_wait_.ends(p, flag - 1))) return false;
    }
    notes_.received();
    CCL_UNROLL for (int i = 0; i < N; ++i) {
      if (at.tile + i < at.end) store(rows, m, at.tile + i, lane_.unpack(got[i]));
    }
    return true;
  }

  CCL_HD Fragment load(const Rows& rows, const Message& m, int t) const {
    if (t < m.main) {
      const Index at = Index{t} * tile_bytes;
      return rows.data.template load<fill>(lane_, at, m.bytes - at);
    }
    const Index at = Index{t - m.main} * tile_bytes;
    return rows.side.template load<Fill::any>(lane_, at, work_.side_bytes - at);
  }
  CCL_HD void store(const Rows& rows, const Message& m, int t, const Fragment& f) const {
    if (t < m.main) {
      const Index at = Index{t} * tile_bytes;
      rows.data.template store<fill>(lane_, at, m.bytes - at, f);
    } else {
      const Index at = Index{t - m.main} * tile_bytes;
      rows.side.template store<Fill::any>(lane_, at, work_.side_bytes - at, f);
    }
  }
  /// Returns the row of `send` that is the i-th of the runs.
  CCL_HD Index row(Index i) const {
    return work_.send_rows == nullptr ? i : Index{work_.send_rows[i]};
  }
  template <class P>
  CCL_HD P* side(P* of, Index i) const {
    return of == nullptr ? of : of + i * work_.side_bytes;
  }
  CCL_HD Word* counted(int owner, int writer, Word flag) const {
    return detail::mailbox<Most>(work_.peers, owner, writer)->counted + (flag & 1);
  }
  /// Returns the first rank whose count does not fit, or -1 if all fit.
  CCL_HD int wrong(const int (&rows_of)[max_ranks], int most) const {
    CCL_ROLL for (int p = 0; p < ranks_; ++p) {
      if (!fits(rows_of[p], most)) return p;
    }
    return -1;
  }
  CCL_HD bool last_part() const { return Parts<Group>::index(group_) == Parts<Group>::count - 1; }
  CCL_HD static bool fits(int rows, int most) { return unsigned(rows) <= unsigned(most); }
  /// Returns the rows of a message that this launch moves.
  CCL_HD int moved(int rows) const {
    const int left = rows - work_.first;
    return left < 0 ? 0 : left < work_.most ? left : work_.most;
  }
  CCL_HD Packet* box_of(int owner, int writer, Word flag) const {
    return work_.peers.template scratch_of<Most>(owner) +
           Index(flag & 1) * work_.peers.half_packets + writer * work_.box_packets;
  }
  CCL_HD int peer(int k) const { return rank_ + k - (rank_ + k < ranks_ ? 0 : ranks_); }

  Group group_;
  Lane lane_;
  const CountedWork& work_;
  bool first_;  // true in the first group
  int rank_, ranks_;
  int part_, parts_;  // counted over all groups
  const Word* state_;
  const Mailbox* mailbox_;  // of this rank
  int too_many_ = -1;       // first rank for which this rank has too many rows
  bool ready_ = false;      // all counts fit and all peers have room
  bool failed_ = false;
  [[no_unique_address]] cuda::std::conditional_t<Parts<Group>::shares, Nothing, Known> own_;
  SpinWait<Memory> spin_wait_;
  [[no_unique_address]] Notes notes_;
};

}  // namespace ccl::detail

CCL_ANY_SPACE_END
