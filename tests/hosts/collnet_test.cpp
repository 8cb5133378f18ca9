// Hosts that are network namespaces, whose network reduces by the plug-in that does so in software.
#include <ccl/algo/collnet_chain.hpp>
#include <ccl/algo/collnet_direct.hpp>
#include <ccl/collective.hpp>
#include <ccl/proto/simple.hpp>
#include <ccl/transport/collnet.hpp>

#include <fmt/format.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "comm/state.hpp"
#include "support/catch.hpp"
#include "support/lan.hpp"
#include "support/processes.hpp"
#include "support/ranks.hpp"
#include "support/skip.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {

constexpr Index count = 50'001;

template <class Algo>
using Sums = Collective<AllReduce, Algo, Simple, CollNetTransport>;

struct Texts {
  std::atomic<int> ready{0};
  std::atomic<bool> go{false};
  char of[max_ranks][600] = {};
};

/// Host of each rank: one rank and two in turn.
std::vector<int> hosts_of_ranks(int hosts) {
  std::vector<int> of;
  for (int h = 0; h < hosts; ++h) of.insert(of.end(), std::size_t(1 + h % 2), h);
  return of;
}

/// Runs the ranks of so many hosts. `meanwhile(texts, ranks)` runs beside them.
template <class Body, class Meanwhile>
std::vector<std::string> run_on(const Lan& lan, int hosts, double timeout_s, Body body,
                                Meanwhile meanwhile) {
  const std::vector<int> host_of = hosts_of_ranks(hosts);
  Shared<Texts> texts;
  std::vector<pid_t> pids;
  for (std::size_t r = 0; r < host_of.size(); ++r) {
    pids.push_back(start_process([&, r] {
      lan.enter(host_of[r]);
      on_host(fmt::format("host{}", host_of[r]));
      const auto set = [](const char* name, const std::string& value) {
        ::setenv(name, value.c_str(), 1);
      };
      set("RANK", std::to_string(r));
      set("WORLD_SIZE", std::to_string(host_of.size()));
      set("MASTER_ADDR", Lan::address(0));
      set("MASTER_PORT", "23517");
      set("CCL_COLLNET_ENABLE", "1");
      set("CCL_NET_PLUGIN", CCL_TEST_SOFTWARE_COLLNET);
      const auto work = [&]() -> Answer {
        Config config;
        config.timeout_s = timeout_s;
        config.init_timeout_s = 20;
        CCL_TRY(const auto comm, Communicator::from_env(config));
        return body(comm, *texts);
      };
      const Answer said = work();
      const std::string text = said ? *said : said.error().message();
      std::strncpy(texts->of[r], text.c_str(), sizeof texts->of[r] - 1);
      return 0;
    }));
  }
  meanwhile(*texts, int(host_of.size()));
  CHECK(reap(pids, 60));
  return {texts->of, texts->of + host_of.size()};
}

/// Adds up, and returns "right" or what is wrong.
template <class Call>
Answer add_up(const Communicator& comm, const Call& call) {
  const int ranks = comm.ranks();
  std::vector<int> data(std::size_t{count});
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = comm.rank() + int(i);
  CCL_CHECK(call(data.data(), data.data(), count, Sum{}));
  for (std::size_t i = 0; i < data.size(); ++i) {
    const int want = ranks * (ranks - 1) / 2 + ranks * int(i);
    if (data[i] != want) return fmt::format("element {} is {}, not {}", i, data[i], want);
  }
  return std::string{"right"};
}

}  // namespace

TEST_CASE("hosts whose network reduces: the head of a host sends the message once") {
  const Lan lan{8};
  if (!lan.good()) return skip(no_lan);
  const auto body = [](const Communicator& comm, Texts&) -> Answer {
    Plan plan;
    plan.slot_count = 4;
    plan.slot_bytes = 16'384;
    CCL_TRY(const auto chain, Sums<CollNetChain>::create(comm, plan));
    CCL_TRY(const std::string said, add_up(comm, chain));
    const auto& proxy = detail::Access::state(comm)->proxy;
    const auto sent_once = [&] { return proxy.counters().bytes == Word(count) * sizeof(int); };
    const bool sent = proxy.counters().steps > 0;
    const bool once = !sent || wait_until(sent_once, 5);
    CCL_TRY(const auto direct, Sums<CollNetDirect>::create(comm, plan));
    CCL_TRY(const std::string again, add_up(comm, direct));
    CCL_CHECK(comm.finalize());
    return fmt::format("{} {} {}", said, again, !once ? "often" : sent ? "once" : "nothing");
  };
  for (const int hosts : {2, 8}) {
    const auto said = run_on(lan, hosts, 20, body, [](Texts&, int) {});
    const std::vector<int> host_of = hosts_of_ranks(hosts);
    for (std::size_t r = 0; r < said.size(); ++r) {
      INFO("rank " << r << " of " << hosts << " hosts");
      const bool leads = r == 0 || host_of[r - 1] != host_of[r];
      CHECK(said[r] == (leads ? "right right once" : "right right nothing"));
    }
  }
}

TEST_CASE("hosts whose network reduces: a host that is unplugged ends the call everywhere") {
  const Lan lan{3};
  if (!lan.good()) return skip(no_lan);
  const auto body = [](const Communicator& comm, Texts& texts) -> Answer {
    CCL_TRY(const auto chain, Sums<CollNetChain>::create(comm));
    CCL_CHECK(add_up(comm, chain));
    ++texts.ready;
    if (!wait_until([&] { return texts.go.load(); }, 20)) return std::string{"no signal"};
    const auto start = Clock::now();
    const auto late = add_up(comm, chain);
    if (late) return std::string{"no error"};
    if (seconds(Clock::now() - start) > 15) return std::string{"too late"};
    return late.error().message();
  };
  const auto said = run_on(lan, 3, 1, body, [&](Texts& texts, int ranks) {
    CHECK(wait_until([&] { return texts.ready == ranks; }, 30));
    lan.unplug(2);
    texts.go = true;
  });
  for (const std::string& one : said) {
    INFO(one);
    CHECK((one.find("timed_out: ") != one.npos || one.find("peer_lost: ") != one.npos ||
           one.find("network: ") != one.npos));
  }
}
