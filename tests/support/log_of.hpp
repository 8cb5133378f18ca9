#pragma once

#include <ccl/comm/log.hpp>

#include <fmt/format.h>

#include <fstream>
#include <iterator>
#include <string>

#include "support/environment.hpp"
#include <unistd.h>

namespace ccl::test {

/// Lines that are logged while `body` runs.
template <class Body>
std::string log_of(Body&& body) {
  const std::string path = fmt::format("/tmp/ccl.log_of.{}", ::getpid());
  {
    const Environment log{{{"CCL_DEBUG_FILE", path}, {"CCL_DEBUG", "INFO"}}};
    log_reload();
    body();
  }
  log_reload();
  std::ifstream file{path};
  const std::string text{std::istreambuf_iterator<char>{file}, {}};
  ::unlink(path.c_str());
  return text;
}

}  // namespace ccl::test
