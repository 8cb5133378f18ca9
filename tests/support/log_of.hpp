#pragma once

#include <ccl/comm/log.hpp>

#include <fmt/format.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <thread>

#include "support/environment.hpp"
#include <unistd.h>

namespace ccl::test {

/// Lines that are logged while `body` runs, and after it until one holds `last`, which another
/// thread logs; at most 20 s.
template <class Body>
std::string log_of(Body&& body, std::string_view last = {}) {
  const std::string path = fmt::format("/tmp/ccl.log_of.{}", ::getpid());
  const auto text = [&] {
    std::ifstream file{path};
    return std::string{std::istreambuf_iterator<char>{file}, {}};
  };
  {
    const Environment log{{{"CCL_DEBUG_FILE", path}, {"CCL_DEBUG", "INFO"}}};
    log_reload();
    body();
    for (int n = 0; n < 2000 && text().find(last) == std::string::npos; ++n) {
      std::this_thread::sleep_for(std::chrono::milliseconds{10});
    }
  }
  log_reload();
  const std::string all = text();
  ::unlink(path.c_str());
  return all;
}

}  // namespace ccl::test
