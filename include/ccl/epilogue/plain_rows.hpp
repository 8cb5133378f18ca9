#pragma once

#include <ccl/detail/rows/work.hpp>
#include <ccl/types/macros.hpp>

CCL_ANY_SPACE_BEGIN

namespace ccl {

/// Row format of elements of `T`. Sums of two hops are rounded to `T` once, as those of one hop
/// are.
template <class T>
struct PlainRows {
  static constexpr const char* name = "plain";
  static constexpr int per_cell = 8 / int(sizeof(T));  ///< values of a word
  static constexpr int max_lanes = 1024;               ///< lanes of a block, at most
  /// Returns the cells of a tile that hold values.
  static constexpr int data_cells(int tile_cells) { return tile_cells; }

  template <class Group, class Lane>
  CCL_HD static typename Lane::Fragment pack(Group, const Lane&, const float* values) {
    typename Lane::Fragment f;
    CCL_UNROLL for (int c = 0; c < Lane::cells; ++c) {
      f.word[c] = detail::RowRun<T, per_cell>::pack(values + c * per_cell).word[0];
    }
    return f;
  }
  template <class Group, class Lane>
  CCL_HD static void unpack(Group, const Lane&, const typename Lane::Fragment& f, float* values) {
    CCL_UNROLL for (int c = 0; c < Lane::cells; ++c) {
      detail::RowRun<T, per_cell>{{f.word[c]}}.unpack(values + c * per_cell);
    }
  }
  /// Rounds a sum to the value that all ranks have after another hop.
  template <class Lane>
  CCL_HD static void round_as_sent(float* values) {
    CCL_UNROLL for (int c = 0; c < Lane::cells; ++c) {
      detail::RowRun<T, per_cell>::pack(values + c * per_cell).unpack(values + c * per_cell);
    }
  }
};

/// Prologue that sends rows of `T` unchanged.
template <class T>
struct AsIs {
  using Element = T;
  using Wire = PlainRows<T>;
};

}  // namespace ccl

CCL_ANY_SPACE_END
