// Places of buffers in windows as words.
#include <ccl/detail/lanes/window_place.hpp>

#include "support/catch.hpp"

using ccl::Word;
using PlaceWord = ccl::detail::WindowPlaceWord;

TEST_CASE(
    "a place is a word of a window's number and an offset, and none of them is in no window") {
  const Word place = PlaceWord::of(3, 64);
  CHECK(PlaceWord::number(place) == 3);
  CHECK(PlaceWord::offset(place) == 64);
  CHECK(PlaceWord::of(3, 80) != place);
  CHECK(PlaceWord::of(4, 64) != place);
  // The first place of the first window, and one whose number does not fit.
  CHECK(PlaceWord::of(1, 0) > PlaceWord::in_no_window);
  constexpr Word numbers = (Word{1} << (64 - PlaceWord::offset_bits)) - 1;
  CHECK(PlaceWord::number(PlaceWord::of(numbers, 0)) == numbers);
  CHECK(PlaceWord::number(PlaceWord::of(numbers + 1, 0)) == 1);
}
