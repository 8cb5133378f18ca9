#pragma once

#include <algorithm>
#include <cstddef>

namespace ccl::detail {

/// Sizes of blocks of a GPU's memory, and of the places in them that the slots of edges take.
struct IbBlockSize {
  static constexpr std::size_t least = std::size_t{2} << 20;  // drivers allocate no less
  /// Alignment of a place that is registered by itself: a page of any host.
  static constexpr std::size_t apart = 64 << 10;
  static constexpr std::size_t together = 4 << 10;  // of one whose block is registered as a whole

  static constexpr std::size_t up_to(std::size_t bytes, std::size_t grain) {
    return (bytes + grain - 1) / grain * grain;
  }
  /// Bytes of a new block, for a first place of `bytes` bytes.
  static constexpr std::size_t of_block(std::size_t bytes) {
    return std::max(least, up_to(bytes, apart));
  }
  /// Bytes of all blocks for `edges` edges of `bytes` bytes each, at places with this alignment.
  static constexpr std::size_t of_edges(std::size_t edges, std::size_t bytes, std::size_t grain) {
    const std::size_t block = of_block(bytes), in_block = block / up_to(bytes, grain);
    return (edges + in_block - 1) / in_block * block;
  }
};

}  // namespace ccl::detail
