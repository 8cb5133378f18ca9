#include <ccl/types/error.hpp>
#include <ccl/types/result.hpp>

#include "support/catch.hpp"

using namespace ccl;

TEST_CASE("an error reads as who, what, where") {
  Error e{Errc::timed_out, "no data (rank 5 is late); start it", 3, 5, 110, "node7", "shm"};
  CHECK(e.message() ==
        "rank 3 on node7: timed_out: no data (rank 5 is late); start it (peer 5, transport shm, "
        "os 110)");
}

namespace {
Result<int> half(int x) {
  if (x % 2 != 0) return fail(Errc::invalid_argument, "odd");
  return x / 2;
}
Result<int> quarter(int x) {
  CCL_TRY(const int h, half(x));
  CCL_CHECK(half(h));
  return half(h);
}
// A macro's text is one line of source, however many it is written in.
#define HALVE_TWICE(x)           \
  CCL_TRY(const int h, half(x)); \
  CCL_TRY(const int q, half(h)); \
  return q
Result<int> quarter_in_a_line(int x) {
  HALVE_TWICE(x);
}
}  // namespace

TEST_CASE("what another rank has written into an error is one line of printable characters") {
  CHECK(Error{Errc::mismatch, "rank 1 creates \x1b[2Ja\nb\xff"}.message() ==
        "mismatch: rank 1 creates \\x1b[2Ja\\x0ab\\xff");
}

TEST_CASE("CCL_TRY passes values down and errors up") {
  CHECK(quarter(8).value() == 2);
  CHECK(quarter(6).error().code == Errc::invalid_argument);
  CHECK(quarter_in_a_line(8).value() == 2);
  CHECK(quarter_in_a_line(6).error().code == Errc::invalid_argument);
}
