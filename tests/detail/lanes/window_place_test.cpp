// Places of buffers in windows as words.
#include <ccl/detail/lanes/window_place.hpp>

#include "support/catch.hpp"

using ccl::Word;
using Place = ccl::detail::WindowPlaceWord;

TEST_CASE(
    "a place is a word of a window's number and an offset, and none of them is in no window") {
  const Word place = Place::of(3, 64);
  CHECK(Place::number(place) == 3);
  CHECK(Place::offset(place) == 64);
  CHECK(Place::of(3, 80) != place);
  CHECK(Place::of(4, 64) != place);
  // The first place of the first window, and one whose number does not fit.
  CHECK(Place::of(1, 0) > Place::in_no_window);
  constexpr Word numbers = (Word{1} << (64 - Place::offset_bits)) - 1;
  CHECK(Place::number(Place::of(numbers, 0)) == numbers);
  CHECK(Place::number(Place::of(numbers + 1, 0)) == 1);
}
