#pragma once

#include <ccl/proto/collect.hpp>
#include <ccl/row_work.hpp>

namespace ccl {
namespace detail {
/// A prologue may also map each value before it travels.
template <class P>
concept MapsValues = requires(const P prologue, float value, Index row, int column) {
  { prologue(value, row, column) } -> cuda::std::same_as<float>;
};
}  // namespace detail

/// What an algorithm may do with the rows of a matrix that all ranks have a summand of: push a row,
/// or slices of it, to peers; reduce what came; finish a row that is complete. A row is cut into
/// tiles, one group's each; a lane has `Tiles` of them at most. Boxes and halves of the scratch as
/// in `PeerPrims`; every rank waits for every other in each launch.
template <ReducingLanes Group, Protocol<Group> Proto, class P, class E, int Slices, int Ranks,
          int Tiles>
class RowPrims {
 public:
  using Memory = typename Group::Memory;
  using Lane = typename Proto::template Lane<Group, 1>;
  using Fragment = typename Lane::Fragment;
  using T = typename P::Element;
  using Wire = typename P::Wire;
  static_assert(Proto::carries_flags, "Peers tell by flags that their tiles have landed.");

  static constexpr int per_cell = Wire::per_cell;
  static constexpr int data_cells = Wire::data_cells(Lane::tile_cells);
  static constexpr int tile_elements = data_cells * per_cell;
  using Row = RowPart<Group, Lane, per_cell, data_cells, Tiles>;

  /// first, first + step, ...: the rows of one crew.
  struct Stripe {
    int first, last, step;
  };
  /// A lane's part of a row of the input.
  struct Own {
    RowRun<T, per_cell> run[Row::pieces];
  };

  CCL_HD static constexpr int tiles_of(int length) { return div_up(length, tile_elements); }
  CCL_HD static constexpr int slice_of(int tiles) { return div_up(tiles, Slices); }
  /// Packets of scratch, in each half, that one row takes.
  static constexpr Index row_packets(int length) {
    const int tiles = tiles_of(length);
    return (Index{Ranks} * slice_of(tiles) + (Slices > 1 ? tiles : 0)) * Lane::tile_packets;
  }

  CCL_HD RowPrims(Group group, const RowWork<P, E>& work, int channel)
      : group_{group},
        work_{work},
        lane_{group},
        rank_{work.peers.rank},
        crew_{channel % work.crews},
        warp_{channel / work.crews},
        warps_{work.channels / work.crews},
        tiles_{tiles_of(work.length)},
        slice_{slice_of(tiles_)},
        patience_{work.watch} {
    Memory::await_previous();
  }

  /// Before any push or collect. What is loaded before this is on its way together with the epoch.
  CCL_HD void begin() {
    if constexpr (Ranks > 1) flag_ = Memory::load_relaxed(work_.epoch.copies + crew_) + 1;
    const Index half = Index(flag_ & 1) * work_.peers.half_packets;
    CCL_UNROLL for (int k = 0; k < Ranks; ++k) base_[k] = work_.peers.scratch[peer(k)] + half;
  }
  CCL_HD Stripe rows() const { return {crew_, work_.rows, work_.crews}; }
  CCL_HD Word flag() const { return flag_; }

  /// Nothing of rows past the last.
  CCL_HD Own load(int row) const {
    Own own;
    CCL_UNROLL for (int k = 0; k < Tiles; ++k) {
      if (row < work_.rows && tile(k) < tiles_) load_tile(row, tile(k), own.run + k * Lane::cells);
    }
    return own;
  }
  /// The row to every peer.
  CCL_HD void push_row(int box, int row, const Own& own) const {
    CCL_UNROLL for (int k = 0; Ranks > 1 && k < Tiles; ++k) {
      const int t = tile(k);
      if (t >= tiles_) break;
      const Fragment f = prepare(row, t, own.run + k * Lane::cells);
      CCL_UNROLL for (int p = 1; p < Ranks; ++p) {
        lane_.store(base_[p] + slot(box, rank_, row, t), f, flag_);
      }
    }
  }
  /// To each peer its slice.
  CCL_HD void scatter_row(int box, int row, const Own& own) const {
    CCL_UNROLL for (int k = 0; k < Tiles; ++k) {
      const int t = tile(k);
      if (t >= tiles_) break;
      const int owner = t / slice_;
      if (owner == rank_) continue;
      const Fragment f = prepare(row, t, own.run + k * Lane::cells);
      Packet* const half = work_.peers.scratch[owner] + (base_[0] - work_.peers.scratch[rank_]);
      lane_.store(half + slot(box, rank_, row, t % slice_), f, flag_);
    }
  }
  /// My slice of all rows of the crew, from one box into another of every rank, mine too.
  CCL_HD void reduce_slices(int from, int to) {
    const int begin = rank_ * slice_;
    const int width = tiles_ - begin < slice_ ? tiles_ - begin : slice_;
    if (width <= 0) return;
    const int first_row = crew_;
    const int rows = first_row < work_.rows ? div_up(work_.rows - first_row, work_.crews) : 0;
    // One slice after another, so that all groups of the crew are busy.
    for (int i = warp_; i < rows * width; i += warps_) {
      const int row = first_row + i / width * work_.crews;
      const int t = begin + i % width;
      float sum[values];
      reduce(from, row, t, t - begin, sum);
      const Fragment f = Wire::pack(group_, lane_, sum);
      CCL_UNROLL for (int p = 0; p < Ranks; ++p) {
        lane_.store(base_[p] + slot(to, 0, row, t), f, flag_);
      }
    }
  }
  /// A row of which everybody has pushed their summand.
  CCL_HD void finish_reduced(int box, int row) { finish<Summands>(box, row); }
  /// A row of which the sums have been pushed, mine too.
  CCL_HD void finish_collected(int box, int row) { finish<Sums>(box, row); }

 private:
  static constexpr int values = Lane::cells * per_cell;

  CCL_HD int peer(int k) const {
    if constexpr ((Ranks & (Ranks - 1)) == 0) return (rank_ + k) & (Ranks - 1);
    return rank_ + k - (rank_ + k < Ranks ? 0 : Ranks);
  }
  CCL_HD int tile(int k) const { return warp_ + k * warps_; }
  /// Box 0 has a row of slots for each writer; in box 1 whoever has the slice writes.
  CCL_HD Index slot(int box, int writer, int row, int t) const {
    const Index first = Index{box} * Ranks * work_.rows * slice_;
    const int width = box == 0 ? slice_ : tiles_;
    return (first + (Index{writer} * work_.rows + row) * width + t) * Lane::tile_packets;
  }
  CCL_HD void load_tile(int row, int t, RowRun<T, per_cell>* run) const {
    CCL_UNROLL for (int c = 0; c < Lane::cells; ++c) {
      const int column = (t * data_cells + lane_.cell(c)) * per_cell;
      run[c] = {};
      if (!lane_.has(c) || lane_.cell(c) >= data_cells || column >= work_.length) continue;
      run[c] = RowRun<T, per_cell>::load(work_.input + Index{row} * work_.length + column);
    }
  }
  /// As it travels.
  CCL_HD Fragment prepare(int row, int t, const RowRun<T, per_cell>* run) const {
    float value[values];
    CCL_UNROLL for (int c = 0; c < Lane::cells; ++c) {
      run[c].unpack(value + c * per_cell);
      if constexpr (detail::MapsValues<P>) {
        const int column = (t * data_cells + lane_.cell(c)) * per_cell;
        if (!lane_.has(c) || lane_.cell(c) >= data_cells || column >= work_.length) continue;
        CCL_UNROLL for (int i = 0; i < per_cell; ++i) {
          float& v = value[c * per_cell + i];
          v = work_.prologue(v, work_.first_row + row, column + i);
        }
      }
    }
    return Wire::pack(group_, lane_, value);
  }
  /// In rank order, in float; my own summand as my peers have it.
  CCL_HD void reduce(int box, int row, int t, int at, float* sum) {
    RowRun<T, per_cell> run[Lane::cells];
    load_tile(row, t, run);
    const Fragment own = prepare(row, t, run);
    if constexpr (Ranks == 1) {
      Wire::unpack(group_, lane_, own, sum);
    } else {
      const Index stride = slot(0, 1, 0, 0);
      const auto all = collect_peers<Ranks>(lane_, base_[0] + slot(box, 0, row, at), stride, flag_,
                                            rank_, patience_);
      CCL_UNROLL for (int r = 0; r < Ranks; ++r) {
        Fragment f;
        CCL_UNROLL for (int w = 0; w < Lane::words; ++w) {
          f.word[w] = r == rank_ ? own.word[w] : all.of[r].word[w];
        }
        float value[values];
        Wire::unpack(group_, lane_, f, value);
        CCL_UNROLL for (int i = 0; i < values; ++i) sum[i] = r == 0 ? value[i] : sum[i] + value[i];
      }
    }
  }
  struct Summands {};
  struct Sums {};
  CCL_HD void take(Summands, int box, int row, int t, float* sum) {
    reduce(box, row, t, t, sum);
    Wire::template settle<Lane>(sum);
  }
  CCL_HD void take(Sums, int box, int row, int t, float* sum) {
    const Packet* const at = base_[0] + slot(box, 0, row, t);
    const auto got = collect<1>(lane_, at, flag_, t / slice_, patience_);
    Wire::unpack(group_, lane_, got.of[0], sum);
  }
  template <class What>
  CCL_HD void finish(int box, int row) {
    Row part{group_, lane_, work_.first_row + row, work_.length, warp_, warps_};
    const auto ahead = work_.epilogue.ahead(part);
    CCL_UNROLL for (int k = 0; k < Tiles; ++k) {
      if (tile(k) >= tiles_) break;
      float sum[values];
      take(What{}, box, row, tile(k), sum);
      CCL_UNROLL for (int i = 0; i < values; ++i) {
        part.value[k * Lane::cells + i / per_cell][i % per_cell] = sum[i];
      }
    }
    work_.epilogue(part, ahead);
  }

  Group group_;
  const RowWork<P, E>& work_;
  Lane lane_;
  int rank_, crew_;
  int warp_, warps_;     // this group among those of its crew
  int tiles_, slice_;    // of a row; of one rank's part of it
  Word flag_ = 0;        // this launch's epoch
  Packet* base_[Ranks];  // this launch's half of the scratch of the k-th rank after me
  Patience<Memory> patience_;
};

/// One launch over rows, as an executor runs it. `Tiles`: the most that a lane has of a row.
template <class Op, class Algo, class Proto, class P, class E, int Ranks, int Tiles>
struct RowBody {
  using Work = RowWork<P, E>;
  static constexpr int max_lanes = P::Wire::most_lanes;
  template <class Group>
  using Prims = RowPrims<Group, Proto, P, E, Algo::splits ? Ranks : 1, Ranks, Tiles>;
  const Work& work;

  template <class Group>
  CCL_HD Word operator()(Group group, int channel) const {
    Prims<Group> prims{group, work, channel};
    Algo::run(Op{}, prims);
    return prims.flag();
  }
  /// All lanes of a crew: as `PeerBody::end`.
  CCL_HD void end(Word flag, int crew, int lane, int lanes) const {
    CCL_ROLL for (int i = crew + lane * work.crews; i < work.epoch.count; i += lanes * work.crews) {
      work.epoch.copies[i] = flag;
    }
  }
};

}  // namespace ccl
