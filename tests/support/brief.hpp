#pragma once

namespace ccl::test {

/// True in the build under ThreadSanitizer without --long: tests with many threads then take each
/// way of the code at fewer sizes. The plain build takes all.
#ifdef CCL_TEST_BRIEF
inline constexpr bool brief = true;
#else
inline constexpr bool brief = false;
#endif

}  // namespace ccl::test
