// Clients that misbehave: they cost a job nothing, and other clients get their answers.
#include <ccl/algo/tree.hpp>
#include <ccl/collective.hpp>
#include <ccl/proto/simple.hpp>

#include <fmt/format.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "observe/health/service.hpp"
#include "support/catch.hpp"
#include "support/environment.hpp"
#include "support/held_port.hpp"
#include "support/ras_client.hpp"

using namespace ccl;
using namespace ccl::test;
using ccl::detail::health::Service;

namespace {
constexpr const char* here = "127.0.0.1";
using Sums = Collective<AllReduce, Tree, Simple, DefaultTransport>;

long resident_kib() {
  std::ifstream status{"/proc/self/status"};
  for (std::string word; status >> word;) {
    long kib = 0;
    if (word == "VmRSS:" && status >> kib) return kib;
  }
  return 0;
}

/// Two ranks, as threads, that sum until `body(port)` returns. Returns their errors and sums.
template <class Body>
std::pair<int, long> beside_work(Body&& body) {
  const HeldPort port;
  const Environment place{"CCL_RAS_ADDR", fmt::format("{}:{}", here, port.number())};
  const auto id = create_unique_id();
  std::atomic<bool> over{false};
  std::atomic<int> errors{0};
  std::atomic<long> sums_done{0};
  std::vector<std::thread> ranks;
  for (int r = 0; r < 2; ++r) {
    ranks.emplace_back([&, r] {
      const auto work = [&]() -> Result<void> {
        Config config;
        config.timeout_s = 30;
        CCL_TRY(const auto comm, Communicator::create(*id, r, 2, config));
        CCL_TRY(const auto sums, Sums::create(comm));
        for (float go = 1; go > 0;) {  // all ranks stop after the same sum
          go = r == 0 && over ? 0.f : float(r == 0);
          CCL_CHECK(sums(&go, &go, 1, Sum{}));
          ++sums_done;
        }
        return comm.finalize();
      };
      if (!work()) ++errors;
    });
  }
  body(port.number());
  over = true;
  for (std::thread& rank : ranks) rank.join();
  return {errors.load(), sums_done.load()};
}
bool answers(int port) {
  return status_of(here, port).is_object();
}
}  // namespace

TEST_CASE("clients beyond the limit displace those that are quiet, and STATUS is answered") {
  bool answered = false, first_is_closed = false;
  const auto [errors, sums] = beside_work([&](int port) {
    std::vector<RasClient> quiet;
    for (std::size_t i = 0; i < 3 * Service::max_clients; ++i) quiet.emplace_back(here, port);
    answered = answers(port);
    first_is_closed = quiet.front().read("", 3).empty();
  });
  CHECK(answered);
  CHECK(first_is_closed);
  CHECK(errors == 0);
  CHECK(sums > 0);
}

TEST_CASE("as many clients as may be displace none") {
  int greeted = 0, again = 0;
  const auto [errors, sums] = beside_work([&](int port) {
    std::vector<RasClient> clients;
    const auto greets = [](const RasClient& client) {
      return client.send("CLIENT PROTOCOL 2\n") && client.read("\n", 5) == "SERVER PROTOCOL 2\n";
    };
    for (std::size_t i = 0; i < Service::max_clients; ++i) {
      clients.emplace_back(here, port);
      greeted += greets(clients.back());
    }
    for (const RasClient& client : clients) again += greets(client);
  });
  CHECK(greeted == int(Service::max_clients));
  CHECK(again == int(Service::max_clients));
  CHECK(errors == 0);
  CHECK(sums > 0);
}

TEST_CASE("clients that ask and do not read do not hold up another one") {
  bool answered = true;
  const auto [errors, sums] = beside_work([&](int port) {
    std::vector<RasClient> slow;
    for (int i = 0; i < 8; ++i) {
      slow.emplace_back(here, port);
      (void)slow.back().send("MONITOR all\n");
      for (int n = 0; n < 200; ++n) {
        if (!slow.back().send("x\ny\nSET FORMAT json\n")) break;
      }
      (void)slow.back().send("STATUS\n");
    }
    for (int i = 0; i < 3; ++i) answered = answered && answers(port);
  });
  CHECK(answered);
  CHECK(errors == 0);
  CHECK(sums > 0);
}

TEST_CASE("half a line gets no answer until its other half comes") {
  std::string first, second;
  const auto [errors, sums] = beside_work([&](int port) {
    const RasClient client{here, port};
    (void)client.send("CLIENT PRO");
    first = client.read("\n", 0.3);
    (void)client.send("TOCOL 2\n");
    second = client.read("\n", 3);
  });
  CHECK(first == "[late]");
  CHECK(second == "SERVER PROTOCOL 2\n");
  CHECK(errors == 0);
}

TEST_CASE("garbage and port scans have no effect and leave no memory behind") {
  long before = 0, after = 0;
  bool answered = false;
  const auto [errors, sums] = beside_work([&](int port) {
    answered = answers(port);
    std::mt19937 random{7};
    const auto attack = [&](int times) {
      for (int i = 0; i < times; ++i) {
        const RasClient scan{here, port, 0};
        if (!scan || i % 3 == 0) continue;  // a scan connects and closes
        std::string bytes(random() % 3000, 0);
        for (char& c : bytes) c = char(random());
        (void)scan.send(bytes);
      }
    };
    attack(200);
    before = resident_kib();
    attack(1500);
    answered = answered && answers(port);
    after = resident_kib();
  });
  INFO(before << " KiB, then " << after);
  CHECK(answered);
  CHECK(after - before < 4096);
  CHECK(errors == 0);
  CHECK(sums > 0);
}
