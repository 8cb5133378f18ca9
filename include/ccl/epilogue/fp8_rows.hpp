#pragma once

#include <ccl/detail/base/bit_cast.hpp>
#include <ccl/detail/rows/work.hpp>
#include <ccl/types/macros.hpp>

CCL_ANY_SPACE_BEGIN

namespace ccl {

/// Row format of e4m3 codes with one float scale for each block of values. A block is a tile of the
/// protocol: 472 values of a warp over LL128. A value takes 1.08 bytes, and 7 % more for LL128's
/// flags. A value v of a block with maximum magnitude m arrives as v' with |v' - v| <= max(|v| /
/// 16, m / 458752). A value that is not finite invalidates its block.
struct Fp8Rows {
  using Code = float8_e4m3;
  static constexpr const char* name = "fp8";
  static constexpr int per_cell = 8;
  /// A lane holds twice as many values of 16 bits as with PlainRows.
  static constexpr int max_lanes = 512;
  static constexpr float largest_code = 448;
  /// Returns the cells of a tile that hold values. The last cell, held by the group's last lane, is
  /// the scale.
  static constexpr int data_cells(int tile_cells) { return tile_cells - 1; }

  template <class Group, class Lane>
  CCL_HD static typename Lane::Fragment pack(Group group, const Lane& lane, const float* values) {
    static_assert(Lane::tile_cells > 1,
                  "ccl: a tile of this protocol and group has no room for a scale; use LL128");
    float largest = 0;
    CCL_UNROLL for (int c = 0; c < Lane::cells; ++c) {
      if (!lane.contains(c) || is_scale(lane, c)) continue;
      CCL_UNROLL for (int i = 0; i < per_cell; ++i) {
        const float v = values[c * per_cell + i];
        const float magnitude = v < 0 ? -v : v;
        largest = magnitude > largest ? magnitude : largest;
      }
    }
    largest = group.max(largest);
    // With smaller values the quotient of the codes overflows. Such values are lost beside any
    // other.
    constexpr float least = 1e-30f;
    largest = largest > least ? largest : least;
    const float up = largest_code / largest;
    typename Lane::Fragment f;
    CCL_UNROLL for (int c = 0; c < Lane::cells; ++c) {
      float scaled[per_cell];
      CCL_UNROLL for (int i = 0; i < per_cell; ++i) scaled[i] = values[c * per_cell + i] * up;
      const auto codes = detail::RowRun<Code, per_cell>::pack(scaled);
      f.word[c] = is_scale(lane, c)
                      ? Word{detail::bit_cast<cuda::std::uint32_t>(largest / largest_code)}
                      : codes.word[0];
    }
    return f;
  }
  template <class Group, class Lane>
  CCL_HD static void unpack(Group group, const Lane& lane, const typename Lane::Fragment& f,
                            float* values) {
    Word mine = 0;
    CCL_UNROLL for (int c = 0; c < Lane::cells; ++c) {
      if (is_scale(lane, c)) mine = f.word[c];
    }
    const Word reported = group.from(mine, Group::width - 1);
    const auto scale = detail::bit_cast<float>(static_cast<cuda::std::uint32_t>(reported));
    CCL_UNROLL for (int c = 0; c < Lane::cells; ++c) {
      detail::RowRun<Code, per_cell>{{f.word[c]}}.unpack(values + c * per_cell);
      CCL_UNROLL for (int i = 0; i < per_cell; ++i) values[c * per_cell + i] *= scale;
    }
  }
  /// Leaves a sum as it is: sums of one hop stay in float.
  template <class Lane>
  CCL_HD static void round_as_sent(float*) {}

 private:
  template <class Lane>
  CCL_HD static bool is_scale(const Lane& lane, int c) {
    return lane.contains(c) && lane.cell(c) == Lane::tile_cells - 1;
  }
};

/// Prologue that quantizes rows of `T` before they are sent.
template <class T>
struct QuantizeFp8 {
  using Element = T;
  using Wire = Fp8Rows;
};

}  // namespace ccl

CCL_ANY_SPACE_END
