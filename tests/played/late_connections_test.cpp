// Network wires of GPU ranks, which connect when a step first needs them and disconnect when they
// are idle. The GPUs are played on the CPU.
#define CCL_PLAYED_WARP 2  // lanes of a warp
#include "support/played/played_gpus.hpp"
// Kernels come before other headers of ccl.
#include <ccl/algo/pairwise.hpp>
#include <ccl/algo/ring.hpp>
#include <ccl/collective.cuh>
#include <ccl/transport/ib.hpp>
#include <ccl/transport/socket.hpp>

#include <barrier>
#include <chrono>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "gpu/order/graph_resources.hpp"
#include "support/environment.hpp"
#include "support/fake_verbs.hpp"
#include "support/played/calls.hpp"
#include "support/played/capture.hpp"
#include <sys/socket.h>

using namespace ccl;
using namespace ccl::test;

namespace {
constexpr int ranks = 4;
constexpr Index count = 3000;  // elements of a message
constexpr Plan plan{.channels = 1, .slot_count = 4, .slot_bytes = 4096};
constexpr int ends = 2;  // of a connection, both in this process

/// TCP connections of this process.
int connections() {
  int found = 0;
  for (const auto& entry : std::filesystem::directory_iterator{"/proc/self/fd"}) {
    sockaddr_storage peer{};
    socklen_t bytes = sizeof peer;
    const int fd = std::stoi(entry.path().filename().string());
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &bytes) != 0) continue;
    found += int(peer.ss_family == AF_INET || peer.ss_family == AF_INET6);
  }
  return found;
}

/// Steps of a test, between which rank 0 counts the connections that there are beyond the first.
class Steps {
 public:
  /// All ranks reach a point; rank 0 looks there.
  template <class Look>
  void look(int rank, Look look) {
    all_.arrive_and_wait();
    if (rank == 0) look(connections() - first_);
    all_.arrive_and_wait();
  }
  /// Waits until so many connections are left, for at most a minute.
  void await(int rank, int left) {
    look(rank, [&](int) { CHECK(wait_until([&] { return connections() - first_ == left; }, 60)); });
  }
  /// Counts from here on. Ranks that have created a composition have the connections of their
  /// bootstrap, by which they tell each other where they listen.
  template <class C>
  std::string begin(const played::Rank& rank) {
    const auto made = C::create(rank.comm, plan);
    look(rank.rank, [&](int there) { first_ += there; });
    return played::failure_of(made);
  }

 private:
  std::barrier<> all_{ranks};
  int first_ = 0;
};

template <class T>
using Messages = Collective<SendRecv, Pairwise, Simple, T>;
using Tcp = Messages<SocketTransport>;

/// Each rank sends to the next one, some times, with looks at the connections.
template <class T>
void open_with_first_steps() {
  played::install(ranks, 4);
  auto comms = played::create_ranks(ranks, 1);
  Steps steps;
  played::on_each(comms, [&](const played::Rank& rank) -> std::string {
    if (auto wrong = steps.begin<Messages<T>>(rank); !wrong.empty()) return wrong;
    const auto made = Messages<T>::create(rank.comm, plan);
    if (!made) return made.error().message();
    steps.look(rank.rank, [](int there) { CHECK(there == 0); });
    auto wrong = played::send_recv(rank, *made, count, 2, 1);
    steps.look(rank.rank, [](int there) { CHECK(there == ranks * ends); });
    if (wrong.empty()) wrong = played::send_recv(rank, *made, count, 2, 1);
    steps.look(rank.rank, [](int there) { CHECK(there == ranks * ends); });
    if (wrong.empty()) wrong = played::send_recv(rank, *made, count, 2, 2);
    steps.look(rank.rank, [](int there) { CHECK(there == 2 * ranks * ends); });
    return wrong;
  });
}
}  // namespace

TEST_CASE("TCP wires of GPU ranks connect with their first step, by a setting") {
  const Environment late{"CCL_RUNTIME_CONNECT", "1"};
  open_with_first_steps<SocketTransport>();
}

TEST_CASE("RDMA wires of GPU ranks connect with their first step") {
  const FakeVerbs fabric{2};
  open_with_first_steps<IbTransport>();
}

TEST_CASE("TCP wires of GPU ranks connect in create without a setting, and if it is 0") {
  const std::string value = GENERATE(as<std::string>{}, "", "0");
  played::install(ranks, 4);
  auto comms = played::create_ranks(ranks, 1);
  Steps steps;
  // The composition before has no connections that would count.
  auto setting = std::make_unique<Environment>("CCL_RUNTIME_CONNECT", "1");
  played::on_each(comms, [&](const played::Rank& rank) -> std::string {
    if (auto wrong = steps.begin<Tcp>(rank); !wrong.empty()) return wrong;
    steps.look(rank.rank, [&](int) {
      setting = nullptr;
      setting = std::make_unique<Environment>("CCL_RUNTIME_CONNECT", value.c_str());
    });
    const auto made = Tcp::create(rank.comm, plan);
    if (!made) return made.error().message();
    int before = 0;  // of rank 0; both directions of a pair share a connection
    steps.look(rank.rank, [&](int there) {
      before = there;
      CHECK(there >= ranks * (ranks - 1) / 2 * ends);
    });
    auto wrong = played::send_recv(rank, *made, count, 2, 1);
    steps.look(rank.rank, [&](int there) { CHECK(there == before); });
    return wrong;
  });
}

namespace {
/// All wires rest after each of some rounds, where rank 0 calls `after()`.
template <class T, class After>
void rest_between_rounds(After after) {
  const Environment idle{"CCL_CONNECTION_IDLE", "0.1"};
  played::install(ranks, 4);
  auto comms = played::create_ranks(ranks, 1);
  Steps steps;
  played::on_each(comms, [&](const played::Rank& rank) -> std::string {
    if (auto wrong = steps.begin<Messages<T>>(rank); !wrong.empty()) return wrong;
    const auto made = Messages<T>::create(rank.comm, plan);
    if (!made) return made.error().message();
    std::string wrong;
    for (int round = 0; round < 3 && wrong.empty(); ++round) {
      wrong = played::send_recv(rank, *made, count, 3, 1 + round % 2);
      steps.await(rank.rank, 0);
      if (rank.rank == 0) after();
    }
    return wrong;
  });
}

/// A captured call is replayed after its wires have come to rest.
template <class T>
void rest_between_replays() {
  const Environment idle{"CCL_CONNECTION_IDLE", "0.1"};
  played::install(ranks, 4);
  auto comms = played::create_ranks(ranks, 1);
  Steps steps;
  played::on_each(comms, [&](const played::Rank& rank) -> std::string {
    if (auto wrong = steps.begin<Messages<T>>(rank); !wrong.empty()) return wrong;
    const auto made = Collective<AllReduce, Ring, Simple, T>::create(rank.comm, plan);
    if (!made) return made.error().message();
    std::vector<float> in, out(std::size_t(count), -1.f);
    for (Index i = 0; i < count; ++i) in.push_back(played::element(rank.rank, 0, i));
    played::Stream& stream = *played::stream_of(rank.stream);
    if (played::Capture::begin(stream) != CUDA_SUCCESS) return "no capture";
    const auto done = (*made)(in.data(), out.data(), count, Sum{}, rank.stream);
    played::Graph* graph = nullptr;
    if (stream.capture->end(stream, &graph) != CUDA_SUCCESS) return "no graph";
    const std::shared_ptr<played::Graph> kept{graph};
    std::string wrong = done ? "" : done.error().message();
    for (int replay = 0; replay < 3; ++replay) {
      std::fill(out.begin(), out.end(), -1.f);
      if (played::launch_graph(kept, rank.stream) != CUDA_SUCCESS) wrong = "no replay";
      rank.synchronize();
      for (Index i = 0; i < count && wrong.empty(); ++i) {
        const float is = out[std::size_t(i)], wanted = played::sum_of_elements(ranks, 0, i);
        if (is != wanted) wrong = fmt::format("element {} is {} and not {}", i, is, wanted);
      }
      steps.await(rank.rank, 0);
    }
    return wrong;
  });
  detail::free_graph_resources();  // which keep the communicators
}
}  // namespace

TEST_CASE("idle TCP wires of GPU ranks disconnect, and the next step connects them") {
  rest_between_rounds<SocketTransport>([] {});
}

TEST_CASE("idle RDMA wires of GPU ranks end their queue pairs, and the next step makes others") {
  FakeVerbs fabric{2};
  std::size_t connected = 0;
  rest_between_rounds<IbTransport>([&] {
    CHECK(fabric.queues == 0);  // of completions: each queue pair needs one
    const std::lock_guard lock{fabric.mutex};
    CHECK(fabric.connected.size() > connected);
    connected = fabric.connected.size();
  });
}

TEST_CASE("replays of a graph find their idle TCP wires connected anew") {
  rest_between_replays<SocketTransport>();
}

TEST_CASE("replays of a graph find their idle RDMA wires connected anew") {
  const FakeVerbs fabric{2};
  rest_between_replays<IbTransport>();
}

TEST_CASE("a step that has no receiver any more fails the sender, which names both ranks") {
  const Environment late{"CCL_RUNTIME_CONNECT", "1"};
  played::install(2, 4);
  auto comms = played::create_ranks(2, 1);
  std::barrier<> both{2};
  played::on_each(comms, [&](const played::Rank& rank) -> std::string {
    auto made = Tcp::create(rank.comm, plan);
    if (!made) return made.error().message();
    both.arrive_and_wait();
    if (rank.rank == 1) {
      made = fail(Errc::internal, "dropped");  // the composition ends here alone
      both.arrive_and_wait();
      both.arrive_and_wait();
      return "";
    }
    both.arrive_and_wait();
    std::vector<float> message(std::size_t(count), 1.f);
    (void)(*made)(message.data(), count, 1, message.data(), Index{0}, 1, rank.stream);
    const auto& status = detail::Access::state(rank.comm)->status;
    const bool failed = wait_until([&] { return !status.ok(); }, 60);
    both.arrive_and_wait();
    if (!failed) return "the step has not failed";
    const Error error = status.result().error();
    INFO(error.message());
    CHECK(error.rank == 0);
    CHECK(error.peer == 1);
    CHECK(error.transport == "socket");
    return "";
  });
}
