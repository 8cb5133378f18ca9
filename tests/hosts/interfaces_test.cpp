// Two ranks as if on two hosts that share two networks. The interface of CCL_SOCKET_IFNAME must
// carry the data.
#include <ccl/algo/tree.hpp>
#include <ccl/collective.hpp>
#include <ccl/proto/simple.hpp>
#include <ccl/transport/socket.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "net/address.hpp"
#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/skip.hpp"
#include <sched.h>

using namespace ccl;
using namespace ccl::test;

namespace {

struct Networks {
  int first = -1, second = -1;  // ends of established connections; -1: the ranks failed
};

/// Ends at 10.<net>.0.1, as /proc has them: the address, its bytes backwards, and state 01.
int ends(int net) {
  const std::string local = fmt::format("0100{:02X}0A:", net);
  std::ifstream table{"/proc/self/net/tcp"};
  int found = 0;
  std::string line;
  std::getline(table, line);
  for (std::string number, mine, theirs, state; table >> number >> mine >> theirs >> state;) {
    found += mine.starts_with(local) && state == "01";
    std::getline(table, line);
  }
  return found;
}

/// A namespace with both networks, whose own addresses are reached through its `lo`.
bool make_networks() {
  return unshare(CLONE_NEWNET) == 0 &&
         std::system(
             "(ip link set lo up && for i in 1 2; do ip link add n$i type veth peer name p$i && "
             "ip addr add 10.$i.0.1/24 dev n$i && ip link set p$i up && ip link set n$i up || exit "
             "1; "
             "done) 2>/dev/null") == 0;
}

/// The other end of a cable is noticed a little later; until then an interface is not one of
/// several that ccl uses.
bool networks_are_up() {
  const auto is_up = [](const char* name) {
    const auto all = detail::net::list_interfaces();
    return std::any_of(all.begin(), all.end(),
                       [&](const auto& one) { return one.name == name && one.runs; });
  };
  return wait_until([&] { return is_up("n1") && is_up("n2"); }, 30);
}

Networks used(const char* interfaces) {
  ::setenv("CCL_SOCKET_IFNAME", interfaces, 1);
  const auto said = run(
      2, [](int r) { on_host(fmt::format("host{}", r)); },
      [](const Communicator& comm) -> Answer {
        using Sums = Collective<AllReduce, Tree, Simple, SocketTransport>;
        Plan plan;
        plan.slot_bytes = 512 << 10;  // steps large enough to be spread
        CCL_TRY(const auto sums, Sums::create(comm, plan));
        std::vector<float> in(1 << 20), out(in.size());
        for (std::size_t i = 0; i < in.size(); ++i) in[i] = float(i % 1000 + comm.rank());
        CCL_CHECK(sums(in.data(), out.data(), Index(in.size())));
        for (std::size_t i = 0; i < in.size(); ++i) {
          if (out[i] != float(2 * (i % 1000) + 1)) return fail(Errc::internal, "a wrong sum");
        }
        const std::string seen = fmt::format("{} {}", ends(1), ends(2));
        CCL_CHECK(comm.barrier());  // until both have looked
        return seen;
      });
  Networks networks;
  if (std::sscanf(said[0].c_str(), "%d %d", &networks.first, &networks.second) != 2) {
    std::fprintf(stderr, "%s\n%s\n", said[0].c_str(), said[1].c_str());
    return {};
  }
  return networks;
}

}  // namespace

TEST_CASE("data is spread over all interfaces that are named, and over no other") {
  Shared<Networks> one, both;
  Shared<int> made;
  const pid_t pid = start_process([&] {
    if (!make_networks()) return 0;
    *made = 1;
    if (!networks_are_up()) return 1;
    *one = used("=n1");
    *both = used("=n1,n2");
    return 0;
  });
  REQUIRE(reap({pid}, 100));
  if (*made == 0) {
    return skip("no network namespaces (needs root or CAP_SYS_ADMIN and CAP_NET_ADMIN, and ip)");
  }
  CHECK(one->first > 0);
  CHECK(one->second == 0);
  CHECK(both->second > 0);
  CHECK(both->first > 0);
}
