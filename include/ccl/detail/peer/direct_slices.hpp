#pragma once

#include <ccl/detail/lanes/collect.hpp>
#include <ccl/detail/numeric/reduction.hpp>
#include <ccl/detail/numeric/user_buffer.hpp>
#include <ccl/detail/peer/direct_work.hpp>
#include <ccl/proto/simple.hpp>
#include <ccl/types/macros.hpp>

CCL_ANY_SPACE_BEGIN

namespace ccl::detail {

/// Slices of the ranks' shares in a reduction by `Direct`, and their reduction: it loads a slice
/// from the buffers of all ranks, adds up, and stores the sums. No function waits. `DirectReduce`
/// finds the buffers, and when they can be read and written.
///
/// `Most`: maximum number of ranks.
template <class Op, LaneGroup Group, class R, int Most>
class DirectSlices {
 public:
  using T = typename R::Type;
  using Lane = typename Simple::template Lane<Group, Element<T>::words_per_cell>;

  /// Tiles in flight for each rank.
  static constexpr int batch = Lane::words <= 2 ? 4 : Lane::words <= 4 ? 2 : 1;
  static constexpr int tile_elements = Lane::tile_cells * Element<T>::per_cell;

 protected:
  using Shares = DirectShares<Op, T>;
  static constexpr bool wide = Most > max_unrolled_ranks;

  /// This rank's share in the buffer of each rank, or slots.
  struct Buffers {
    const char* input[Most];
    char* output[Most];
  };

  CCL_HD DirectSlices(Group group, const DirectWork<R>& work, int channel)
      : group_{group},
        work_{work},
        lane_{group},
        reduction_{work.reduction},
        channel_{channel},
        rank_{work.peers.rank},
        ranks_{work.peers.ranks},
        share_{Shares::largest(work.layout, work.peers.ranks)} {}

  /// True if this rank's sums go to the buffer of rank `p`.
  CCL_HD bool stores_to(int p) const {
    if constexpr (Shares::sums_for_root) return p == work_.root;
    return Shares::sums_for_all || p == rank_;
  }
  /// True if this rank receives the sums of others.
  CCL_HD bool receives_sums() const {
    if constexpr (Shares::sums_for_root) return rank_ == work_.root;
    return Shares::sums_for_all;
  }
  /// Returns the number of a rank's share, or -1.
  CCL_HD int share_number(int rank) const { return Shares::number(rank, work_.root, ranks_); }
  /// Returns the first element of a rank's share.
  CCL_HD Index share_begin(int rank, Index stride) const {
    const int number = share_number(rank);
    return number < 0 ? 0 : number * (work_.layout.split ? share_ : stride);
  }
  /// Returns this ring's slices of the longest share, which is the first.
  CCL_HD Index max_slices() const {
    const Index all = work_.layout.count;
    return slices_of(all < share_ ? all : share_);
  }
  /// Returns the first element of this ring's n-th slice.
  CCL_HD Index slice_begin(Index n) const { return (n * work_.rings + ring_) * work_.slice; }
  /// Returns the elements of the n-th slice of a share.
  CCL_HD Index slice_count(int rank, Index n) const {
    const Index left = share_count(rank) - slice_begin(n);
    return left < 0 ? 0 : left < work_.slice ? left : work_.slice;
  }
  /// Returns this ring's slices of a rank's share.
  CCL_HD Index slices(int rank) const { return slices_of(share_count(rank)); }

  CCL_HD Buffers& buffers() {
    if constexpr (Parts<Group>::shares) {
      return Parts<Group>::template shared<Buffers>(group_);
    } else {
      return own_buffers_;
    }
  }
  CCL_HD const Buffers& buffers() const {
    if constexpr (Parts<Group>::shares) {
      return Parts<Group>::template shared<Buffers>(group_);
    } else {
      return own_buffers_;
    }
  }
  /// Sets the alignment of all buffers. `bits`: bitwise or of their addresses.
  CCL_HD void align_to(Word bits) { aligned_ = bits % sizeof(Packet) == 0; }

  /// Reduces `count` elements. They begin `mine` bytes after this rank's buffers and `theirs` bytes
  /// after the peers' buffers.
  CCL_HD void reduce_slice(Index mine, Index theirs, Index count) const {
    constexpr int least = int(alignof(T) < sizeof(Packet) ? alignof(T) : sizeof(Packet));
    if (!aligned_) {
      constexpr int tiles = least >= 4 && !wide ? batch : 1;
      Index t = 0;
      for (; t + tiles * tile_elements <= count; t += tiles * tile_elements) {
        reduce_tiles<least, tiles, Fill::full>(mine, theirs, t, 0);
      }
      for (; t < count; t += tile_elements) {
        reduce_tiles<least, 1, Fill::any>(mine, theirs, t, count - t);
      }
    } else if constexpr (wide) {
      reduce_batches(mine, theirs, count);
    } else if (ranks_ == 2) {
      reduce_run<2>(mine, theirs, count);
    } else if (ranks_ <= 4) {
      reduce_run<4>(mine, theirs, count);
    } else {
      reduce_run<Most>(mine, theirs, count);
    }
  }

  Group group_;
  const DirectWork<R>& work_;
  Lane lane_;
  R reduction_;
  int channel_, rank_, ranks_, ring_ = 0;

 private:
  using Fragment = typename Lane::Fragment;
  using Sum = CellReducer<R, Lane::words>;
  static constexpr int batch_ranks = max_unrolled_ranks;

  /// Returns the elements of a rank's share.
  CCL_HD Index share_count(int rank) const {
    const int number = share_number(rank);
    if (number < 0) return 0;
    if (!work_.layout.split) return share_;
    const Index left = work_.layout.count - number * share_;
    return left < 0 ? 0 : left < share_ ? left : share_;
  }
  /// Returns this ring's slices of `count` elements of a share.
  CCL_HD Index slices_of(Index count) const {
    const Index all = div_up<Index>(count, work_.slice);
    return all <= ring_ ? 0 : div_up<Index>(all - ring_, work_.rings);
  }

  /// Reduces aligned runs of any number of ranks. The loads of a batch of ranks are under way at
  /// once.
  CCL_HD void reduce_batches(Index mine, Index theirs, Index count) const {
    constexpr int align = sizeof(Packet);
    Index t = 0;
    for (; t + tile_elements <= count; t += tile_elements) {
      Slot<Sum> sum;
      CCL_ROLL for (int first = 0; first < ranks_; first += batch_ranks) {
        Fragment got[batch_ranks];
        CCL_UNROLL for (int i = 0; i < batch_ranks; ++i) {
          const int r = first + i < ranks_ ? first + i : rank_;  // loaded and not used
          const char* const from = buffers().input[r] + (r == rank_ ? mine : theirs);
          const UserBuffer<T, align> data{from, nullptr};
          got[i] = data.template load<Fill::full>(lane_, t, 0);
        }
        CCL_UNROLL for (int i = 0; i < batch_ranks; ++i) {
          if (first + i >= ranks_) break;
          if (i == 0 && first == 0) {
            sum.set(Sum::from_received(reduction_, prepare(got[0])));
          } else {
            sum.value.add_received(prepare(got[i]));
          }
        }
      }
      Fragments<Fragment, 1> sums;
      sums.of[0] = sum.value.finish();
      store_tiles<align, Fill::full>(sums, mine, theirs, t, 0);
    }
    for (; t < count; t += tile_elements) {
      reduce_tiles<align, 1, Fill::any>(mine, theirs, t, count - t);
    }
  }
  /// Reduces aligned runs. `Ranks` is the maximum number of ranks.
  template <int Ranks>
  CCL_HD void reduce_run(Index mine, Index theirs, Index count) const {
    constexpr int align = sizeof(Packet);
    constexpr int tiles = Ranks <= 4 || batch == 1 ? batch : sizeof(T) < 4 ? 1 : batch / 2;
    const char* from[Ranks];
    CCL_UNROLL for (int r = 0; r < Ranks; ++r) {
      const int there = r < ranks_ ? r : rank_;  // absent ranks' data is loaded and not used
      from[r] = buffers().input[there] + (there == rank_ ? mine : theirs);
    }
    Index t = 0;
    for (; t + tiles * tile_elements <= count; t += tiles * tile_elements) {
      store_tiles<align, Fill::full>(sum_tiles<tiles>(from, t), mine, theirs, t, 0);
    }
    for (; t < count; t += tile_elements) {
      reduce_tiles<align, 1, Fill::any>(mine, theirs, t, count - t);
    }
  }
  /// Returns the sums of N whole tiles from element t on, in rank order, so that every rank would
  /// get the same bits. The loads of all ranks are under way at once: no branch separates them.
  template <int N, int Ranks>
  CCL_HD Fragments<Fragment, N> sum_tiles(const char* const (&from)[Ranks], Index t) const {
    Fragment got[Ranks][N];
    CCL_UNROLL for (int r = 0; r < Ranks; ++r) {
      const UserBuffer<T, int(sizeof(Packet))> data{from[r], nullptr};
      CCL_UNROLL for (int n = 0; n < N; ++n) {
        got[r][n] = data.template load<Fill::full>(lane_, t + Index{n} * tile_elements, 0);
      }
    }
    Fragments<Fragment, N> sums;
    CCL_UNROLL for (int n = 0; n < N; ++n) {
      auto sum = Sum::from_received(reduction_, prepare(got[0][n]));
      CCL_UNROLL for (int r = 1; r < Ranks; ++r) {
        if (r < ranks_) sum.add_received(prepare(got[r][n]));
      }
      sums.of[n] = sum.finish();
    }
    return sums;
  }
  /// Reduces N tiles from element t on, as `sum_tiles` does. The code is small, for runs that are
  /// not aligned and for last tiles. The loads of two ranks are under way at once.
  template <int Align, int N, Fill How>
  CCL_HD void reduce_tiles(Index mine, Index theirs, Index t, Index left) const {
    Slot<Sum> sum[N];
    Fragment now[N], next[N];
    const auto load = [&](Fragment(&to)[N], int r) {
      const UserBuffer<T, Align> from{buffers().input[r] + (r == rank_ ? mine : theirs), nullptr};
      CCL_UNROLL for (int n = 0; n < N; ++n) {
        to[n] = from.template load<How>(lane_, t + Index{n} * tile_elements, left);
      }
    };
    load(now, 0);
    load(next, 1);
    CCL_UNROLL for (int n = 0; n < N; ++n) {
      sum[n].set(Sum::from_received(reduction_, prepare(now[n])));
    }
    CCL_ROLL for (int r = 1; r < ranks_; ++r) {
      CCL_UNROLL for (int n = 0; n < N; ++n) now[n] = next[n];
      if (r + 1 < ranks_) load(next, r + 1);
      CCL_UNROLL for (int n = 0; n < N; ++n) sum[n].value.add_received(prepare(now[n]));
    }
    Fragments<Fragment, N> sums;
    CCL_UNROLL for (int n = 0; n < N; ++n) sums.of[n] = sum[n].value.finish();
    store_tiles<Align, How>(sums, mine, theirs, t, left);
  }
  /// Stores the sums of tiles to this rank's buffer, or to those of all ranks.
  template <int Align, Fill How, int N>
  CCL_HD void store_tiles(const Fragments<Fragment, N>& sums, Index mine, Index theirs, Index t,
                          Index left) const {
    // Ranks begin at different peers, so that no peer receives all stores at once.
    CCL_ROLL for (int k = 0; k < (Shares::sums_for_all ? ranks_ : 1); ++k) {
      const int first = Shares::sums_for_root ? work_.root : rank_;
      const int r = first + k < ranks_ ? first + k : first + k - ranks_;
      const UserBuffer<T, Align> to{nullptr, buffers().output[r] + (r == rank_ ? mine : theirs)};
      CCL_UNROLL for (int n = 0; n < N; ++n) {
        to.template store<How>(lane_, t + Index{n} * tile_elements, left, sums.of[n]);
      }
    }
  }
  /// Returns a rank's data as it would travel, scaled if the reduction does that.
  CCL_HD Fragment prepare(const Fragment& f) const {
    if constexpr (R::prepares) return CellReducer<R, Lane::words>::from_own(reduction_, f).result();
    return f;
  }

  Index share_;  // elements of the largest share
  struct Nothing {};
  // Unused by lanes that share memory.
  [[no_unique_address]] cuda::std::conditional_t<Parts<Group>::shares, Nothing, Buffers>
      own_buffers_;
  bool aligned_ = true;  // all buffers are aligned to packets
};

}  // namespace ccl::detail

CCL_ANY_SPACE_END
