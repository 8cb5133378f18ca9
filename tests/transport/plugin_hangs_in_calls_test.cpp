// Collective calls on CPU ranks over a network plug-in with a function that never returns.
#include <ccl/algo/pairwise.hpp>
#include <ccl/algo/ring.hpp>
#include <ccl/collective.hpp>
#include <ccl/comm/communicator.hpp>
#include <ccl/proto/simple.hpp>
#include <ccl/transport/plugin.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "support/elapsed.hpp"
#include "support/environment.hpp"
#include "support/error_matchers.hpp"
#include "support/on_ranks.hpp"
#include "support/plug_in_edge.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {

using Clock = std::chrono::steady_clock;

using Sums = Collective<AllReduce, Ring, Simple, PluginTransport>;
using Swaps = Collective<AllToAll, Pairwise, Simple, PluginTransport>;

Plan plan_of(int channels) {
  Plan plan;
  plan.channels = channels;
  plan.slot_count = 4;
  plan.slot_bytes = 8192;
  return plan;
}

/// Sums until a call fails.
Result<void> sum(const Communicator& comm, int channels) {
  CCL_TRY(const auto call, Sums::create(comm, plan_of(channels)));
  std::vector<int> data(1 << 16);
  for (int n = 0; n < 100'000; ++n) {
    std::fill(data.begin(), data.end(), 1);
    CCL_CHECK(call(data.data(), data.data(), Index(data.size()), Sum{}));
    for (const int one : data) {
      if (one != comm.ranks()) return fail(Errc::internal, "wrong data");
    }
  }
  return {};
}
Result<void> swap(const Communicator& comm, int channels) {
  CCL_TRY(const auto call, Swaps::create(comm, plan_of(channels)));
  std::vector<int> from(1 << 16, 1), to(1 << 16);
  for (int n = 0; n < 100'000; ++n) {
    CCL_CHECK(call(from.data(), to.data(), Index(from.size()) / comm.ranks()));
  }
  return {};
}

/// Result of each rank, of which all must fail.
std::vector<Error> errors_of(const std::vector<Communicator>& comms, const RankBody& body) {
  std::vector<Error> errors;
  for (const auto& result : on_ranks(comms, body)) {
    CHECK_FALSE(result.has_value());
    errors.push_back(result ? Error{} : result.error());
  }
  return errors;
}

std::vector<Communicator> make_ranks(double timeout_s) {
  Config config;
  config.device = Config::cpu;
  config.timeout_s = timeout_s;
  auto comms = Communicator::create_all(2, config);
  INFO((comms ? std::string{} : comms.error().message()));
  REQUIRE(comms.has_value());
  return *std::move(comms);
}

/// Runs `meanwhile` on a thread, once `function` of the plug-in is held.
std::thread once_held(const TestNet& net, const char* function, int calls,
                      std::function<void()> meanwhile) {
  return std::thread{[&net, function, calls, meanwhile = std::move(meanwhile)] {
    const auto begin = Clock::now();
    while (net.calls(function) <= calls && seconds_since(begin) < 30) {
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
    std::this_thread::sleep_for(std::chrono::milliseconds{100});
    meanwhile();
  }};
}

}  // namespace

TEST_CASE("a call ends within its limit, with the name of the function that does not return") {
  const TestNet& net = TestNet::all()[0];
  const Environment chosen{"CCL_NET_PLUGIN", net.path()};
  for (const auto& body : {sum, swap}) {
    for (const char* function : {"isend", "irecv", "test"}) {
      const int channels = function == std::string_view{"irecv"} ? 3 : 1;
      INFO(function << ", " << channels << " channels");
      auto comms = make_ranks(6);
      const auto begin = Clock::now();
      const Faulty fault{net, function, 400, TestNet::held};
      for (const Error& error :
           errors_of(comms, [&](const Communicator& comm) { return body(comm, channels); })) {
        INFO(error.message());
        CHECK(error.code == Errc::timed_out);
        CHECK(mentions(error.what,
                       fmt::format("{} of the network plug-in Test (", function).c_str()));
        CHECK(mentions(error.what, "(half of CCL_TIMEOUT)"));
      }
      // Later calls fail at once, and so does their communicator.
      (void)errors_of(comms, [&](const Communicator& comm) { return body(comm, 1); });
      comms.clear();
      CHECK(seconds_since(begin) < 30);
    }
  }
}

TEST_CASE("an abort ends a call whose plug-in does not return") {
  const TestNet& net = TestNet::all()[0];
  const Environment chosen{"CCL_NET_PLUGIN", net.path()};
  for (const char* function : {"isend", "irecv", "test"}) {
    INFO(function);
    auto comms = make_ranks(0);
    const auto begin = Clock::now();
    const int before = net.calls(function);
    const Faulty fault{net, function, 400, TestNet::held};
    auto aborts = once_held(net, function, before + 400, [&] { comms[0].abort(); });
    for (const Error& error :
         errors_of(comms, [&](const Communicator& comm) { return sum(comm, 2); })) {
      INFO(error.message());
      CHECK(error.code == Errc::aborted);
    }
    aborts.join();
    comms.clear();
    CHECK(seconds_since(begin) < 30);
  }
}

TEST_CASE("a finalize and the end do not wait for a function that does not return") {
  const TestNet& net = TestNet::all()[0];
  const Environment chosen{"CCL_NET_PLUGIN", net.path()};
  for (const char* function : {"test", "irecv", "deregMr", "closeSend", "closeRecv", "finalize"}) {
    INFO(function);
    auto comms = make_ranks(0);
    const auto begin = Clock::now();
    std::optional<Faulty> fault;
    on_all(comms, [&](const Communicator& comm) -> Result<void> {
      CCL_TRY(const auto call, Sums::create(comm, plan_of(1)));
      std::vector<int> data(1 << 12, 1);
      CCL_CHECK(call(data.data(), data.data(), Index(data.size()), Sum{}));
      CCL_CHECK(comm.barrier());
      if (comm.rank() == 0) fault.emplace(net, function, 0, TestNet::held);
      CCL_CHECK(comm.barrier());
      return comm.finalize();
    });
    comms.clear();
    CHECK(seconds_since(begin) < 30);
    fault.reset();
  }
}

TEST_CASE("calls of other communicators go on while a plug-in does not return to one") {
  const TestNet& net = TestNet::all()[0];
  const Environment chosen{"CCL_NET_PLUGIN", net.path()};
  /// Two ranks that call until rank 0 ends it, or until a call fails.
  struct Pair {
    std::vector<Communicator> comms = make_ranks(6);
    std::atomic<bool> over{false}, failed{false};
    std::atomic<int> calls{0};
    std::vector<Result<void>> results;
    std::thread thread;
    Result<void> run(const Communicator& comm) {
      CCL_TRY(const auto call, Sums::create(comm, plan_of(2)));
      std::vector<int> data(1 << 14);
      for (;;) {
        std::fill(data.begin(), data.end(), comm.rank() == 0 && over ? 0 : 1);
        CCL_CHECK(call(data.data(), data.data(), Index(data.size()), Sum{}));
        ++calls;
        if (data[0] != comm.ranks()) return {};
      }
    }
    void start() {
      thread = std::thread{[this] {
        results = on_ranks(comms, [this](const Communicator& comm) { return run(comm); });
        failed = !results[0].has_value();
      }};
    }
  };
  for (const char* function : {"isend", "irecv", "test"}) {
    INFO(function);
    Pair pairs[2];
    for (Pair& one : pairs) one.start();
    CHECK(wait_until([&] { return pairs[0].calls > 10 && pairs[1].calls > 10; }));
    const Faulty fault{net, function, 0, TestNet::one_held};
    CHECK(wait_until([&] { return pairs[0].failed || pairs[1].failed; }));
    Pair& stuck = pairs[pairs[0].failed ? 0 : 1];
    Pair& well = pairs[pairs[0].failed ? 1 : 0];
    const int before = well.calls;
    CHECK(wait_until([&] { return well.calls > before + 10; }));
    well.over = true;
    for (Pair& one : pairs) one.thread.join();
    check_well(well.results);
    for (const auto& result : stuck.results) {
      REQUIRE_FALSE(result.has_value());
      INFO(result.error().message());
      CHECK(result.error().code == Errc::timed_out);
      CHECK(mentions(result.error().what,
                     fmt::format("{} of the network plug-in Test (", function).c_str()));
    }
  }
}
