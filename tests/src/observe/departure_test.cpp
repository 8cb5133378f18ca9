// Ranks whose processes exit with live communicators: who needs nothing more of them sees no error,
// and who needs more gets one that names them.
#include "comm/observe/departure.hpp"

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "comm/state.hpp"
#include "support/environment.hpp"
#include "support/exiting.hpp"
#include "support/fake_verbs.hpp"
#include "support/on_ranks.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {

/// Rank 1 ends its process after calls of all; rank 0 looks later.
template <class Transport>
void leaves_early() {
  CHECK(exiting(2, [](const Communicator& comm) {
    auto made = SumOver<Transport>::create(comm);
    if (!made) return 1;
    auto& sum = *new SumOver<Transport>{*std::move(made)};
    for (int n = 0; n < 5; ++n) {
      float x = 1;
      if (!sum(&x, &x, 1) || x != 2) return 2;
    }
    if (comm.rank() == 1) return 0;
    sleep_s(1.2);
    if (!comm.status()) return 3;
    return comm.finalize() ? 0 : 4;
  }));
}

/// All ranks exit right after their last call, in which each receives from all.
template <class Transport>
int last_call(const Communicator& comm, Index count) {
  auto made = ToAll<Transport>::create(comm);
  if (!made) return 1;
  auto& to_all = *new ToAll<Transport>{*std::move(made)};
  const int ranks = comm.ranks();
  std::vector<int> in(std::size_t(ranks * count)), out(in.size(), -1);
  for (int round = 0; round < 3; ++round) {
    for (int r = 0; r < ranks; ++r) {
      std::fill_n(in.begin() + r * count, count, 100 * comm.rank() + 10 * r + round);
    }
    if (auto done = to_all(in.data(), out.data(), count); !done) {
      std::fprintf(stderr, "%s\n", done.error().message().c_str());
      return 2;
    }
    for (int r = 0; r < ranks; ++r) {
      const int wanted = 100 * r + 10 * comm.rank() + round;
      for (Index i = 0; i < count; ++i) {
        if (out[std::size_t(r * count + i)] != wanted) return 3;
      }
    }
  }
  return 0;
}

}  // namespace

TEST_CASE("the exit of a process is no failure of ranks that need nothing more of it") {
  leaves_early<ShmTransport>();
  leaves_early<SocketTransport>();
}

TEST_CASE("a report does not miss a rank that has departed") {
  CHECK(exiting(3, [](const Communicator& comm) {
    if (!comm.barrier()) return 1;
    if (comm.rank() == 2) return 0;
    auto& state = *detail::Access::state(comm);
    for (int n = 0; n < 500 && !state.status.has_departed(2); ++n) sleep_s(0.01);
    if (!state.status.has_departed(2)) return 2;
    const Report report = comm.report();
    if (report.ranks.size() != 3 || report.ranks[2].answered) return 3;
    // The other one may be in `finalize` already.
    return report.behind != 2 && comm.finalize() ? 0 : 4;
  }));
}

TEST_CASE("a program may exit after its last call: 45 runs") {
  for (int turn = 0; turn < 15; ++turn) {
    CHECK(exiting(4, [](const Communicator& comm) { return last_call<ShmTransport>(comm, 1000); }));
    CHECK(exiting(4, [](const Communicator& comm) { return last_call<SocketTransport>(comm, 1); }));
    CHECK(exiting(
        3, [](const Communicator& comm) { return last_call<SocketTransport>(comm, 300'000); }));
  }
}

TEST_CASE("what a process sent before its exit arrives") {
  for (int turn = 0; turn < 5; ++turn) {
    CHECK(exiting(3, [](const Communicator& comm) {
      auto shm = FromRoot<ShmTransport>::create(comm);
      auto tcp = FromRoot<SocketTransport>::create(comm);
      if (!shm || !tcp) return 1;
      std::vector<int> data(1000, comm.rank() == 0 ? 7 : 0), further = data;
      // Once before, which connects.
      if (!(*shm)(data.data(), data.data(), 1000, 0)) return 2;
      if (!(*tcp)(data.data(), data.data(), 1000, 0) || !comm.barrier()) return 2;
      if (comm.rank() != 0) sleep_s(0.4);  // the root has ended by then
      if (!(*shm)(further.data(), further.data(), 1000, 0) || further[999] != 7) return 3;
      if (comm.rank() != 0) std::fill(further.begin(), further.end(), 0);
      if (!(*tcp)(further.data(), further.data(), 1000, 0) || further[999] != 7) return 4;
      if (comm.rank() == 0) {
        new FromRoot<ShmTransport>{*std::move(shm)};
        new FromRoot<SocketTransport>{*std::move(tcp)};
        return 0;
      }
      return comm.status() && comm.finalize() ? 0 : 5;
    }));
  }
}

TEST_CASE("a process waits with its exit for a receiver that is late") {
  // More than the kernel's buffers hold.
  constexpr Index count = 8 << 20;
  CHECK(exiting(2, [](const Communicator& comm) {
    auto made = FromRoot<SocketTransport>::create(comm);
    if (!made) return 1;
    auto& tcp = *new FromRoot<SocketTransport>{*std::move(made)};
    std::vector<int> data(count, comm.rank() == 0 ? 7 : 0);
    if (!tcp(data.data(), data.data(), count, 0) || !comm.barrier()) return 2;
    if (comm.rank() == 1) std::fill(data.begin(), data.end(), 0);
    if (comm.rank() == 1) sleep_s(0.7);
    if (!tcp(data.data(), data.data(), count, 0)) return 3;
    if (comm.rank() == 0) return 0;
    if (std::count(data.begin(), data.end(), 7) != count) return 4;
    return comm.status() && comm.finalize() ? 0 : 5;
  }));
}

TEST_CASE("windows and registered buffers may be alive at the exit, here and on ranks that stay") {
  CHECK(exiting(3, [](const Communicator& comm) {
    static std::vector<float> memory(1 << 16, 1);
    std::optional<RegisteredBuffer> buffer;
    std::optional<Window> window;
    const auto keep = [](auto made, auto& to) {
      if (made) to.emplace(*std::move(made));
      return made.has_value();
    };
    const auto bytes = Index(memory.size() * sizeof(float));
    if (!keep(RegisteredBuffer::create(comm, memory.data(), bytes), buffer)) return 1;
    const auto& shared = *new auto(SharedMemory::allocate(comm, bytes).value());
    if (!keep(Window::create(comm, shared), window)) return 2;
    auto& sum = *new auto(SumOver<SocketTransport>::create(comm).value());
    if (!sum(memory.data(), memory.data(), Index(memory.size())) || !comm.barrier()) return 3;
    if (comm.rank() == 1) {
      new auto(*std::move(buffer));
      new auto(*std::move(window));
      return 0;
    }
    sleep_s(1);
    buffer.reset();
    window.reset();
    return comm.status() && comm.finalize() ? 0 : 4;
  }));
}

TEST_CASE("over RDMA, a rank that departs has sent what it posted") {
  const auto in_process = []() -> int {
    FakeVerbs fabric{2};
    const Environment two_hosts{"CCL_SHM_DISABLE", "1"};
    const UniqueId id = create_unique_id().value();
    std::atomic<int> wrong{0}, gone{0};
    const auto rank = [&](int r) {
      auto made = Communicator::create(id, r, 2, on_cpu());
      if (!made) return void(wrong = 1);
      std::optional<Communicator> comm{*std::move(made)};
      auto from_root = FromRoot<IbTransport>::create(*comm);
      if (!from_root) return void(wrong = 2);
      std::optional<FromRoot<IbTransport>> all{*std::move(from_root)};
      std::vector<int> data(1000, r == 0 ? 7 : 0);
      if (!(*all)(data.data(), data.data(), 1000, 0) || !comm->barrier()) return void(wrong = 3);
      if (r == 1) std::fill(data.begin(), data.end(), 0);
      if (r == 1 && !wait_until([&] { return gone.load() == 1; }, 30)) return void(wrong = 4);
      if (!(*all)(data.data(), data.data(), 1000, 0) || data[999] != 7) return void(wrong = 5);
      if (r == 0) {
        detail::Departure::begin_exit();
        all.reset();
        comm.reset();  // departs
        gone = 1;
        return;
      }
      sleep_s(1.2);
      if (!comm->status()) wrong = 6;
      if (!comm->finalize()) wrong = 7;
    };
    std::thread root{[&] { rank(0); }}, other{[&] { rank(1); }};
    root.join();
    other.join();
    return wrong;
  };
  CHECK(reap({start_process(in_process)}, 60));
}

namespace {
/// Calls of ranks 0 and 2 after rank 1 has ended by `end`. Returns what they said.
template <class Transport>
std::vector<std::string> later_calls(const std::function<void()>& end) {
  Words words;
  CHECK(exiting(
      3,
      [&](const Communicator& comm) {
        auto made = SumOver<Transport>::create(comm);
        if (!made) return 1;
        auto& sum = *new SumOver<Transport>{*std::move(made)};
        float x = 1;
        if (!sum(&x, &x, 1) || x != 3) return 2;
        if (comm.rank() == 1) {
          sleep_s(0.2);  // a rank that is killed fails the calls that still run
          end();
          return 0;
        }
        sleep_s(comm.rank() == 2 ? 0.5 : 0.1);
        const auto begin = Clock::now();
        words.keep(comm.rank(), sum(&x, &x, 1));
        if (comm.status()) return 3;
        return seconds(Clock::now() - begin) < 20 ? 0 : 4;
      },
      1));
  return {words.of(0), words.of(2)};
}

constexpr const char* departed = "has ended (its process exited without";
constexpr const char* lost = "killed, crashed, or exited without";
}  // namespace

TEST_CASE("a call that needs a rank whose process has exited fails, and names it, on all ranks") {
  const auto each = [](const std::vector<std::string>& all) {
    for (const std::string& text : all) {
      INFO(text);
      CHECK(text.find("rank 1 on ") != std::string::npos);
      CHECK(text.find(departed) != std::string::npos);
    }
  };
  each(later_calls<ShmTransport>([] { std::exit(0); }));
  each(later_calls<SocketTransport>([] { std::exit(0); }));
}

TEST_CASE("a process that does not exit in order is lost, for all and by name") {
  const std::function<void()> ends[] = {
      [] { ::raise(SIGKILL); }, [] { ::_exit(0); }, [] { std::quick_exit(0); },
      [] {
        std::signal(SIGABRT, SIG_DFL);
        std::abort();
      },
      [] {
        std::signal(SIGABRT, SIG_DFL);
        std::thread{[] { throw std::runtime_error{"none"}; }}.join();
      }};
  for (const auto& end : ends) {
    for (const std::string& text : later_calls<ShmTransport>(end)) {
      INFO(text);
      CHECK(text.find("rank 1 on ") != std::string::npos);
      CHECK(text.find(lost) != std::string::npos);
    }
  }
}

TEST_CASE("a process that does not exit in order is lost at once, without a call that needs it") {
  CHECK(exiting(
      3,
      [](const Communicator& comm) {
        if (!comm.barrier()) return 1;
        if (comm.rank() == 1) {
          sleep_s(0.2);  // the others leave the barrier
          ::_exit(0);
        }
        return wait_until([&] { return !comm.status(); }, 5) ? 0 : 2;
      },
      1));
}

TEST_CASE("the other ranks of a job with departed ones end well, in any order") {
  CHECK(exiting(5, [](const Communicator& comm) {
    if (!comm.barrier()) return 1;
    if (comm.rank() == 1 || comm.rank() == 3) return 0;
    sleep_s(0.2 * comm.rank());
    return comm.status() && comm.finalize() ? 0 : 2;
  }));
}

namespace {

const Communicator* looked_at = nullptr;
/// Registered before the communicator is created, so it runs after the departure.
void look_last() {
  if (looked_at != nullptr && !looked_at->status()) {
    std::fprintf(stderr, "%s\n", looked_at->status().error().message().c_str());
    ::_exit(40);
  }
}

/// Exits rank r of `after.size()`, all connected to all, at `after[r]` seconds. No rank may see an
/// error, neither before its exit nor in it.
template <class Transport>
void exits_at(const std::vector<double>& after) {
  const int ranks = int(after.size());
  looked_at = nullptr;
  const IdElsewhere id;
  std::vector<pid_t> all;
  for (int rank = 0; rank < ranks; ++rank) {
    all.push_back(start_process([&]() -> int {
      ::alarm(100);
      std::atexit(look_last);
      auto made = Communicator::create(id.get(), rank, ranks, on_cpu());
      if (!made) return 90;
      const auto& comm = *new Communicator{*std::move(made)};
      looked_at = &comm;
      auto pairs = ToAll<Transport>::create(comm);
      if (!pairs) return 1;
      auto& to_all = *new ToAll<Transport>{*std::move(pairs)};
      std::vector<float> in(std::size_t(ranks), 1), out = in;
      for (int n = 0; n < 5; ++n) {
        if (!to_all(in.data(), out.data(), 1)) return 2;
      }
      if (!comm.barrier()) return 3;
      sleep_s(after[std::size_t(rank)]);
      std::exit(comm.status() ? 0 : 4);
    }));
  }
  CHECK(reap(all, 100));
}

}  // namespace

TEST_CASE("all ranks of an all-to-all exit at once, without an error") {
  for (int turn = 0; turn < 5; ++turn) exits_at<SocketTransport>({0, 0, 0, 0, 0});
}

TEST_CASE("ranks exit while others stay that have lost both neighbors, without an error") {
  exits_at<SocketTransport>({0, 0.5, 0.2, 3.5});
  exits_at<SocketTransport>({0, 0, 0, 0, 3});
  exits_at<SocketTransport>({0, 0.4, 0.2, 3, 3});
}

TEST_CASE("a rendezvous that needs a departed rank fails, and a shrink without it succeeds") {
  Words words;
  CHECK(exiting(3, [&](const Communicator& comm) {
    if (!comm.barrier()) return 1;
    if (comm.rank() == 1) return 0;
    words.keep(comm.rank(), comm.barrier());
    const int gone[] = {1};
    auto rest = comm.shrink(gone);
    if (!rest || rest->ranks() != 2 || !rest->barrier()) return 2;
    return rest->finalize() ? 0 : 3;
  }));
  for (const int r : {0, 2}) {
    INFO(words.of(r));
    CHECK(words.of(r).find(departed) != std::string::npos);
  }
}

TEST_CASE("a composition that needs a departed rank is not created") {
  Words words;
  CHECK(exiting(3, [&](const Communicator& comm) {
    if (!comm.barrier()) return 1;
    if (comm.rank() == 1) return 0;
    auto made = SumOver<ShmTransport>::create(comm);
    words.keep(comm.rank(), made ? Result<void>{} : fail(made.error()));
    return 0;
  }));
  for (const int r : {0, 2}) {
    INFO(words.of(r));
    CHECK(words.of(r).find(departed) != std::string::npos);
  }
}

TEST_CASE("a shrink without a departed rank works before anything fails") {
  CHECK(exiting(3, [](const Communicator& comm) {
    if (!comm.barrier()) return 1;
    if (comm.rank() == 1) return 0;
    sleep_s(0.3);
    const int gone[] = {1};
    auto rest = comm.shrink(gone);
    if (!rest || !rest->barrier() || !rest->finalize()) return 2;
    return comm.status() && comm.finalize() ? 0 : 3;
  }));
}
