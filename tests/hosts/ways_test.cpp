// Two hosts, each a network namespace. Data must go a way that exists, as the bootstrap does.
#include <ccl/algo/tree.hpp>
#include <ccl/collective.hpp>
#include <ccl/proto/simple.hpp>
#include <ccl/transport/any_of.hpp>

#include <fmt/format.h>

#include <cstring>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/lan.hpp"
#include "support/processes.hpp"
#include "support/ranks.hpp"
#include "support/skip.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {

using Sum = Collective<AllReduce, Tree, Simple, AnyOf<ShmTransport, SocketTransport>>;
constexpr int ranks = 2;

struct Texts {
  char of[ranks][512];
};

Answer sum_of_two() {
  Config config;
  config.timeout_s = config.init_timeout_s = 10;
  CCL_TRY(const auto comm, Communicator::from_env(config));
  CCL_TRY(const auto sum, Sum::create(comm));
  int value = comm.rank() + 1;
  CCL_CHECK(sum(&value, &value, 1));
  CCL_CHECK(comm.finalize());
  return fmt::format("{}", value);
}

/// Runs a rank on each host, with these variables, and returns what each says.
std::vector<std::string> run_on(const Lan& lan, const std::string& variables) {
  Shared<Texts> texts;
  std::vector<pid_t> pids;
  for (int r = 0; r < ranks; ++r) {
    pids.push_back(start_process([&, r] {
      lan.enter(r);
      ::setenv("RANK", fmt::format("{}", r).c_str(), 1);
      ::setenv("WORLD_SIZE", "2", 1);
      ::setenv("MASTER_ADDR", Lan::address(0).c_str(), 1);
      ::setenv("MASTER_PORT", "23511", 1);
      const auto equals = variables.find('=');
      if (equals != variables.npos) {
        ::setenv(variables.substr(0, equals).c_str(), variables.substr(equals + 1).c_str(), 1);
      }
      const auto said = sum_of_two();
      const std::string text = said ? *said : said.error().message();
      std::strncpy(texts->of[r], text.c_str(), sizeof texts->of[r] - 1);
      return 0;
    }));
  }
  CHECK(reap(pids, 60));
  return {texts->of, texts->of + ranks};
}

}  // namespace

TEST_CASE("hosts with one CCL_HOSTID that share no memory talk over TCP") {
  const Lan lan{2};
  if (!lan.good()) return skip(no_lan);
  for (const char* variable : {"", "CCL_HOSTID=one", "NCCL_HOSTID=one"}) {
    INFO(variable);
    for (const std::string& text : run_on(lan, variable)) CHECK(text == "3");
  }
}

TEST_CASE("data goes by the interface that has reached the root, not by the first") {
  const Lan lan{2};
  if (!lan.good()) return skip(no_lan);
  // An interface before eth0, in a network that ends in itself.
  for (int host = 0; host < ranks; ++host) {
    const std::string dead = fmt::format(
        "ip link add bmc0 type veth peer name bmcp && ip addr add 10.98.0.{}/24 dev bmc0 && "
        "ip link set bmcp up && ip link set bmc0 up && ip addr del {}/24 dev eth0 && "
        "ip link set eth0 down && ip link set eth0 name zz0 && ip link set zz0 up && "
        "ip addr add {}/24 dev zz0",
        host + 1, Lan::address(host), Lan::address(host));
    REQUIRE(lan.in(host, dead));
  }
  for (const std::string& text : run_on(lan, "")) CHECK(text == "3");
  for (const std::string& text : run_on(lan, "CCL_SOCKET_IFNAME=zz0")) CHECK(text == "3");
}

TEST_CASE("an interface that leads nowhere is an error that names the setting") {
  const Lan lan{2};
  if (!lan.good()) return skip(no_lan);
  for (int host = 0; host < ranks; ++host) {
    REQUIRE(lan.in(host, fmt::format("ip link add bmc0 type veth peer name bmcp && "
                                     "ip addr add 10.98.0.{}/24 dev bmc0 && "
                                     "ip link set bmcp up && ip link set bmc0 up",
                                     host + 1)));
  }
  for (const std::string& text : run_on(lan, "NCCL_SOCKET_IFNAME=bmc0")) {
    INFO(text);
    CHECK(text.find("SOCKET_IFNAME") != text.npos);
  }
}
