#pragma once

#include <ccl/bytes.hpp>
#include <ccl/counted_work.hpp>
#include <ccl/mail.hpp>
#include <ccl/proto/exchange_body.hpp>
#include <ccl/proto/protocol.hpp>
#include <ccl/span.hpp>

namespace ccl {

/// What `OneShot` may do with messages whose sizes only the sender's memory holds. The count goes
/// ahead of the tiles, in a word of its own; tiles go where the message's size does not matter. A
/// rank with a count that its peer has no room for tells all peers so and sends nothing.
///
/// A group waits for its peers as one, since a word that every warp of a GPU polls answers slowly;
/// its parts move the tiles.
template <LaneGroup Group, class Proto, int Align>
class CountedExchange {
  using Memory = typename Group::Memory;
  using Part = typename Parts<Group>::Part;
  using Lane = typename Proto::template Lane<Part, 1>;
  using Fragment = typename Lane::Fragment;
  static constexpr Fill fill = Align == 16 ? Fill::cells : Fill::any;
  static constexpr int run = 4;  // tiles that a part has in flight, where there are many
  static constexpr int most_ranks = CountedWork::most_ranks;
  static constexpr Word nothing = 0xffff'ffffu;  // in place of a count: the sender gave up
  static_assert(Proto::carries_flags, "Peers tell by flags that their tiles have landed.");

 public:
  static constexpr int tile_bytes = Lane::tile_cells * int(sizeof(Word));

  /// On the host, before a launch and the questions below.
  static void deal(CountedWork& work) {
    work.box_packets = box_tiles(work.peers) * Lane::tile_packets;
    const bool apart = work.row_bytes >= CountedWork::apart_bytes;
    work.row_tiles = apart ? int(div_up<Index>(work.row_bytes, tile_bytes)) : 0;
    work.piece_tiles =
        work.row_tiles + (apart ? int(div_up<Index>(work.side_bytes, tile_bytes)) : 0);
    work.piece_runs = div_up(work.piece_tiles, run);
  }
  /// Tiles of a message of so many rows.
  CCL_HD static constexpr Index tiles(const CountedWork& work, Index rows) {
    return work.row_tiles > 0 ? rows * work.piece_tiles
                              : div_up<Index>(rows * work.row_bytes, tile_bytes);
  }
  /// Rows of each message of a launch, at most: what a box holds. Not a row: 0.
  static constexpr int most_rows(const CountedWork& work) {
    const Index room = box_tiles(work.peers);
    const Index rows =
        work.row_tiles > 0 ? room / work.piece_tiles : room * tile_bytes / work.row_bytes;
    return int(rows < (1 << 30) ? rows : 1 << 30);
  }

  CCL_HD CountedExchange(Group group, const CountedWork& work, int channel)
      : group_{group},
        lane_{Parts<Group>::part(group)},
        work_{work},
        first_{channel == 0},
        rank_{work.peers.rank},
        ranks_{work.peers.ranks},
        part_{Parts<Group>::index(group) * work.channels + channel},
        parts_{Parts<Group>::count * work.channels},
        state_{work.state.copies + channel % work.crews},
        patience_{work.watch} {
    Memory::await_previous();
  }

  /// Before any push: reads what this rank has for the others, and tells them that it is through
  /// with the messages before.
  CCL_HD void begin() {
    if constexpr (Parts<Group>::keeps) {
      Word* const kept = Parts<Group>::kept(group_);
      for (int p = group_.rank(); p < ranks_; p += Group::width) {
        kept[rows_out + p] = unsigned(work_.send_counts[p]);
        if (ranks_ == 1) continue;
        kept[flag_out + p] = next(p);
        kept[flag_in + p] = next(most_ranks + p);
      }
      group_.sync();
    }
    if (first_) {
      for (int p = group_.rank(); p < ranks_; p += Group::width) {
        if (p == rank_) continue;
        Memory::store_credit(detail::mail(work_.peers, p, rank_)->begun, get(flag_in, p));
      }
    }
    CCL_ROLL for (int p = ranks_ - 1; p >= 0; --p) {
      if (!fits(rows_of(rows_out, p))) too_many_ = p;
    }
  }

  CCL_HD void push_all() {
    if (!await<Event::begun>()) return;
    if (first_) tell_counts();
    if (too_many_ >= 0) {
      if (first_ && group_.rank() == 0) {
        report(GaveUp::too_many, too_many_, get(rows_out, too_many_), true);
      }
      return;
    }
    const int length = run_length(rows_out);
    int begin = 0, g = part_;  // of all runs: the message's first, this part's next
    CCL_ROLL for (int k = 0; k < ranks_; ++k) {
      const int p = peer(k);
      const Message m = cut(moved(rows_of(rows_out, p)), length);
      if (g < begin + m.runs) {
        const Index base = Index{p} * work_.send_stride + work_.first;
        const Index own = k == 0 ? Index{p} * work_.recv_stride + work_.first : 0;
        const Word flag = k == 0 ? 0 : get(flag_out, p);
        Packet* const box = box_of(p, rank_, flag);
        for (; g < begin + m.runs; g += parts_) {
          const Run at = run_of(m, g - begin, length);
          const Rows rows{
              {row(base + at.piece), work_.recv + (own + at.piece) * work_.row_bytes},
              {side(work_.send_side, base + at.piece), side(work_.recv_side, own + at.piece)}};
          Fragment f[run];
          CCL_UNROLL for (int i = 0; i < run; ++i) f[i] = load(rows, m, at.tile + i);
          Packet* const tile = box + (Index{at.piece} * m.tiles + at.tile) * Lane::tile_packets;
          CCL_UNROLL for (int i = 0; i < run; ++i) {
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

  CCL_HD void collect_all() {
    if (too_many_ >= 0 || gave_up_ || !await_counts()) return;
    const int length = run_length(rows_in);
    int begin = 0, g = part_;
    CCL_ROLL for (int k = 1; k < ranks_; ++k) {
      const int p = peer(k);
      const Message m = cut(moved(rows_of(rows_in, p)), length);
      if (g < begin + m.runs) {
        const Index base = Index{p} * work_.recv_stride + work_.first;
        const Word flag = get(flag_in, p);
        const Packet* const box = box_of(rank_, p, flag);
        for (; g < begin + m.runs; g += parts_) {
          const Run at = run_of(m, g - begin, length);
          const Rows rows{{nullptr, work_.recv + (base + at.piece) * work_.row_bytes},
                          {nullptr, side(work_.recv_side, base + at.piece)}};
          if (!take(rows, m, box, at, flag, p)) return;
        }
      }
      begin += m.runs;
    }
  }

 private:
  using Data = Span<cuda::std::uint8_t, Align>;
  using Side = Span<cuda::std::uint8_t, 1>;
  /// What there is of each peer: the first of its words in `kept`.
  enum What : int {
    rows_out = 0,
    flag_out = most_ranks,
    flag_in = 2 * most_ranks,
    rows_in = 3 * most_ranks
  };
  /// Messages are cut into pieces, whose tiles follow each other in the box, and these into runs,
  /// which parts take in turn. A row that is apart is a piece, else the whole message is.
  struct Message {
    Index bytes;  // of a piece, without its side
    int tiles;    // of a piece
    int main;     // of these, before its side's
    int piece_runs;
    int runs;
  };
  struct Run {
    int piece, tile, end;
  };
  struct Rows {
    Data data;
    Side side;
  };

  /// The message that a word of the state counts next.
  CCL_HD Word next(int word) const {
    return Memory::load_relaxed(state_ + word * work_.state.count) + 1;
  }
  /// One block of a GPU asks memory once for all its warps: what each warp asks for itself, on all
  /// multiprocessors, took longer than small messages.
  CCL_HD Word get(What what, int p) const {
    if constexpr (Parts<Group>::keeps) {
      return Parts<Group>::kept(group_)[what + p];
    } else {
      switch (what) {
        case rows_out:
          return unsigned(work_.send_counts[p]);
        case flag_out:
          return next(p);
        case flag_in:
          return next(most_ranks + p);
        default:
          return Memory::load_relaxed(counted(rank_, p, get(flag_in, p))) & 0xffff'ffffu;
      }
    }
  }
  CCL_HD int rows_of(What what, int p) const { return int(unsigned(get(what, p))); }

  CCL_HD Message cut(int rows, int length) const {
    Message m;
    if (work_.row_tiles > 0) {
      m.bytes = work_.row_bytes;
      m.main = work_.row_tiles;
      m.tiles = work_.piece_tiles;
      m.piece_runs = length == 1 ? m.tiles : work_.piece_runs;
      m.runs = rows * m.piece_runs;
    } else {
      m.bytes = rows * work_.row_bytes;
      m.main = m.tiles = int(div_up<Index>(m.bytes, tile_bytes));
      m.runs = m.piece_runs = length == 1 ? m.tiles : div_up(m.tiles, run);
    }
    return m;
  }
  CCL_HD static Run run_of(const Message& m, int r, int length) {
    const int piece = m.runs == m.piece_runs ? 0 : int(unsigned(r) / unsigned(m.piece_runs));
    const int tile = (r - piece * m.piece_runs) * length;
    return {piece, tile, tile + length < m.tiles ? tile + length : m.tiles};
  }
  CCL_HD int run_length(What what) const {
    Index rows = 0;
    CCL_ROLL for (int p = 0; p < ranks_; ++p) {
      if (what == rows_out || p != rank_) rows += moved(rows_of(what, p));
    }
    return tiles(work_, rows) > Index{parts_} * run ? run : 1;
  }

  enum class Event {
    begun,   // a peer has begun the message before: it has read what the half held
    counted  // it has told how many rows it has
  };
  /// By a lane that asks for one peer, or for some.
  template <Event What>
  CCL_HD bool there(int p) const {
    if constexpr (What == Event::begun) {
      const Word* const at = detail::mail(work_.peers, rank_, p)->begun;
      return Index(Memory::load_credit(at) + 1 - get(flag_out, p)) >= 0;
    } else {
      const Word flag = get(flag_in, p);
      const Word told = Memory::load_relaxed(counted(rank_, p, flag));
      if constexpr (Parts<Group>::keeps) {
        Parts<Group>::kept(group_)[rows_in + p] = told & 0xffff'ffffu;
      }
      return told >> 32 == (flag & 0xffff'ffffu);
    }
  }
  /// All lanes: until it is so of every peer; false if patience ended first.
  template <Event What>
  CCL_HD bool await() {
    for (;;) {
      int late = -1;
      for (int p = group_.rank(); p < ranks_; p += Group::width) {
        if (p != rank_ && !there<What>(p)) late = p;
      }
      if (group_.all(late < 0)) return true;
      if (group_.all(patience_.ends(late, late < 0 ? 0 : get(flag_out, late) - 1))) break;
    }
    gave_up_ = true;
    return false;
  }
  CCL_HD void tell_counts() const {
    for (int p = group_.rank(); p < ranks_; p += Group::width) {
      const Word rows = get(rows_out, p);
      if (p == rank_) {
        if (too_many_ < 0) work_.recv_counts[p] = int(unsigned(rows));
        continue;
      }
      const Word told = too_many_ >= 0 && fits(int(unsigned(rows))) ? nothing : rows;
      const Word flag = get(flag_out, p);
      Memory::store_relaxed(counted(p, rank_, flag), flag << 32 | told);
    }
  }
  /// What every peer has for this rank; false if one has too much, or patience ended.
  CCL_HD bool await_counts() {
    if (!await<Event::counted>()) return false;
    CCL_ROLL for (int p = 0; p < ranks_; ++p) {
      if (p == rank_) continue;
      const int rows = rows_of(rows_in, p);
      const bool tells = first_ && group_.rank() == 0;
      if (!fits(rows)) {
        const Word told = unsigned(rows);
        if (tells) report(told == nothing ? GaveUp::refused : GaveUp::too_many, p, told, false);
        return false;
      }
      if (tells) work_.recv_counts[p] = rows;
    }
    return true;
  }
  CCL_HD void report(GaveUp::Why why, int p, Word count, bool sends) const {
    GaveUp* const gave_up = work_.watch.gave_up;
    if (Memory::load_relaxed(&gave_up->peer) != 0) return;
    Memory::store_relaxed(&gave_up->why, Word(why));
    Memory::store_relaxed(&gave_up->count, count);
    Memory::store_relaxed(&gave_up->stride, Word(work_.stride()));
    Memory::store_relaxed(&gave_up->sends, Word(sends));
    Memory::store_release(&gave_up->peer, Word(p + 1));
  }

  /// A run's tiles: all are looked at until all are here.
  CCL_HD bool take(const Rows& rows, const Message& m, const Packet* box, const Run& at, Word flag,
                   int p) {
    const Packet* const tile = box + (Index{at.piece} * m.tiles + at.tile) * Lane::tile_packets;
    typename Lane::Arrival got[run];
    for (;;) {
      // Behind the run's end its last tile again: a branch among the loads would part them.
      CCL_UNROLL for (int i = 0; i < run; ++i) {
        const int t = at.tile + i < at.end ? i : at.end - 1 - at.tile;
        got[i] = lane_.load(tile + t * Lane::tile_packets);
      }
      bool here = true;
      CCL_UNROLL for (int i = 0; i < run; ++i) here = here & lane_.here(got[i], flag);
      if (lane_.agree(here)) break;
      if (lane_.agree(patience_.ends(p, flag - 1))) return false;
    }
    CCL_UNROLL for (int i = 0; i < run; ++i) {
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
  /// The i-th row of all that is sent.
  CCL_HD const char* row(Index i) const {
    if (work_.send_rows != nullptr) i = work_.send_rows[i];
    return work_.send + i * work_.row_bytes;
  }
  template <class P>
  CCL_HD P* side(P* of, Index i) const {
    return of == nullptr ? of : of + i * work_.side_bytes;
  }
  CCL_HD Word* counted(int owner, int writer, Word flag) const {
    return detail::mail(work_.peers, owner, writer)->counted + (flag & 1);
  }
  CCL_HD bool fits(int rows) const { return rows >= 0 && rows <= work_.stride(); }
  /// Of a message, by this launch.
  CCL_HD int moved(int rows) const {
    const int left = rows - work_.first;
    return left < 0 ? 0 : left < work_.most ? left : work_.most;
  }
  static constexpr Index box_tiles(const PeerView& peers) {
    return peers.half_packets / peers.ranks / Lane::tile_packets;
  }
  CCL_HD Packet* box_of(int owner, int writer, Word flag) const {
    return work_.peers.scratch[owner] + Index(flag & 1) * work_.peers.half_packets +
           writer * work_.box_packets;
  }
  CCL_HD int peer(int k) const { return rank_ + k - (rank_ + k < ranks_ ? 0 : ranks_); }

  Group group_;
  Lane lane_;
  const CountedWork& work_;
  bool first_;  // of the groups
  int rank_, ranks_;
  int part_, parts_;  // of all groups
  const Word* state_;
  int too_many_ = -1;  // the first rank that this one has too many rows for
  bool gave_up_ = false;
  Patience<Memory> patience_;
};

/// One launch of it, as an executor runs it.
template <class Algo, class Proto, int Align>
struct CountedBody {
  using Work = CountedWork;
  static constexpr int max_lanes = 512;
  const Work& work;

  template <LaneGroup Group>
  CCL_HD Word operator()(Group group, int channel) const {
    CountedExchange<Group, Proto, Align> exchange{group, work, channel};
    Algo::run(exchange);
    return 0;
  }
  /// The counts are those of `PeerExchangeBody`.
  CCL_HD void end(Word, int crew, int lane, int lanes) const {
    const unsigned peers = ((1u << work.peers.ranks) - 1) & ~(1u << work.peers.rank);
    detail::count_messages(work, peers | peers << CountedWork::most_ranks, crew, lane, lanes);
  }
};

}  // namespace ccl
