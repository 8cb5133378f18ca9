#pragma once

#include <ccl/detail/rows/work.hpp>

#include <cuda/std/bit>

namespace ccl {

/// Rows travel as e4m3 codes with a float scale for each block, a tile of the protocol (472 values
/// of a warp over LL128): 1.08 bytes for each value, and 7 % more for LL128's flags. A value v of a
/// block whose largest magnitude is m arrives as v' with |v' - v| <= max(|v| / 16, m / 458752). A
/// value that is not finite spoils its block.
struct Fp8Rows {
  using Code = float8_e4m3;
  static constexpr const char* name = "fp8";
  static constexpr int per_cell = 8;
  static constexpr int max_lanes = 512;  // a lane has twice as many values of 16 bits as plain
  static constexpr float largest_code = 448;
  /// The last cell, which the group's last lane has, holds the scale.
  static constexpr int data_cells(int tile_cells) { return tile_cells - 1; }

  template <class Group, class Lane>
  CCL_HD static typename Lane::Fragment pack(Group group, const Lane& lane, const float* values) {
    static_assert(Lane::tile_cells > 1,
                  "ccl: a tile of this protocol and group has no room for a scale; use LL128");
    float largest = 0;
    CCL_UNROLL for (int c = 0; c < Lane::cells; ++c) {
      if (!lane.has(c) || is_scale(lane, c)) continue;
      CCL_UNROLL for (int i = 0; i < per_cell; ++i) {
        const float v = values[c * per_cell + i];
        const float magnitude = v < 0 ? -v : v;
        largest = magnitude > largest ? magnitude : largest;
      }
    }
    largest = group.max(largest);
    // Below this the codes' quotient would overflow; such values are lost beside any other.
    constexpr float least = 1e-30f;
    largest = largest > least ? largest : least;
    const float up = largest_code / largest;
    typename Lane::Fragment f;
    CCL_UNROLL for (int c = 0; c < Lane::cells; ++c) {
      float scaled[per_cell];
      CCL_UNROLL for (int i = 0; i < per_cell; ++i) scaled[i] = values[c * per_cell + i] * up;
      const auto codes = detail::RowRun<Code, per_cell>::pack(scaled);
      f.word[c] = is_scale(lane, c)
                      ? Word{cuda::std::bit_cast<cuda::std::uint32_t>(largest / largest_code)}
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
    const Word told = group.from(mine, Group::width - 1);
    const auto scale = cuda::std::bit_cast<float>(static_cast<cuda::std::uint32_t>(told));
    CCL_UNROLL for (int c = 0; c < Lane::cells; ++c) {
      detail::RowRun<Code, per_cell>{{f.word[c]}}.unpack(values + c * per_cell);
      CCL_UNROLL for (int i = 0; i < per_cell; ++i) values[c * per_cell + i] *= scale;
    }
  }
  /// Sums of one hop stay in float.
  template <class Lane>
  CCL_HD static void round_as_sent(float*) {}

 private:
  template <class Lane>
  CCL_HD static bool is_scale(const Lane& lane, int c) {
    return lane.has(c) && lane.cell(c) == Lane::tile_cells - 1;
  }
};

/// A prologue: rows of `T`, quantised on their way.
template <class T>
struct QuantizeFp8 {
  using Element = T;
  using Wire = Fp8Rows;
};

}  // namespace ccl
