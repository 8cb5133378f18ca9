#pragma once

#include <string_view>

namespace ccl::test {

/// Says why a test case cannot run here; the case returns at once. If nothing fails, the program
/// then exits with 77, which CTest reports as skipped.
void skip(std::string_view why);

}  // namespace ccl::test
