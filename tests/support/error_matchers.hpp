#pragma once

#include <string>

namespace ccl::test {

/// Whether `part` is somewhere in `text`.
inline bool says(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

}  // namespace ccl::test
