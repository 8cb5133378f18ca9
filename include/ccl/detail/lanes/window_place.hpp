#pragma once

#include <ccl/types/macros.hpp>
#include <ccl/types/word.hpp>

CCL_ANY_SPACE_BEGIN

namespace ccl::detail {

/// Place of a buffer in a window as one word, equal on ranks whose buffers correspond. 0: none is
/// given.
struct WindowPlaceWord {
  static constexpr int offset_bits = 44;
  static constexpr Word in_no_window = 1;
  /// `number`: that of a window, from 1 on.
  CCL_HD static constexpr Word of(Word number, Index offset) {
    constexpr Word numbers = (Word{1} << (64 - offset_bits)) - 1;
    return ((number - 1) % numbers + 1) << offset_bits | Word(offset);
  }
  CCL_HD static constexpr Word number(Word place) { return place >> offset_bits; }
  CCL_HD static constexpr Word offset(Word place) { return place & ((Word{1} << offset_bits) - 1); }
};

}  // namespace ccl::detail

CCL_ANY_SPACE_END
