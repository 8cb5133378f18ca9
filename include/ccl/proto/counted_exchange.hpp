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
template <LaneGroup Group, Protocol<Group> Proto, int Align>
class CountedExchange {
  using Memory = typename Group::Memory;
  using Lane = typename Proto::template Lane<Group, 1>;
  using Fragment = typename Lane::Fragment;
  static constexpr Fill fill = Align == 16 ? Fill::cells : Fill::any;
  static constexpr int run = 4;  // tiles that a group has in flight, where there are many
  static constexpr int most_ranks = CountedWork::most_ranks;
  static constexpr Word nothing = 0xffff'ffffu;  // in place of a count: the sender gave up
  static_assert(Proto::carries_flags, "Peers tell by flags that their tiles have landed.");

 public:
  static constexpr int tile_bytes = Lane::tile_cells * int(sizeof(Word));

  CCL_HD static constexpr bool rows_apart(Index row_bytes) {
    return row_bytes >= CountedWork::apart_bytes;
  }
  /// Tiles of a message of so many rows.
  CCL_HD static constexpr Index tiles(Index row_bytes, Index rows) {
    return rows_apart(row_bytes) ? rows * div_up<Index>(row_bytes, tile_bytes)
                                 : div_up<Index>(rows * row_bytes, tile_bytes);
  }
  /// Rows of each message of a launch, at most: what a box holds. Not a row: 0.
  static constexpr int most_rows(const PeerView& peers, Index row_bytes) {
    const Index room = box_tiles(peers);
    const Index rows = rows_apart(row_bytes) ? room / div_up<Index>(row_bytes, tile_bytes)
                                             : room * tile_bytes / row_bytes;
    return int(rows < (1 << 30) ? rows : 1 << 30);
  }
  /// On the host, before a launch.
  static void deal(CountedWork& work) {
    work.box_packets = box_tiles(work.peers) * Lane::tile_packets;
  }

  CCL_HD CountedExchange(Group group, const CountedWork& work, int channel)
      : group_{group},
        lane_{group},
        work_{work},
        channel_{channel},
        rank_{work.peers.rank},
        ranks_{work.peers.ranks},
        patience_{work.watch} {
    Memory::await_previous();
  }

  /// Before any push: reads what this rank has for the others, and tells them that it is through
  /// with the messages before.
  CCL_HD void begin() {
    const Word* const state =
        work_.state.copies + (channel_ % work_.crews) * PeerExchangeWork::state_words;
    const bool alone = ranks_ == 1;
    // One latency for all of it: no branch parts the loads.
    CCL_UNROLL for (int p = 0; p < most_ranks; ++p) {
      const int r = p < ranks_ ? p : rank_;
      sends_[p].rows = work_.send_counts[r];
      if (alone) continue;
      sends_[p].flag = Memory::load_relaxed(state + r) + 1;
      recvs_[p].flag = Memory::load_relaxed(state + most_ranks + r) + 1;
    }
    if (channel_ == 0) {
      for (int p = group_.rank(); p < ranks_; p += Group::width) {
        if (p == rank_) continue;
        Memory::store_credit(detail::mail(work_.peers, p, rank_)->begun, recvs_[p].flag);
      }
    }
    CCL_ROLL for (int p = ranks_ - 1; p >= 0; --p) {
      if (!fits(sends_[p].rows)) too_many_ = p;
    }
  }

  CCL_HD void push_all() {
    if (!await_begun()) return;
    if (channel_ == 0) tell_counts();
    if (too_many_ >= 0) {
      if (channel_ == 0 && group_.rank() == 0) {
        report(GaveUp::too_many, too_many_, unsigned(sends_[too_many_].rows), true);
      }
      return;
    }
    const Pieces pieces = deal_out(sends_);
    int next = 0;  // the group that has the first run of the message at hand
    CCL_ROLL for (int k = 0; k < ranks_; ++k) {
      const int p = peer(k);
      const typename Pieces::Message m = pieces.of(moved(sends_[p].rows));
      int r = first_run(next);
      next = int((next + m.runs) % work_.channels);
      if (r >= m.runs || (k == 0 && work_.send == work_.recv)) continue;
      const Index base = Index{p} * work_.send_stride + work_.first;
      if (k == 0) {
        const Index to = Index{p} * work_.recv_stride + work_.first;
        for (; r < m.runs; r += work_.channels) {
          const typename Pieces::Run at = pieces.run(m, r);
          const Data data{row(base + at.piece), work_.recv + (to + at.piece) * work_.row_bytes};
          CCL_ROLL for (int t = at.tile; t < at.end; ++t) {
            store(data, t, m.bytes, load(data, t, m.bytes));
          }
        }
        continue;
      }
      Packet* const box = box_of(p, rank_, sends_[p].flag);
      const Word flag = sends_[p].flag;
      for (; r < m.runs; r += work_.channels) {
        const typename Pieces::Run at = pieces.run(m, r);
        const Data data{row(base + at.piece), nullptr};
        Packet* const tile = box + (at.piece * m.tiles + at.tile) * Lane::tile_packets;
        Fragment f[run];
        CCL_UNROLL for (int i = 0; i < run; ++i) f[i] = load(data, at.tile + i, m.bytes);
        CCL_UNROLL for (int i = 0; i < run; ++i) {
          if (at.tile + i < at.end) lane_.store(tile + i * Lane::tile_packets, f[i], flag);
        }
      }
    }
  }

  CCL_HD void collect_all() {
    if (too_many_ >= 0 || gave_up_ || !await_counts()) return;
    const Pieces pieces = deal_out(recvs_);
    int next = 0;
    CCL_ROLL for (int k = 1; k < ranks_; ++k) {
      const int p = peer(k);
      const typename Pieces::Message m = pieces.of(moved(recvs_[p].rows));
      int r = first_run(next);
      next = int((next + m.runs) % work_.channels);
      const Index base = Index{p} * work_.recv_stride + work_.first;
      const Word flag = recvs_[p].flag;
      const Packet* const box = box_of(rank_, p, flag);
      for (; r < m.runs; r += work_.channels) {
        const typename Pieces::Run at = pieces.run(m, r);
        const Data data{nullptr, work_.recv + (base + at.piece) * work_.row_bytes};
        if (!take(data, m, box, at, flag, p)) return;
      }
    }
  }

 private:
  using Data = Span<cuda::std::uint8_t, Align>;
  struct Peer {
    Word flag = 0;
    int rows = 0;  // of its whole message
  };

  /// How messages are cut: into pieces, whose tiles follow each other in the box, and these into
  /// runs, which groups take in turn. A row of many tiles is a piece, else the whole message is.
  struct Pieces {
    Index row_bytes;
    int row_tiles;  // 0: rows are not apart
    int length;     // of a run
    struct Message {
      Index bytes;  // of a piece
      int tiles;
      int piece_runs;
      Index runs;
    };
    struct Run {
      Index piece;
      int tile, end;
    };
    CCL_HD Message of(int rows) const {
      Message m;
      m.bytes = row_tiles > 0 ? row_bytes : rows * row_bytes;
      m.tiles = row_tiles > 0 ? row_tiles : int(div_up<Index>(m.bytes, tile_bytes));
      m.piece_runs = div_up(m.tiles, length);
      m.runs = row_tiles > 0 ? Index{rows} * m.piece_runs : m.piece_runs;
      return m;
    }
    CCL_HD Run run(const Message& m, Index r) const {
      const int piece = int(unsigned(r) / unsigned(m.piece_runs));
      const int tile = (int(r) - piece * m.piece_runs) * length;
      return {piece, tile, tile + length < m.tiles ? tile + length : m.tiles};
    }
  };
  CCL_HD Pieces deal_out(const Peer (&peers)[most_ranks]) const {
    Index all = 0;
    CCL_ROLL for (int p = 0; p < ranks_; ++p) all += tiles(work_.row_bytes, moved(peers[p].rows));
    const bool apart = rows_apart(work_.row_bytes);
    return {work_.row_bytes, apart ? int(div_up<Index>(work_.row_bytes, tile_bytes)) : 0,
            all > Index{work_.channels} * run ? run : 1};
  }
  CCL_HD int first_run(int next) const {
    const int mine = channel_ - next;
    return mine < 0 ? mine + work_.channels : mine;
  }

  /// Until every peer has begun the message before this one: it has read what the half held.
  CCL_HD bool await_begun() {
    CCL_ROLL for (int k = 1; k < ranks_; ++k) {
      const int p = peer(k);
      const Word* const begun = detail::mail(work_.peers, rank_, p)->begun;
      const Word flag = sends_[p].flag;
      while (!group_.all(Index(Memory::load_credit(begun) + 1 - flag) >= 0)) {
        if (group_.all(patience_.ends(p, flag - 1))) {
          gave_up_ = true;
          return false;
        }
      }
    }
    return true;
  }
  CCL_HD void tell_counts() const {
    for (int p = group_.rank(); p < ranks_; p += Group::width) {
      if (p == rank_) {
        if (too_many_ < 0) work_.recv_counts[p] = sends_[p].rows;
        continue;
      }
      const Word rows = unsigned(sends_[p].rows);
      const Word told = too_many_ >= 0 && fits(sends_[p].rows) ? nothing : rows;
      Memory::store_relaxed(detail::mail(work_.peers, p, rank_)->counted + (sends_[p].flag & 1),
                            sends_[p].flag << 32 | told);
    }
  }
  /// What every peer has for this rank; false if one has too much, or patience ended.
  CCL_HD bool await_counts() {
    CCL_ROLL for (int k = 1; k < ranks_; ++k) {
      const int p = peer(k);
      const Word flag = recvs_[p].flag;
      const Word* const counted = detail::mail(work_.peers, rank_, p)->counted + (flag & 1);
      Word told;
      for (;;) {
        told = Memory::load_relaxed(counted);
        if (group_.all(told >> 32 == (flag & 0xffff'ffffu))) break;
        if (group_.all(patience_.ends(p, flag - 1))) return false;
      }
      told &= 0xffff'ffffu;
      recvs_[p].rows = int(unsigned(told));
      if (!fits(recvs_[p].rows)) {
        if (channel_ == 0 && group_.rank() == 0) {
          report(told == nothing ? GaveUp::refused : GaveUp::too_many, p, told, false);
        }
        return false;
      }
      if (channel_ == 0 && group_.rank() == 0) work_.recv_counts[p] = recvs_[p].rows;
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
  CCL_HD bool take(const Data& data, const typename Pieces::Message& m, const Packet* box,
                   const typename Pieces::Run& at, Word flag, int p) {
    const Packet* const tile = box + (at.piece * m.tiles + at.tile) * Lane::tile_packets;
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
      if (at.tile + i < at.end) store(data, at.tile + i, m.bytes, lane_.unpack(got[i]));
    }
    return true;
  }

  CCL_HD Fragment load(const Data& data, int t, Index bytes) const {
    const Index at = Index{t} * tile_bytes;
    return data.template load<fill>(lane_, at, bytes - at);
  }
  CCL_HD void store(const Data& data, int t, Index bytes, const Fragment& f) const {
    const Index at = Index{t} * tile_bytes;
    data.template store<fill>(lane_, at, bytes - at, f);
  }
  /// The i-th row of all that is sent.
  CCL_HD const char* row(Index i) const {
    if (work_.send_rows != nullptr) i = work_.send_rows[i];
    return work_.send + i * work_.row_bytes;
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
  int channel_, rank_, ranks_;
  int too_many_ = -1;  // the first rank that this one has too many rows for
  bool gave_up_ = false;
  Peer sends_[most_ranks], recvs_[most_ranks];
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
  /// All lanes of a crew: as of `PeerExchangeBody`, whose counts these are.
  CCL_HD void end(Word, int crew, int lane, int lanes) const {
    constexpr int words = PeerExchangeWork::state_words;
    CCL_ROLL for (int w = 0; w < words; ++w) {
      const int p = w % PeerExchangeWork::most_ranks;
      if (p == work.peers.rank || p >= work.peers.ranks) continue;
      Word* const counts = work.state.copies + w;
      CCL_ROLL for (int i = crew + lane * work.crews; i < work.state.count;
                    i += lanes * work.crews) {
        detail::count_one(counts + i * words);
      }
    }
  }
};

}  // namespace ccl
