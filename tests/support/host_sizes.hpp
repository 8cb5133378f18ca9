#pragma once

#include <cstddef>
#include <vector>

namespace ccl::test {

/// Hosts of a job, by their number of ranks. `around`: ranks are dealt to the hosts in turn, else
/// they are numbered host by host.
struct HostSizes {
  std::vector<int> ranks;
  bool around = false;

  /// Returns the ranks of each host.
  constexpr std::vector<std::vector<int>> members() const {
    std::vector<std::vector<int>> hosts(ranks.size());
    int next = 0, left = 0;
    for (const int n : ranks) left += n;
    while (left > 0) {
      for (std::size_t h = 0; h < ranks.size(); ++h) {
        while (int(hosts[h].size()) < ranks[h]) {
          hosts[h].push_back(next++), --left;
          if (around) break;
        }
      }
    }
    return hosts;
  }
};

}  // namespace ccl::test
