#pragma once

#include <ccl/types/word.hpp>

namespace ccl::detail {

/// Chunks at equal distances in memory: `chunk` bytes at 0, `stride`, 2 * `stride` ... of a range
/// of `bytes` bytes, whose end cuts the last one. 0 bytes: none.
struct Strip {
  Index bytes = 0, chunk = 0, stride = 0;

  /// A position in a chunk.
  struct Position {
    Index at = 0;    // from the begin of the range
    Index into = 0;  // from the begin of its chunk
  };

  /// Returns one chunk.
  CCL_HD static constexpr Strip whole(Index bytes) { return {bytes, bytes, bytes}; }
  /// Returns the bytes in all chunks.
  CCL_HD constexpr Index total() const {
    if (bytes <= chunk) return bytes;
    const Index before = (bytes - 1) / stride, last = bytes - before * stride;
    return before * chunk + (last < chunk ? last : chunk);
  }
  /// Returns the offset of chunk `n`, and its bytes: at most 0 if there is none.
  CCL_HD constexpr Index begin(Index n) const { return n * stride; }
  CCL_HD constexpr Index size(Index n) const {
    const Index left = bytes - n * stride;
    return left < chunk ? left : chunk;
  }
  CCL_HD constexpr bool holds(const Position& position) const { return position.at < bytes; }
  /// Returns the size of the piece at `position`: at most `most`, up to the end of the chunk.
  CCL_HD constexpr unsigned piece(const Position& position, unsigned most) const {
    const Index mine = chunk - position.into, left = bytes - position.at;
    const Index size = mine < left ? mine : left;
    return size < Index(most) ? unsigned(size) : most;
  }
  /// Moves `position` behind a piece of `size` bytes.
  CCL_HD constexpr void advance(Position& position, unsigned size) const {
    position.at += size;
    position.into += size;
    if (position.into < chunk) return;
    position.at += stride - chunk;
    position.into = 0;
  }
};

}  // namespace ccl::detail
