#pragma once

#include <ccl/detail/lanes/block_epilogue.hpp>
#include <ccl/detail/lanes/collect.hpp>
#include <ccl/detail/lanes/phases.hpp>
#include <ccl/detail/rows/work.hpp>
#include <ccl/types/macros.hpp>

CCL_ANY_SPACE_BEGIN

namespace ccl::detail {
/// Prologue that also maps each value before it travels.
template <class P>
concept MapsValues = requires(const P prologue, float value, Index row, int column) {
  { prologue(value, row, column) } -> cuda::std::same_as<float>;
};

/// Operations of an algorithm on the rows of a matrix of which every rank has a summand. It pushes
/// tiles into boxes, including its own, reduces tiles that have arrived, and finishes complete
/// rows.
///
/// The tiles of all rows are assigned to all groups of a launch. One block finishes a row, and each
/// of its lanes has at most `Tiles` tiles of the row.
///
/// The halves of the scratch alternate as in `PeerPrims`. Every rank waits for every other in each
/// launch.
///
/// `Ranks` is the maximum number of ranks, as in `PeerPrims`.
///
/// An output may be the input. A lane that finishes a tile has received its sum. This rank's
/// summand traveled through a box to that sum, so it has been read.
///
/// `Notes`: times of the launch, for `Traced`.
template <ReducingLanes Group, Protocol<Group> Proto, class P, class E, int Slices, int Ranks,
          int Tiles, class Notes = NoPhaseNotes>
class RowPrims {
 public:
  using Memory = typename Group::Memory;
  using Lane = typename Proto::template Lane<Group, 1>;
  using Fragment = typename Lane::Fragment;
  using T = typename P::Element;
  using Wire = typename P::Wire;
  static_assert(Proto::carries_flags,
                "Algorithms over peer memory need a protocol whose packets carry flags.");

  static constexpr int per_cell = Wire::per_cell;
  static constexpr int data_cells = Wire::data_cells(Lane::tile_cells);
  static constexpr int tile_elements = data_cells * per_cell;
  using Row = RowPart<Group, Lane, per_cell, data_cells, Tiles>;

  /// Indices of one group or block: first, first + step, ...
  struct Stripe {
    int first, last, step;
  };
  /// A lane's part of a tile of the input.
  struct Own {
    RowRun<T, per_cell> run[Lane::cells];
  };

  CCL_HD static constexpr int tiles_of(int length) { return div_up(length, tile_elements); }
  CCL_HD static constexpr int slice_of(int tiles, int ranks) {
    if constexpr (Slices == 1) return tiles;
    int each = div_up(tiles, Slices);  // see `PeerPrims::split_share`
    CCL_UNROLL for (int n = fewest_ranks(Ranks); n < Ranks; ++n) {
      if (n == ranks) each = div_up(tiles, n);
    }
    return each;
  }
  /// Returns the packets of each half of the scratch that one row takes.
  static constexpr Index row_packets(int length, int ranks = Ranks) {
    const int tiles = tiles_of(length);
    return (Index{Ranks} * slice_of(tiles, ranks) + (Slices > 1 ? tiles : 0)) * Lane::tile_packets;
  }

  CCL_HD RowPrims(Group group, const RowWork<P, E>& work, int channel)
      : group_{group},
        work_{work},
        lane_{group},
        rank_{work.peers.rank},
        channel_{channel},
        block_{channel % work.blocks},
        warp_{channel / work.blocks},
        warps_{work.channels / work.blocks},
        tiles_{tiles_of(work.length)},
        slice_{slice_of(tiles_, work.peers.ranks)},
        spin_wait_{work.watch},
        notes_{group, work.watch, channel} {
    detail::look_at(work_);
    Memory::await_previous();
    notes_.ready();
  }

  /// Must run before any push or collect. Loads issued earlier overlap with the load of the epoch.
  CCL_HD void begin() {
    if constexpr (Ranks > 1) flag_ = Memory::load_relaxed(work_.epoch.copies + block_) + 1;
    const Index half = Index(flag_ & 1) * work_.peers.half_packets;
    CCL_UNROLL for (int k = 0; k < Ranks; ++k) {
      base_[k] = work_.peers.scratch[peer(k)] + half;
    }
  }
  CCL_HD Word left() const { return flag_ << 1 | Word{launch_counted_}; }
  /// Counts the launch as `PeerPrims::count_launch` does.
  CCL_HD void count_launch() {
    launch_counted_ = true;
    if (Ranks == 1 || warp_ != 0) return;
    detail::for_absent_blocks(block_, work_.blocks, work_.epoch.count, group_.rank(), Group::width,
                              [this](int i) { work_.epoch.copies[i] = flag_; });
  }
  /// Returns this group's tiles of the matrix.
  CCL_HD Stripe tiles() const {
    return {channel_, Ranks == 1 ? 0 : work_.rows * tiles_, work_.channels};
  }
  /// Returns this group's tiles among those that this rank reduces.
  CCL_HD Stripe slices() const {
    return {channel_, Ranks == 1 ? 0 : work_.rows * slice_width(), work_.channels};
  }
  /// Returns this block's rows.
  CCL_HD Stripe rows() const { return {block_, work_.rows, work_.blocks}; }

  /// Loads the i-th tile of the matrix. Loads nothing past the last tile.
  CCL_HD Own load(int i) const {
    const int row = int(unsigned(i) / unsigned(tiles_));
    if (row >= work_.rows) return {};
    return load_tile(row, i - row * tiles_);
  }
  /// Pushes the i-th tile to every rank.
  CCL_HD void push(int box, int i, const Own& own) const {
    const int row = int(unsigned(i) / unsigned(tiles_)), t = i - row * tiles_;
    const Fragment f = prepare(row, t, own);
    CCL_UNROLL for (int k = 0; k < Ranks; ++k) {
      if (!is_present(k)) break;
      lane_.store(base_[k] + slot(box, rank_, row, t), f, flag_);
    }
  }
  /// Pushes the i-th tile to the rank that reduces it.
  CCL_HD void scatter(int box, int i, const Own& own) const {
    const int row = int(unsigned(i) / unsigned(tiles_)), t = i - row * tiles_;
    const int owner = int(unsigned(t) / unsigned(slice_));
    Packet* const half = work_.peers.scratch[owner] + (base_[0] - work_.peers.scratch[rank_]);
    lane_.store(half + slot(box, rank_, row, t - owner * slice_), prepare(row, t, own), flag_);
  }
  /// Reduces the i-th tile of this rank's slices in box `from`. Pushes the sum into box `to` of
  /// every rank.
  CCL_HD void reduce_slice(int from, int to, int i) {
    const int width = slice_width();
    const int row = int(unsigned(i) / unsigned(width)), at = i - row * width;
    float sum[values];
    reduce(from, row, at, sum);
    const Fragment f = Wire::pack(group_, lane_, sum);
    // After a failed wait the sum must not count as data.
    if (!lane_.agree(!spin_wait_.failed())) return;
    CCL_UNROLL for (int k = 0; k < Ranks; ++k) {
      if (!is_present(k)) break;
      lane_.store(base_[k] + slot(to, 0, row, rank_ * slice_ + at), f, flag_);
    }
  }
  /// Finishes a row of which every rank has pushed its summand to every rank.
  CCL_HD void finish_reduced(int box, int row) { finish<Summands>(box, row); }
  /// Finishes a row of which the sums have been pushed.
  CCL_HD void finish_collected(int box, int row) { finish<Sums>(box, row); }

 private:
  static constexpr int values = Lane::cells * per_cell;

  CCL_HD bool is_present(int r) const { return r < fewest_ranks(Ranks) || r < work_.peers.ranks; }
  CCL_HD int peer(int k) const {
    const int ranks = work_.peers.ranks;
    return rank_ + k - (rank_ + k < ranks ? 0 : ranks);
  }
  CCL_HD int tile(int k) const { return warp_ + k * warps_; }
  /// Returns the offset of a slot in packets. Box 0 has a row of slots for each writer. In box 1
  /// the rank that reduces a slice writes it.
  CCL_HD Index slot(int box, int writer, int row, int t) const {
    const Index first = Index{box} * Ranks * work_.rows * slice_;
    const int width = box == 0 ? slice_ : tiles_;
    return (first + (Index{writer} * work_.rows + row) * width + t) * Lane::tile_packets;
  }
  CCL_HD int slice_width() const {
    const int left = tiles_ - rank_ * slice_;
    return left < 0 ? 0 : left < slice_ ? left : slice_;
  }
  CCL_HD bool contains(int t, int c) const {
    return lane_.contains(c) && lane_.cell(c) < data_cells && column(t, c) < work_.length;
  }
  CCL_HD int column(int t, int c) const { return (t * data_cells + lane_.cell(c)) * per_cell; }
  CCL_HD Own load_tile(int row, int t) const {
    Own own{};
    const T* const from = work_.input + Index{row} * work_.length;
    CCL_UNROLL for (int c = 0; c < Lane::cells; ++c) {
      if (contains(t, c)) own.run[c] = RowRun<T, per_cell>::load(from + column(t, c));
    }
    return own;
  }
  /// Returns a lane's part of a tile as it travels.
  CCL_HD Fragment prepare(int row, int t, const Own& own) const {
    float value[values];
    CCL_UNROLL for (int c = 0; c < Lane::cells; ++c) {
      own.run[c].unpack(value + c * per_cell);
      if constexpr (detail::MapsValues<P>) {
        if (!contains(t, c)) continue;
        CCL_UNROLL for (int i = 0; i < per_cell; ++i) {
          float& v = value[c * per_cell + i];
          v = work_.prologue(v, work_.first_row + row, column(t, c) + i);
        }
      }
    }
    return Wire::pack(group_, lane_, value);
  }
  /// Reduces a tile in rank order, in float.
  CCL_HD void reduce(int box, int row, int at, float* sum) {
    add_up(collect_peers<Ranks>(lane_, base_[0] + slot(box, 0, row, at), slot(0, 1, 0, 0), flag_,
                                -1, work_.peers.ranks, spin_wait_),
           sum);
    notes_.received();
  }
  CCL_HD void add_up(const Fragments<Fragment, Ranks>& all, float* sum) const {
    Wire::unpack(group_, lane_, all.of[0], sum);
    CCL_UNROLL for (int r = 1; r < Ranks; ++r) {
      if (!is_present(r)) break;
      float value[values];
      Wire::unpack(group_, lane_, all.of[r], value);
      CCL_UNROLL for (int i = 0; i < values; ++i) sum[i] += value[i];
    }
  }
  struct Summands {};
  struct Sums {};
  /// Receives N of this group's tiles of a row, from the k-th on. The group's first tile replaces
  /// those past the row's end, and rank 0 replaces absent ranks, because a branch would separate
  /// the loads.
  template <int N>
  CCL_HD void take(Summands, int box, int row, int k, float (*sum)[values]) {
    if constexpr (Ranks == 1) {
      CCL_UNROLL for (int n = 0; n < N; ++n) {
        const int t = held_tile(k + n);
        Wire::unpack(group_, lane_, prepare(row, t, load_tile(row, t)), sum[n]);
      }
    } else {
      const auto got = collect_grid<N, Ranks>(
          lane_,
          [&](int n, int r) {
            return base_[0] + slot(box, is_present(r) ? r : 0, row, held_tile(k + n));
          },
          [&](int, int r) { return is_present(r) ? r : 0; }, flag_, spin_wait_);
      notes_.received();
      CCL_UNROLL for (int n = 0; n < N; ++n) add_up(got.of[n], sum[n]);
    }
    CCL_UNROLL for (int n = 0; n < N; ++n) Wire::template round_as_sent<Lane>(sum[n]);
  }
  template <int N>
  CCL_HD void take(Sums, int box, int row, int k, float (*sum)[values]) {
    const auto got = collect_grid<N, 1>(
        lane_, [&](int n, int) { return base_[0] + slot(box, 0, row, held_tile(k + n)); },
        [&](int n, int) { return int(unsigned(held_tile(k + n)) / unsigned(slice_)); }, flag_,
        spin_wait_);
    notes_.received();
    CCL_UNROLL for (int n = 0; n < N; ++n) Wire::unpack(group_, lane_, got.of[n].of[0], sum[n]);
  }
  CCL_HD int held_tile(int k) const { return tile(k) < tiles_ ? tile(k) : warp_; }
  template <class What>
  CCL_HD void finish(int box, int row) {
    Row part{group_, lane_, work_.first_row + row, work_.length, warp_, warps_};
    const auto ahead = work_.epilogue.ahead(part);
    // Limited by registers: two tiles of each of 8 ranks spilled.
    constexpr int batch = Ranks * Tiles <= 8 ? Tiles : Ranks <= 4 && Tiles > 1 ? 2 : 1;
    static_assert(Tiles % batch == 0, "a batch would run past the row");
    CCL_UNROLL for (int k = 0; k < Tiles; k += batch) {
      if (tile(k) >= tiles_) break;
      float sum[batch][values];
      take<batch>(What{}, box, row, k, sum);
      CCL_UNROLL for (int i = 0; i < batch * values; ++i) {
        part.value[k * Lane::cells + i / per_cell][i % per_cell] = sum[i / values][i % values];
      }
    }
    work_.epilogue(part, ahead);
  }

  Group group_;
  const RowWork<P, E>& work_;
  Lane lane_;
  int rank_, channel_, block_;
  int warp_, warps_;             // this group among those of its block
  int tiles_, slice_;            // tiles of a row; tiles of one rank's slice of it
  Word flag_ = 0;                // this launch's epoch
  bool launch_counted_ = false;  // for the absent blocks
  Packet* base_[Ranks];  // this launch's half of the scratch of the k-th rank after this one
  SpinWait<Memory> spin_wait_;
  [[no_unique_address]] Notes notes_;
};

/// Body of one launch over rows, for an executor. `Tiles` is the maximum tiles of a row per lane.
/// `Lanes` is the maximum lanes of a block.
template <class Op, class Algo, class Proto, class P, class E, int Ranks, int Tiles,
          int Lanes = P::Wire::max_lanes>
struct RowBody {
  using Work = RowWork<P, E>;
  static constexpr int max_lanes = Lanes, tiles = Tiles;
  template <class Group>
  using Prims =
      RowPrims<Group, Proto, P, E, Algo::splits ? Ranks : 1, Ranks, Tiles, notes_of<Algo, Group>>;
  const Work& work;

  template <class Group>
  CCL_HD Word operator()(Group group, int channel) const {
    Prims<Group> prims{group, work, channel};
    Algo::run(Op{}, prims);
    return prims.left();
  }
  /// Counts the launch as `PeerBody::end` does.
  CCL_HD void end(Word left, int block, int lane, int lanes) const {
    detail::count_at_end(work.epoch, left, block, work.blocks, lane, lanes);
  }
};

}  // namespace ccl::detail

CCL_ANY_SPACE_END
