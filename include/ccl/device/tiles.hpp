#pragma once

#include <ccl/detail/lanes/collect.hpp>
#include <ccl/detail/numeric/reduction.hpp>
#include <ccl/detail/numeric/user_buffer.hpp>
#include <ccl/device/session.hpp>
#include <ccl/proto/ll.hpp>
#include <ccl/proto/ll128.hpp>
#include <ccl/proto/ll128_pairs.hpp>
#include <ccl/types/macros.hpp>

CCL_ANY_SPACE_BEGIN

namespace ccl {

/// Rows and columns of a tile, whose elements are adjacent in memory.
template <int Rows, int Columns>
struct TileShape {
  static_assert(Rows > 0 && Columns > 0, "ccl: a tile has at least one row and one column");
  static constexpr int rows = Rows, columns = Columns, elements = Rows * Columns;
};

namespace detail {
template <class Shape>
concept StatesTileElements = requires {
  { Shape::elements } -> cuda::std::convertible_to<int>;
};
template <class Proto>
concept TilePackets = cuda::std::is_same_v<Proto, LL> || cuda::std::is_same_v<Proto, LL128> ||
                      cuda::std::is_same_v<Proto, LL128Pairs>;
/// True if a part of the group can hold pairs of cells of `T`. It can hold any single cells.
template <class Proto, class Part, class T>
constexpr bool fits_tiles() {
  if constexpr (cuda::std::is_same_v<Proto, LL128Pairs>) {
    return Element<T>::packed && LL128Pairs::fit<Part, Element<T>::words_per_cell>;
  }
  return true;
}
}  // namespace detail

/// Collectives of tiles that a block has in its shared or global memory. A tile travels as packets
/// that carry their own flags, so a transfer is one hop without a fence or a barrier.
///
/// A tile collective has a slot of the packets, which a launch uses once. The slots of all blocks
/// are different, and equal on all ranks for the same collective. Two `Tiles` of one protocol in a
/// launch use different bytes of the packets. `LL128Pairs` uses those of `LL128`; it is faster for
/// tiles of several KiB, and takes groups of 8 lanes or more and elements of 1, 2, 4 or 8 bytes.
///
/// A tile is `Shape::elements` elements of `T`, at a multiple of 16 bytes. Results are equal bit by
/// bit on all ranks, because every rank reduces in the order of ranks.
///
/// Calls return false if the session has failed; the results are then undefined.
///
/// `MaxRanks`: ranks of the team, at most. Up to 8, a lane holds the tiles of all ranks in
/// registers. With more, it receives 8 at a time.
template <class Group, class T, class Shape, class Proto = LL128, int MaxRanks = max_unrolled_ranks,
          class TeamType = Team>
class Tiles {
  static_assert(LaneGroup<Group>,
                "ccl: the group of Tiles must be that of its session, a LaneGroup");
  static_assert(cuda::std::is_trivially_copyable_v<T>,
                "ccl: the elements of a tile must be trivially copyable (they travel as bytes)");
  static_assert(detail::StatesTileElements<Shape>,
                "ccl: the shape of a tile is a TileShape<Rows, Columns>");
  static_assert(detail::TilePackets<Proto>,
                "ccl: tiles travel as packets that carry flags; the protocol is LL, LL128 or "
                "LL128Pairs");
  static_assert(MaxRanks >= 2 && MaxRanks <= Team::max_ranks,
                "ccl: Tiles are compiled for at most 2 to 72 ranks");
  using Memory = typename Group::Memory;
  using Part = typename Parts<Group>::Part;
  static_assert(
      detail::fits_tiles<Proto, Part, T>(),
      "ccl: LL128Pairs wants a group of 8 lanes or more, and elements of 1, 2, 4 or 8 bytes");
  using Lane = typename Proto::template Lane<Part, Element<T>::words_per_cell>;
  using Fragment = typename Lane::Fragment;

 public:
  using Session = TeamSession<Group, TeamType>;
  static constexpr int elements = Shape::elements;

  /// Returns the bytes of packets for `slots` slots, for `DeviceRequirements`.
  CCL_HD static constexpr Index bytes(Index slots, int ranks) {
    return 2 * slots * slot_packets(ranks) * Index{sizeof(Packet)};
  }

  /// `session` must outlive it. `skip_bytes`: bytes of the packets that other `Tiles` of this
  /// protocol use, the sum of their `bytes`.
  template <class GivenSession>
    requires(!cuda::std::is_same_v<GivenSession, Tiles>)
  CCL_HD explicit Tiles(GivenSession& session, Index skip_bytes = 0)
      : session_{session_of(session)}, part_{Parts<Group>::part(session.group_)}, lane_{part_} {
    const detail::TeamData& team = session_.team_;
    const detail::TeamPackets& packets =
        cuda::std::is_same_v<Proto, LL> ? team.layout.ll : team.layout.ll128;
    const Index skip = div_up<Index>(skip_bytes, 2 * detail::TeamLayout::line_bytes) *
                       detail::TeamLayout::line_bytes;
    first_ = packets.offset + Index(session_.epoch_ & 1) * packets.half_bytes + skip;
    slots_ = (packets.half_bytes - skip) / (slot_packets(team.ranks) * Index{sizeof(Packet)});
    if (team.ranks > MaxRanks) {
      session_.misuse(detail::LaneFailure::few_ranks, team.rank, Word(team.ranks), Word(MaxRanks));
    }
  }
  /// Returns the number of slots.
  CCL_HD Index slots() const { return slots_; }

  /// Replaces the tile by the reduction of the tiles of all ranks. Sends the tile to every rank.
  template <class U, class Op = Sum>
  CCL_HD bool all_reduce(Index slot, U* tile, Op op = {}) {
    check_tile<U>();
    if (!begin(slot, tile, tile)) return false;
    const auto reduction = reduction_of(op);
    for (int i = first_piece(); i < pieces; i += step) {
      const Fragment own = prepare(reduction, load(tile, i, elements));
      for (int k = 1; k < ranks(); ++k) send(peer(k), slot, rank(), i, own);
    }
    for (int i = first_piece(); i < pieces; i += step) {
      const Fragment own = prepare(reduction, load(tile, i, elements));
      store(tile, i, elements, reduce_piece(reduction, slot, i, own));
    }
    return end();
  }

  /// Reduces the tiles of all ranks into the tile of rank `root`. The other ranks do not wait.
  template <class U, class Op = Sum>
  CCL_HD bool reduce(int root, Index slot, U* tile, Op op = {}) {
    check_tile<U>();
    if (!session_.is_peer(root) || !begin(slot, tile, tile)) return false;
    const auto reduction = reduction_of(op);
    for (int i = first_piece(); i < pieces; i += step) {
      const Fragment own = prepare(reduction, load(tile, i, elements));
      if (root == rank()) {
        store(tile, i, elements, reduce_piece(reduction, slot, i, own));
      } else {
        send(root, slot, rank(), i, own);
      }
    }
    return end();
  }

  /// Returns the elements of every share of a tile but the last ones, a multiple of 16 bytes.
  CCL_HD static constexpr int share_elements(int ranks) {
    const int grain = share_grain;
    return div_up(div_up(elements, ranks), grain) * grain;
  }
  /// Returns the elements of the share of a rank; 0 if the tile has fewer shares.
  CCL_HD static constexpr int share_count(int rank, int ranks) {
    const int left = elements - rank * share_elements(ranks);
    return left < 0 ? 0 : left < share_elements(ranks) ? left : share_elements(ranks);
  }
  /// Reduces the tiles of all ranks and stores this rank's share at `share`, a multiple of 16
  /// bytes. Rank r has the elements from r * share_elements(ranks) on. `share` may be in the tile
  /// only at its own place.
  template <class U, class Op = Sum>
  CCL_HD bool reduce_scatter(Index slot, const U* tile, U* share, Op op = {}) {
    check_tile<U>();
    if (!begin(slot, tile, share)) return false;
    const auto reduction = reduction_of(op);
    const int each = share_elements(ranks());
    for (int k = 1; k < ranks(); ++k) {
      const T* const theirs = tile + peer(k) * each;
      const int count = share_count(peer(k), ranks());
      for (int i = first_piece(); i * piece_elements < count; i += step) {
        send(peer(k), slot, rank(), i, prepare(reduction, load(theirs, i, count)));
      }
    }
    const T* const mine = tile + rank() * each;
    const int count = share_count(rank(), ranks());
    for (int i = first_piece(); i * piece_elements < count; i += step) {
      const Fragment own = prepare(reduction, load(mine, i, count));
      store(share, i, count, reduce_piece(reduction, slot, i, own));
    }
    return end();
  }

  /// Stores the tiles of all ranks at `all`, in the order of ranks. `mine` may be in `all` only at
  /// its own place. A tile that is not a multiple of 16 bytes makes the copies slower.
  template <class U>
  CCL_HD bool all_gather(Index slot, const U* mine, U* all) {
    check_tile<U>();
    if (!begin(slot, mine, all)) return false;
    for (int i = first_piece(); i < pieces; i += step) {
      const Fragment own = load(mine, i, elements);
      for (int k = 1; k < ranks(); ++k) send(peer(k), slot, rank(), i, own);
      store(all + Index{rank()} * elements, i, elements, own);
    }
    for (int k = 1; k < ranks(); ++k) {
      const int p = peer(k);
      for (int i = first_piece(); i < pieces; i += step) {
        store(all + Index{p} * elements, i, elements, receive(slot, p, i));
      }
    }
    return end();
  }

  /// Sends the tile to another rank, which receives it from the same slot. Does not wait.
  template <class U>
  CCL_HD bool send(int peer, Index slot, const U* tile) {
    check_tile<U>();
    if (!is_other(peer) || !begin(slot, tile, tile)) return false;
    for (int i = first_piece(); i < pieces; i += step) {
      send(peer, slot, rank(), i, load(tile, i, elements));
    }
    return end();
  }
  /// Blocks until another rank has sent its tile by this slot.
  template <class U>
  CCL_HD bool recv(int peer, Index slot, U* tile) {
    check_tile<U>();
    if (!is_other(peer) || !begin(slot, tile, tile)) return false;
    for (int i = first_piece(); i < pieces; i += step) {
      store(tile, i, elements, receive(slot, peer, i));
    }
    return end();
  }

 private:
  static constexpr int piece_elements = Lane::tile_cells * Element<T>::per_cell;
  static constexpr int pieces = div_up(elements, piece_elements);
  static constexpr int step = Parts<Group>::count;
  static constexpr int fewest = 2;
  // Elements of a multiple of 16 bytes.
  static constexpr int share_grain = [] {
    const int power = int(sizeof(T) & -sizeof(T));
    return power < 16 ? 16 / power : 1;
  }();
  // Every tile begins at such a multiple in memory, also behind another one.
  static constexpr int align = elements * Index{sizeof(T)} % 16 == 0 ? 16 : int(alignof(T));
  static constexpr detail::Fill fill = align == 16 ? detail::Fill::cells : detail::Fill::any;
  static constexpr bool wide = MaxRanks > max_unrolled_ranks;
  static constexpr int batch = wide ? max_unrolled_ranks : MaxRanks;
  using All = detail::Fragments<Fragment, batch>;

  template <class GivenSession>
  CCL_HD static Session& session_of(GivenSession& session) {
    static_assert(cuda::std::is_same_v<GivenSession, Session>,
                  "ccl: Tiles take the TeamSession of their own group and kind of team");
    return session;
  }
  template <class U>
  CCL_HD static constexpr void check_tile() {
    static_assert(!cuda::std::is_const_v<U>,
                  "ccl: the result of a tile collective is stored in the tile, which is const");
    static_assert(cuda::std::is_same_v<cuda::std::remove_const_t<U>, T>,
                  "ccl: the tile has elements of another type than its Tiles");
  }
  CCL_HD static constexpr Index slot_packets(int ranks) {
    return Index{ranks} * pieces * Lane::tile_packets;
  }
  template <class Op>
  CCL_HD detail::Reduction<Op, T> reduction_of(const Op& op) const {
    detail::Reduction<Op, T> reduction{op, ranks()};
    reduction.load_here();
    return reduction;
  }

  CCL_HD int rank() const { return session_.team_.rank; }
  CCL_HD int ranks() const { return session_.team_.ranks; }
  CCL_HD int peer(int k) const { return rank() + k < ranks() ? rank() + k : rank() + k - ranks(); }
  CCL_HD int first_piece() const { return Parts<Group>::index(session_.group_); }
  CCL_HD bool is_other(int peer) {
    if (!session_.is_peer(peer)) return false;
    if (peer != rank()) return true;
    session_.misuse(detail::LaneFailure::no_rank, rank(), Word(peer), Word(ranks()));
    return false;
  }

  /// Begins a collective. The tile is then visible to all lanes, and the packets may be written.
  CCL_HD bool begin(Index slot, const void* tile, const void* result) {
    if (session_.failed()) return false;
    if (slot < 0 || slot >= slots_) {
      session_.misuse(detail::LaneFailure::no_slot, rank(), Word(slot), Word(slots_));
      return false;
    }
    const Word bits = reinterpret_cast<cuda::std::uintptr_t>(tile) |
                      reinterpret_cast<cuda::std::uintptr_t>(result);
    if (bits % sizeof(Packet) != 0) {
      session_.misuse(detail::LaneFailure::misaligned, rank(), bits % sizeof(Packet),
                      sizeof(Packet));
      return false;
    }
    if (!session_.begin_packets()) return false;
    session_.group_.sync();  // every lane's part of the tile
    return true;
  }
  /// Ends a collective. All lanes then see the result.
  CCL_HD bool end() { return session_.agree(!session_.spin_wait_.failed() && !far_failed_); }

  CCL_HD Packet* packets(int owner, Index slot, int writer, int piece) const {
    const Index at = (slot * ranks() + writer) * pieces + piece;
    return reinterpret_cast<Packet*>(session_.team_.scratch[owner] + first_) +
           at * Lane::tile_packets;
  }
  CCL_HD Fragment load(const T* tile, int piece, int count) const {
    const detail::UserBuffer<T, align> data{tile, nullptr};
    return data.template load<fill>(lane_, Index{piece} * piece_elements,
                                    count - piece * piece_elements);
  }
  CCL_HD void store(T* tile, int piece, int count, const Fragment& f) const {
    const detail::UserBuffer<T, align> data{nullptr, tile};
    data.template store<fill>(lane_, Index{piece} * piece_elements, count - piece * piece_elements,
                              f);
  }
  /// Stores a piece at a peer. After a failed wait of this part it carries the flag of the previous
  /// launch, whose packets are in the other half.
  CCL_HD void send(int owner, Index slot, int writer, int piece, const Fragment& f) {
    const Word flag = session_.epoch_ - Word{session_.spin_wait_.failed()};
    if (session_.is_far(owner)) return send_far(owner, slot, writer, piece, f, flag);
    lane_.store(packets(owner, slot, writer, piece), f, flag);
  }
  /// Stores a piece in the queue to a far rank, whose proxy moves it to its place.
  CCL_HD void send_far(int owner, Index slot, int writer, int piece, const Fragment& f, Word flag) {
    constexpr Index bytes = Lane::tile_packets * Index{sizeof(Packet)};
    static_assert(bytes <= detail::FarQueue::payload_bytes);
    if (far_failed_) return;
    const detail::TeamData& team = session_.team_;
    Word* const turn = team.turn(session_.block_, first_piece());
    detail::FarHeader* const at = detail::take_turn(
        part_, team.queue, team.word(rank(), team.layout.taken, 0), turn, owner, team.watch);
    far_failed_ = at == nullptr;
    if (far_failed_) return;
    lane_.store(reinterpret_cast<Packet*>(detail::FarQueue::payload(at)), f, flag);
    const auto* const place = reinterpret_cast<const char*>(packets(rank(), slot, writer, piece));
    detail::give_turn(part_, at, turn,
                      {0, Word(owner), detail::FarHeader::to_scratch,
                       Word(place - team.scratch[rank()]), Word(bytes), 0});
  }
  CCL_HD Fragment receive(Index slot, int writer, int piece) {
    return detail::collect<1>(lane_, packets(rank(), slot, writer, piece), session_.epoch_, writer,
                              session_.spin_wait_)
        .of[0];
  }
  template <class R>
  CCL_HD static Fragment prepare(const R& reduction, const Fragment& f) {
    if constexpr (R::prepares) {
      return detail::CellReducer<R, Lane::words>::from_own(reduction, f).result();
    } else {
      return f;
    }
  }
  /// Waits for the piece of all other ranks, and reduces in the order of ranks.
  template <class R>
  CCL_HD Fragment reduce_piece(const R& reduction, Index slot, int piece, const Fragment& own) {
    const int some = wide && ranks() > batch ? batch : ranks();
    const All first = collect_from(0, some, slot, piece);
    auto sum =
        detail::CellReducer<R, Lane::words>::from_received(reduction, pick(0, 0, first, own));
    CCL_UNROLL for (int r = 1; r < batch; ++r) {
      if (r < some) sum.add_received(pick(0, r, first, own));
    }
    if constexpr (wide) {
      CCL_ROLL for (int from = batch; from < ranks(); from += batch) {
        const int count = ranks() - from < batch ? ranks() - from : batch;
        const All all = collect_from(from, count, slot, piece);
        CCL_UNROLL for (int r = 0; r < batch; ++r) {
          if (r < count) sum.add_received(pick(from, r, all, own));
        }
      }
    }
    return sum.finish();
  }
  /// Waits for the piece of `count` ranks from `from` on, without this one.
  CCL_HD All collect_from(int from, int count, Index slot, int piece) {
    const Index stride = Index{pieces} * Lane::tile_packets;
    if constexpr (wide) {
      const int skip = rank() >= from && rank() < from + count ? rank() - from : -1;
      if (count == 1 && skip == 0) return {};
      return detail::collect_batch<batch>(lane_, packets(rank(), slot, from, piece), stride,
                                          session_.epoch_, skip, count, session_.spin_wait_, from);
    } else {
      All all{};
      if (count > 1) {
        all = detail::collect_peers<MaxRanks, fewest>(lane_, packets(rank(), slot, 0, piece),
                                                      stride, session_.epoch_, rank(), count,
                                                      session_.spin_wait_);
      }
      return all;
    }
  }
  CCL_HD Fragment pick(int from, int r, const All& all, const Fragment& own) const {
    Fragment f;
    CCL_UNROLL for (int w = 0; w < Lane::words; ++w) {
      f.word[w] = from + r == rank() ? own.word[w] : all.of[r].word[w];
    }
    return f;
  }

  Session& session_;
  Part part_;
  Lane lane_;
  Index first_ = 0;  // bytes of the scratch before slot 0 of this launch
  Index slots_ = 0;
  bool far_failed_ = false;  // a turn of the queue to far ranks did not come
};

}  // namespace ccl

CCL_ANY_SPACE_END
