// Senders of GPU ranks, whose connections are made when a step needs them, without lanes.
#include "transport/proxied/late_calls.hpp"

#include <ccl/detail/runtime/proxy_engine.hpp>
#include <ccl/transport/ib.hpp>
#include <ccl/transport/socket.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gpu/memory.hpp"
#include "support/catch.hpp"
#include "support/driver.hpp"
#include "support/environment.hpp"
#include "support/fake_gpus.hpp"
#include "support/fake_verbs.hpp"
#include "support/lent.hpp"
#include <sys/socket.h>

using namespace ccl;
using namespace ccl::test;
using namespace ccl::detail;

namespace {

net::SecureSocket some_socket() {
  return net::SecureSocket{Fd{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)}};
}

/// Outcome of a line: a socket, an error, or nothing after a minute.
std::optional<Result<net::SecureSocket>> outcome_of(LateCalls& calls, std::size_t line) {
  std::optional<Result<net::SecureSocket>> outcome;
  (void)wait_until([&] {
    auto opened = calls.open(line);
    if (opened && !*opened) return false;
    outcome.emplace(std::move(opened));
    return true;
  });
  return outcome;
}

constexpr int ranks = 2;
constexpr WireShape shape{2, 4, 4096};

/// Both directions between two ranks on GPUs, with a value of CCL_RUNTIME_CONNECT for each.
template <class T>
class Pair {
 public:
  explicit Pair(std::array<const char*, ranks> late, const char* idle_s = "0") {
    const Environment idle{"CCL_CONNECTION_IDLE", idle_s};
    for (int r = 0; r < ranks; ++r) {
      const Environment setting{"CCL_RUNTIME_CONNECT", late[std::size_t(r)]};
      arenas_.push_back(std::make_unique<GpuArena>(Gpu::open(r).value()));
      lent[r].context.arena = arenas_.back().get();
      // In the order in which a composition sets up its ends: by sender.
      for (int sender = 0; sender < ranks; ++sender) set_up(r, sender);
    }
    for (int sender = 0; sender < ranks; ++sender) {
      out[sender] = connect(sender, sender);
      in[sender] = connect(1 - sender, sender);
    }
  }

  /// Moves steps in one direction.
  std::string move(int sender, Word steps, Word seed) {
    std::string problem;
    std::thread receiver{[&] {
      problem = pull(in[sender].wires[0], steps, seed, &lent[1 - sender].status).problem;
    }};
    auto sent = push(out[sender].wires[0], steps, seed, &lent[sender].status);
    receiver.join();
    return sent.problem.empty() ? problem : sent.problem;
  }

  Lent lent[ranks];
  Connection out[ranks], in[ranks];  // by sender

 private:
  void set_up(int rank, int sender) {
    PeerInfo infos[ranks];
    for (int r = 0; r < ranks; ++r) infos[r] = info_of(r);
    const auto side = rank == sender ? EdgeSide::sender : EdgeSide::receiver;
    const auto id =
        std::uint64_t{1} << 40 | std::uint64_t(sender) << 20 | std::uint64_t(1 - sender);
    auto end =
        T::setup(lent[rank].context, edge_of(infos[sender], infos[1 - sender], side, shape, id));
    REQUIRE(end);
    ends_[rank][sender].emplace(std::move(*end));
    handshakes_[rank][sender] = ends_[rank][sender]->handshake();
  }
  Connection connect(int rank, int sender) {
    auto made = ends_[rank][sender]->connect(handshakes_[1 - rank][sender]);
    if (!made) FAIL(made.error().message());
    return *std::move(made);
  }

  std::vector<std::unique_ptr<GpuArena>> arenas_;
  std::optional<typename T::End> ends_[ranks][ranks];  // by rank and sender
  Handshake handshakes_[ranks][ranks];
};
}  // namespace

TEST_CASE("a line is made once for each time that it is asked for") {
  ProxyEngine engine;
  std::atomic<int> made{0};
  std::vector<std::size_t> lines;
  const auto calls = LateCalls::make({&engine}, 3, [&](std::size_t line, const Status*) {
    lines.push_back(line);
    ++made;
    return Result<net::SecureSocket>{some_socket()};
  });
  CHECK(!calls->contains(2));
  CHECK(made == 0);
  for (int round = 1; round <= 2; ++round) {
    const auto outcome = outcome_of(*calls, 2);
    REQUIRE(outcome);
    CHECK((*outcome && **outcome));
    CHECK(made == round);
    CHECK(!calls->contains(2));
  }
  CHECK(lines == std::vector<std::size_t>{2, 2});
}

TEST_CASE("a line that cannot be made has the error of its call") {
  ProxyEngine engine;
  const auto calls = LateCalls::make({&engine}, 1, [&](std::size_t, const Status*) {
    return Result<net::SecureSocket>{fail(Errc::refused, "nobody there")};
  });
  const auto outcome = outcome_of(*calls, 0);
  REQUIRE(outcome);
  REQUIRE(!*outcome);
  CHECK(outcome->error().code == Errc::refused);
  CHECK(outcome->error().what == "nobody there");
}

TEST_CASE("the end of a sender stops its call, and those that have not begun") {
  ProxyEngine engine;
  std::atomic<int> begun{0};
  std::atomic<bool> stopped{false};
  auto calls = LateCalls::make({&engine}, 2, [&](std::size_t, const Status* stop) {
    ++begun;
    stopped = wait_until([&] { return !stop->ok(); });
    return Result<net::SecureSocket>{fail(Errc::aborted, "stopped")};
  });
  for (const std::size_t line : {0, 1}) REQUIRE(calls->open(line).has_value());
  REQUIRE(wait_until([&] { return begun == 1; }));
  calls.reset();  // waits for the thread
  CHECK(stopped);
  CHECK(begun == 1);
}

TEST_CASE("steps go both ways whichever of two ranks connects late") {
  FakeGpus::install(ranks);
  const auto late = GENERATE(std::array{"0", "0"}, std::array{"0", "1"}, std::array{"1", "0"},
                             std::array{"1", "1"});
  const int first = GENERATE(0, 1);
  INFO(late[0] << late[1] << ", rank " << first << " first");
  Pair<SocketTransport> pair{late};
  for (const int sender : {first, 1 - first, first}) CHECK(pair.move(sender, 50, 3) == "");
}

TEST_CASE("steps go both ways over RDMA whichever of two ranks connects late") {
  FakeGpus::install(ranks);
  const FakeVerbs fabric{2};
  const auto late = GENERATE(std::array{"0", "1"}, std::array{"1", "0"}, std::array{"1", "1"});
  Pair<IbTransport> pair{late};
  for (const int sender : {0, 1, 0}) CHECK(pair.move(sender, 50, 3) == "");
}

namespace {
/// Sends at random times, so that steps come before, during and after each rest.
template <class T>
void rest_often() {
  FakeGpus::install(ranks);
  Pair<T> pair{{"1", "1"}, "0.000001"};
  for (int round = 0; round < 60; ++round) {
    CHECK(pair.move(round % 3 % 2, Word(1 + 40 * (round % 3)), Word(round)) == "");
    const Word wait_us = mix(Word(round)) % 2000;
    std::this_thread::sleep_for(std::chrono::microseconds{long(wait_us)});
  }
}
}  // namespace

TEST_CASE("steps that are posted while a TCP connection comes to rest take the next one") {
  rest_often<SocketTransport>();
}

TEST_CASE("steps that are posted while queue pairs come to rest take the next ones") {
  const FakeVerbs fabric{2};
  rest_often<IbTransport>();
  CHECK(fabric.connected.size() > 20);  // two for each time that a direction rests
}
