// Proves CollNetDirect for hosts of any sizes: it is complete, counts nothing twice and cannot
// deadlock. The smaller jobs at compile time.
#include <ccl/algo/collnet_direct.hpp>

#include <algorithm>

#include "support/catch.hpp"
#include "support/symbolic_network.hpp"

using namespace ccl;
using namespace ccl::test;

static_assert(plays_over_hosts<CollNetDirect>({{1, 1}}, 1, 1));
static_assert(plays_over_hosts<CollNetDirect>({{2, 2}}, 2, 2));
static_assert(plays_over_hosts<CollNetDirect>({{3, 2}}, 4, 2));
static_assert(plays_over_hosts<CollNetDirect>({{3, 3}, true}, 8, 1));

TEST_CASE("CollNetDirect: plays to the end on 2 to 8 hosts, over wires of any length") {
  for (int hosts = 2; hosts <= 8; ++hosts) {
    for (int of_host = 1; of_host <= 8 && of_host * hosts <= 24; ++of_host) {
      for (const int slots : {1, 2, 3, 4, 8}) {
        for (int heads = 1; heads <= of_host; ++heads) {
          for (const bool around : {false, true}) {
            INFO(hosts << " hosts of " << of_host << ", heads " << heads << ", slots " << slots);
            const HostSizes sizes{std::vector<int>(hosts, of_host), around};
            CHECK(plays_over_hosts<CollNetDirect>(sizes, slots, heads));
          }
        }
      }
    }
  }
}

TEST_CASE("CollNetDirect: plays to the end on hosts of different sizes") {
  for (const int slots : {1, 2, 8}) {
    for (const bool around : {false, true}) {
      CHECK(plays_over_hosts<CollNetDirect>({{1, 5}, around}, slots, 1));
      CHECK(plays_over_hosts<CollNetDirect>({{7, 2, 3}, around}, slots, 2));
      CHECK(plays_over_hosts<CollNetDirect>({{8, 8, 8}, around}, slots, 8));
      CHECK(plays_over_hosts<CollNetDirect>({{4, 8, 5, 4}, around}, slots, 4));
    }
  }
}

namespace {
/// Plays an operation whose hosts have a head for each rank.
template <class Op>
constexpr bool plays_with_all_heads(int hosts, int of_host, int slots, bool around,
                                    Index chunks = 4) {
  const HostSizes sizes{std::vector<int>(std::size_t(hosts), of_host), around};
  return plays_over_hosts<CollNetDirect, Op>(sizes, slots, of_host, 0, chunks);
}
}  // namespace
static_assert(plays_with_all_heads<AllGather>(2, 1, 1, false));
static_assert(plays_with_all_heads<AllGather>(2, 2, 2, true));
static_assert(plays_with_all_heads<AllGather>(2, 1, 8, false, 1));  // less than a batch
static_assert(plays_with_all_heads<ReduceScatter>(2, 1, 1, false));
static_assert(plays_with_all_heads<ReduceScatter>(3, 1, 8, false, 1));
static_assert(plays_with_all_heads<ReduceScatter>(2, 2, 2, true));

TEMPLATE_TEST_CASE("CollNetDirect: parts of all hosts, on 1 to 8 hosts, over wires of any length",
                   "", AllGather, ReduceScatter) {
  for (int hosts = 1; hosts <= 8; ++hosts) {
    for (int of_host = 1; of_host <= 8 && of_host * hosts <= 24; ++of_host) {
      for (const int slots : {1, 2, 3, 4, 8, 16}) {
        for (const Index chunks : {1, 3, 4}) {
          INFO(hosts << " hosts of " << of_host << ", slots " << slots << ", chunks " << chunks);
          CHECK(plays_with_all_heads<TestType>(hosts, of_host, slots, false, chunks));
          CHECK(plays_with_all_heads<TestType>(hosts, of_host, slots, true, chunks));
        }
      }
    }
  }
}

namespace {
/// Heads send their own part to the all-gather of every host's.
struct Talkative : CollNetDirect {
  template <class Context>
  static constexpr void run(AllGather, Context& context) {
    CollNetDirect::run(AllGather{}, context);
    for (Event& e : context.events) {
      if (e.to_network) e.does |= loads;
    }
  }
};
/// A head takes the sums of the next host for its own.
struct Misled : CollNetDirect {
  template <class Context>
  static constexpr void run(ReduceScatter, Context& context) {
    CollNetDirect::run(ReduceScatter{}, context);
    for (Event& e : context.events) {
      if (e.to_network) e.host = (e.host + 1) % context.host_position.hosts;
    }
  }
};
}  // namespace

TEST_CASE("the player finds parts that a wrong host sends, or gets") {
  CHECK(plays_over_hosts<Talkative, AllGather>({{2}}, 2, 2));
  CHECK_FALSE(plays_over_hosts<Talkative, AllGather>({{2, 2}}, 2, 2));
  CHECK(plays_over_hosts<Misled, ReduceScatter>({{2}}, 2, 2));
  CHECK_FALSE(plays_over_hosts<Misled, ReduceScatter>({{2, 2}}, 2, 2));
}

namespace {
/// Ranks send batches that no wire holds before they receive.
struct Hasty : CollNetDirect {
  template <class Context>
  static constexpr void run(AllReduce, Context& context) {
    context.slots *= 4;  // as it takes them to be
    CollNetDirect::run(AllReduce{}, context);
  }
};
}  // namespace

TEST_CASE("the player finds heads that send more ahead than a wire holds") {
  CHECK(plays_over_hosts<Hasty>({{1, 1}}, 8, 1));
  CHECK_FALSE(plays_over_hosts<Hasty>({{3, 3}}, 2, 3));
}
