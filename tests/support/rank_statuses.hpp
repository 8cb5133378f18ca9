#pragma once

// Statuses of ranks that wait for each other.
#include <ccl/comm/report.hpp>

#include <cstring>
#include <vector>

namespace ccl::test {

inline Operation op(Word number, OpState state, const char* what = "all_reduce", Index count = 10) {
  Operation one;
  one.number = number;
  one.call = number - 1;
  one.composition = 0;
  one.count = count;
  one.state = state;
  std::strncpy(one.what, what, sizeof one.what - 1);
  std::strncpy(one.type, "float", sizeof one.type - 1);
  return one;
}
/// Returns ranks that have completed 4 operations and run the fifth. Each waits for the rank before
/// it.
inline std::vector<RankStatus> ring(int ranks) {
  std::vector<RankStatus> all(ranks);
  for (int r = 0; r < ranks; ++r) {
    all[r].rank = r;
    all[r].answered = true;
    all[r].host = "here";
    all[r].called = 5;
    for (Word n = 1; n <= 4; ++n) all[r].operations.push_back(op(n, OpState::done));
    all[r].operations.push_back(op(5, OpState::running));
    all[r].waits = {(r + ranks - 1) % ranks, 12};
  }
  return all;
}

}  // namespace ccl::test
