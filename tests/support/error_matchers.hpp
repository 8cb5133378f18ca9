#pragma once

#include <string>

namespace ccl::test {

/// True if `text` contains `part`.
inline bool mentions(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

}  // namespace ccl::test
