#pragma once

#include <string_view>

namespace ccl::test {

/// Says why a test case cannot run here; the case returns at once.
///
/// The program prints at its end what was skipped, as "SKIP: why", and in how many of its cases. If
/// all of them were and nothing fails, it exits with 77, which CTest reports as skipped.
void skip(std::string_view why);

/// Says what a test case leaves out here; the case goes on, and is not skipped.
void skip_part(std::string_view why);

}  // namespace ccl::test
