#pragma once

#include <fstream>
#include <string>

#include <sys/types.h>

namespace ccl::test {

/// True if a signal has stopped the process.
inline bool is_stopped(pid_t pid) {
  std::ifstream file{"/proc/" + std::to_string(pid) + "/stat"};
  std::string line;
  std::getline(file, line);
  return line.find(") T") != line.npos;
}

}  // namespace ccl::test
