// Proves CollNetChain for hosts of any sizes: it is complete, counts nothing twice and cannot
// deadlock. The smaller jobs at compile time.
#include <ccl/algo/collnet_chain.hpp>

#include "support/catch.hpp"
#include "support/symbolic_network.hpp"

using namespace ccl;
using namespace ccl::test;

static_assert(plays_over_hosts<CollNetChain>({{1, 1}}, 1, 1));
static_assert(plays_over_hosts<CollNetChain>({{2, 2}}, 2, 1));
static_assert(plays_over_hosts<CollNetChain>({{3, 1, 2}}, 4, 1, 1));
static_assert(plays_over_hosts<CollNetChain>({{4, 4}, true}, 8, 1, 3));

TEST_CASE("CollNetChain: plays to the end on 2 to 8 hosts, over wires of any length") {
  for (int hosts = 2; hosts <= 8; ++hosts) {
    for (int of_host = 1; of_host * hosts <= 17; ++of_host) {
      for (const int slots : {1, 2, 3, 8}) {
        for (int head = 0; head < of_host; ++head) {
          for (const bool around : {false, true}) {
            INFO(hosts << " hosts of " << of_host << ", head " << head << ", slots " << slots);
            const HostSizes sizes{std::vector<int>(hosts, of_host), around};
            CHECK(plays_over_hosts<CollNetChain>(sizes, slots, 1, head));
          }
        }
      }
    }
  }
}

TEST_CASE("CollNetChain: plays to the end on hosts of different sizes") {
  for (const int slots : {1, 2, 8}) {
    for (const bool around : {false, true}) {
      CHECK(plays_over_hosts<CollNetChain>({{1, 5}, around}, slots, 1));
      CHECK(plays_over_hosts<CollNetChain>({{7, 1, 3}, around}, slots, 1));
      CHECK(plays_over_hosts<CollNetChain>({{8, 8, 8}, around}, slots, 1, 5));
      CHECK(plays_over_hosts<CollNetChain>({{2, 9, 4, 1}, around}, slots, 1, 1));
    }
  }
}

namespace {
/// The head of each host forgets the sum of the ranks behind it.
struct Forgetful : CollNetChain {
  template <class Context>
  static constexpr void run(AllReduce, Context& context) {
    auto alone = context;
    alone.events.clear();
    CollNetChain::run(AllReduce{}, alone);
    for (Event& e : alone.events) {
      if (e.to_network) e.does &= ~gets, e.in[0] = -1;
      context.events.push_back(e);
    }
  }
};
}  // namespace

TEST_CASE("the player finds a head that sends less than the sum of its host") {
  CHECK(plays_over_hosts<Forgetful>({{1, 1}}, 2, 1));
  CHECK_FALSE(plays_over_hosts<Forgetful>({{2, 2}}, 2, 1));
}
