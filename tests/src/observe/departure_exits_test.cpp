// Ways in which a process with live communicators exits. None hangs.
#include <ccl/transport/plugin.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "comm/observe/departure.hpp"
#include "net/engine.hpp"
#include "support/environment.hpp"
#include "support/exiting.hpp"
#include "transport/proxied/cause.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {

/// Rank 0 sees no error for a second after rank 1 has begun to exit, and ends.
int stays(const Communicator& comm) {
  sleep_s(1);
  return comm.status() && comm.finalize() ? 0 : 50;
}

/// True if a process that exits by `body` takes less than `limit_s`.
template <class Body>
bool exits_within(double limit_s, Body body) {
  const auto begin = Clock::now();
  const bool ended = reap({start_process([&]() -> int {
                            ::alarm(60);
                            body();
                            std::exit(0);
                          })},
                          60);
  return ended && seconds(Clock::now() - begin) < limit_s;
}

}  // namespace

TEST_CASE("a return from main with a static handle is an exit in order") {
  CHECK(exiting(2, [](const Communicator& comm) {
    static const Communicator handle = comm;
    static auto sum = SumOver<ShmTransport>::create(handle);
    float x = 1;
    if (!sum || !(*sum)(&x, &x, 1)) return 1;
    if (comm.rank() == 0) return stays(comm);
    delete &comm;  // the static objects are the last owners
    return 0;
  }));
}

TEST_CASE("a static handle of a later communicator ends no less orderly") {
  const IdElsewhere id;
  CHECK(exiting(2, [&](const Communicator& comm) {
    auto first = SumOver<ShmTransport>::create(comm);
    float x = 1;
    if (!first || !(*first)(&x, &x, 1)) return 1;
    static auto later = Communicator::create(id.get(), comm.rank(), 2, on_cpu());
    if (!later) return 2;
    static auto sum = SumOver<SocketTransport>::create(*later);
    if (!sum || !(*sum)(&x, &x, 1)) return 3;
    if (comm.rank() == 1) return 0;
    sleep_s(1);
    return later->status() && later->finalize() ? stays(comm) : 4;
  }));
}

TEST_CASE("a process that exits calls no network plug-in whose static objects are destroyed") {
  const Environment chosen{"CCL_NET_PLUGIN", CCL_TEST_NET "12.so"};
  const auto start = [&](const IdElsewhere& id, int rank, bool finalizes) {
    return start_process([&id, rank, finalizes]() -> int {
      ::alarm(100);
      // Runs after the end of the library's static objects, whose functions then end the process.
      (void)std::atexit([] { ::usleep(200'000); });
      auto& comm = *new auto(Communicator::create(id.get(), rank, 2, on_cpu()));
      if (!comm) return 90;
      auto& sum = *new auto(SumOver<PluginTransport>::create(*comm));
      float x = 1;
      if (!sum || !(*sum)(&x, &x, 1)) return 91;
      if (finalizes && !comm->finalize()) return 93;
      if (rank == 1 || finalizes) std::exit(0);
      sleep_s(1);
      return comm->status() ? 0 : 92;
    });
  };
  for (const bool finalizes : {false, true}) {
    const IdElsewhere id;
    CHECK(reap({start(id, 0, finalizes), start(id, 1, finalizes)}, 100));
  }
}

TEST_CASE("a static handle without a composition ends in order, too") {
  const IdElsewhere id;
  CHECK(exiting(2, [&](const Communicator& comm) {
    static auto later = Communicator::create(id.get(), comm.rank(), 2, on_cpu());
    if (!later || !later->barrier()) return 2;
    if (comm.rank() == 1) return 0;
    sleep_s(1);
    return later->status() && later->finalize() ? stays(comm) : 4;
  }));
}

namespace {
/// Calls all ranks once more in its destructor, and ends the communicator there.
struct LateCaller {
  std::optional<Communicator> comm{};
  std::optional<SumOver<ShmTransport>> sum{};
  ~LateCaller() {
    if (!comm) return;
    float x = 1;
    if (!(*sum)(&x, &x, 1) || x != 2 || !comm->barrier() || !comm->finalize()) ::_exit(60);
  }
};
}  // namespace

TEST_CASE("static objects may call all ranks and finalize while the process exits") {
  CHECK(exiting(2, [](const Communicator& comm) {
    static LateCaller late;
    late.comm = comm;
    auto sum = SumOver<ShmTransport>::create(comm);
    if (!sum) return 1;
    late.sum = *std::move(sum);
    if (comm.rank() == 1) sleep_s(0.5);
    return 0;
  }));
}

TEST_CASE("a function of atexit from before the communicator may still finalize it") {
  static const Communicator* of_process = nullptr;
  const IdElsewhere id;
  std::vector<pid_t> all;
  for (int rank = 0; rank < 2; ++rank) {
    all.push_back(start_process([&]() -> int {
      ::alarm(60);
      std::atexit([] {
        if (!of_process->finalize()) ::_exit(70);
      });
      of_process = new Communicator{Communicator::create(id.get(), rank, 2, on_cpu()).value()};
      if (!of_process->barrier()) return 1;
      std::exit(0);
    }));
  }
  CHECK(reap(all, 60));
}

TEST_CASE("a process exits with several communicators at once") {
  const IdElsewhere id;
  CHECK(exiting(3, [&](const Communicator& comm) {
    std::vector<Communicator> others;
    others.push_back(comm.split(0, comm.rank()).value().value());
    others.push_back(comm.split(comm.rank() == 2 ? 1 : 0, 0).value().value());
    others.push_back(Communicator::create(id.get(), comm.rank(), 3, on_cpu()).value());
    auto& kept = *new std::vector<Communicator>{others};
    for (const Communicator& one : kept) {
      auto sum = SumOver<SocketTransport>::create(one);
      float x = 1;
      if (!sum || !(*sum)(&x, &x, 1) || x != float(one.ranks())) return 1;
    }
    if (comm.rank() == 1) return 0;
    sleep_s(1);
    for (const Communicator& one : kept) {
      if (!one.status() || !one.finalize()) return 2;
    }
    return stays(comm);
  }));
}

TEST_CASE("ranks that share a process exit together, and one in another process stays") {
  const IdElsewhere id;
  const auto join = [&](int rank) {
    auto& comm = *new Communicator{Communicator::create(id.get(), rank, 3, on_cpu()).value()};
    auto& sum = *new auto(SumOver<SocketTransport>::create(comm).value());
    float x = 1;
    if (!sum(&x, &x, 1) || x != 3 || !comm.barrier()) ::_exit(1);
    return &comm;
  };
  const auto both = start_process([&]() -> int {
    std::thread first{[&] { (void)join(0); }}, second{[&] { (void)join(1); }};
    first.join();
    second.join();
    std::exit(0);
  });
  const auto third = start_process([&]() -> int { std::exit(stays(*join(2))); });
  CHECK(reap({both, third}, 60));
}

TEST_CASE("an exit during a call of another thread fails the others, which name the rank") {
  Words words;
  CHECK(exiting(2, [&](const Communicator& comm) {
    auto& sum = *new auto(SumOver<SocketTransport>::create(comm).value());
    float x = 1;
    if (!sum(&x, &x, 1) || !comm.barrier()) return 1;
    if (comm.rank() == 1) {
      std::thread{[&] {
        float y = 1;
        (void)sum(&y, &y, 1);  // rank 0 makes this call later than the exit
      }}.detach();
      sleep_s(0.3);
      return 0;
    }
    sleep_s(1);
    (void)sum(&x, &x, 1);
    words.keep(0, sum(&x, &x, 1));
    return comm.status() ? 2 : 0;
  }));
  INFO(words.of(0));
  CHECK(words.of(0).find("rank 1 on ") != std::string::npos);
}

TEST_CASE("an exit while a communicator is created does not hang") {
  const IdElsewhere id;
  CHECK(exits_within(20, [&] {
    Config config = on_cpu();
    config.blocking = false;
    (void)new Communicator{
        Communicator::create(id.get(), 0, 2, config).value()};  // rank 1 never comes
    sleep_s(0.2);
  }));
  CHECK(exiting(2, [](const Communicator& comm) {
    if (!comm.barrier()) return 1;
    if (comm.rank() == 0) {
      Config config = on_cpu();
      config.blocking = false;
      return comm.split(0, 0, config) ? 2 : 0;  // rank 1 does not take part
    }
    sleep_s(0.5);
    return 0;
  }));
}

TEST_CASE("an exit that the network thread calls does not hang, and the others see a loss") {
  CHECK(exiting(
      2,
      [](const Communicator& comm) {
        if (!comm.barrier()) return 1;
        if (comm.rank() == 0) return wait_until([&] { return !comm.status(); }, 20) ? 0 : 2;
        {
          const auto lock = detail::net::Engine::get().lock();
          (void)detail::net::Engine::get().add_ticker([]() -> bool { std::exit(0); });
        }
        sleep_s(20);
        return 3;
      },
      1));
}

TEST_CASE("an exit with the network thread's lock held ends after its limit") {
  const IdElsewhere id;
  const auto rank = [&](int r) {
    return start_process([&, r]() -> int {
      ::alarm(60);
      auto& comm = *new Communicator{Communicator::create(id.get(), r, 2, on_cpu()).value()};
      if (!comm.barrier()) return 1;
      if (r == 0) return wait_until([&] { return !comm.status(); }, 20) ? 0 : 2;
      (void)new auto(detail::net::Engine::get().lock());
      std::exit(0);
    });
  };
  CHECK(reap({rank(0), rank(1)}, 40));
}

TEST_CASE("the exit of a forked child says nothing for the communicators of its parent") {
  CHECK(exiting(2, [](const Communicator& comm) {
    if (!comm.barrier()) return 1;
    if (comm.rank() == 1) {
      const auto begin = Clock::now();
      const pid_t child = ::fork();
      if (child == 0) std::exit(0);
      int status = 1;
      if (::waitpid(child, &status, 0) != child || status != 0) return 2;
      if (seconds(Clock::now() - begin) > 10) return 3;
    }
    sleep_s(0.7);
    if (!comm.barrier()) return 4;
    return comm.finalize() ? 0 : 5;
  }));
}

TEST_CASE("a handle that ends without finalize is still an abort, while the process goes on") {
  CHECK(exiting(
      2,
      [](const Communicator& comm) {
        if (!comm.barrier()) return 1;
        if (comm.rank() == 0) return wait_until([&] { return !comm.status(); }, 20) ? 0 : 2;
        sleep_s(0.2);  // the other leaves the barrier
        delete &comm;
        sleep_s(2);
        ::_exit(0);
      },
      1));
}

TEST_CASE("a rank that departs does not wait for the cause of the end of another") {
  detail::Status status;
  std::thread leaves{[&] {
    sleep_s(0.1);
    status.set_leaving();
  }};
  const auto begin = Clock::now();
  CHECK_FALSE(detail::await_cause(&status, 1, [] { return false; }));
  CHECK(seconds(Clock::now() - begin) < 1.9);  // its limit
  leaves.join();
}

TEST_CASE("the end of a connection to a departed rank is no loss") {
  detail::Status status;
  CHECK(status.set_departed(1));
  CHECK_FALSE(status.set_departed(1));
  CHECK_FALSE(detail::await_cause(&status, 1, [] { return false; }));
  CHECK(detail::await_cause(&status, 2, [] { return true; }));
  CHECK(status.set({Errc::network, "it broke"}));
  CHECK(detail::await_cause(&status, 1, [] { return false; }));
  CHECK(detail::await_cause(nullptr, 1, [] { return false; }));
}
