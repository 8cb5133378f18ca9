#pragma once

// Ranks as processes on several hosts, with the CollNet plug-in that reduces in software.
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "support/ranks.hpp"

namespace ccl::test {

/// Variables of one rank's process.
using Variables = std::vector<std::pair<std::string, std::string>>;

/// Job whose hosts have so many ranks. Ranks are numbered host by host.
struct CollNetJob {
  std::vector<int> hosts;
  std::string plug_in = CCL_TEST_SOFTWARE_COLLNET;
  std::function<Variables(int rank)> more = [](int) { return Variables{}; };
  double timeout_s = 20;

  int ranks() const {
    int all = 0;
    for (const int of : hosts) all += of;
    return all;
  }
  std::vector<std::string> run(const Body& body, bool finalizes = true) const {
    return test::run(
        ranks(),
        [this](int rank) {
          int host = 0, left = rank;
          while (left >= hosts[std::size_t(host)]) left -= hosts[std::size_t(host++)];
          on_host("host" + std::to_string(host));
          ::setenv("CCL_COLLNET_ENABLE", "1", 1);
          ::setenv("CCL_NET_PLUGIN", plug_in.c_str(), 1);
          ::setenv("SOFTWARE_COLLNET_IFNAME", "lo", 1);
          ::setenv("COLLNET_UNDER", CCL_TEST_SOFTWARE_COLLNET, 1);
          for (const auto& [name, value] : more(rank)) ::setenv(name.c_str(), value.c_str(), 1);
        },
        body, finalizes, -1, timeout_s);
  }
};

}  // namespace ccl::test
