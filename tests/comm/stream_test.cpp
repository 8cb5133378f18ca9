#include <ccl/comm/stream.hpp>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <new>
#include <vector>

#include "support/catch.hpp"
#include "support/error_matchers.hpp"
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace ccl;

namespace {
/// Queues one more call where it ends.
struct Last {
  HostStream& stream;
  std::atomic<int>& ran;
  ~Last() {
    stream.enqueue([&ran = ran]() -> Result<void> {
      ++ran;
      return {};
    });
  }
};
}  // namespace

TEST_CASE("a stream runs its calls in order and keeps the first failure") {
  std::vector<int> order;
  HostStream stream;
  for (int i = 0; i < 100; ++i) {
    stream.enqueue([&order, i]() -> Result<void> {
      order.push_back(i);
      if (i % 40 == 7) return fail(Errc::internal, std::to_string(i));
      return {};
    });
  }
  const auto failed = stream.synchronize();
  REQUIRE(!failed);
  CHECK(failed.error().what == "7");
  REQUIRE(order.size() == 100);
  for (int i = 0; i < 100; ++i) CHECK(order[std::size_t(i)] == i);
  CHECK(stream.synchronize().has_value());
}

TEST_CASE("an exception of a call is a failure of its stream") {
  HostStream stream;
  bool ran = false;
  stream.enqueue([]() -> Result<void> { throw std::bad_alloc{}; });
  stream.enqueue([&]() -> Result<void> {
    ran = true;
    return {};
  });
  const auto failed = stream.synchronize();
  REQUIRE_FALSE(failed);
  CHECK(failed.error().code == Errc::out_of_memory);
  CHECK(ran);
  CHECK(stream.synchronize());
}

TEST_CASE("what a call holds ends before the stream is idle, and may queue more") {
  std::atomic<int> ran{0};
  HostStream stream;
  auto last = std::make_shared<Last>(stream, ran);
  const std::weak_ptr<Last> seen = last;
  stream.enqueue([held = std::move(last)]() -> Result<void> { return {}; });
  CHECK(stream.synchronize().has_value());
  CHECK(seen.expired());
  CHECK(stream.synchronize().has_value());
  CHECK(ran == 1);
}

TEST_CASE("a function on a stream is told that it cannot wait for that stream") {
  HostStream stream, other;
  stream.enqueue([&] { return other.synchronize(); });
  CHECK(stream.synchronize().has_value());
  stream.enqueue([&] { return stream.synchronize(); });
  const auto waited = stream.synchronize();
  REQUIRE(!waited);
  CHECK(waited.error().code == Errc::invalid_usage);
}

TEST_CASE("a program may wait for a stream up to a limit") {
  HostStream stream;
  std::promise<void> gate;
  stream.enqueue([opened = gate.get_future().share()]() -> Result<void> {
    opened.wait();
    return {};
  });
  stream.enqueue([]() -> Result<void> { return {}; });
  const auto begin = std::chrono::steady_clock::now();
  const auto late = stream.synchronize(0.1);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds{10});
  CHECK(late.error().code == Errc::timed_out);
  CHECK(test::mentions(late.error().what, "2 calls on the stream have not run within 0.1 s"));
  gate.set_value();
  CHECK(stream.synchronize(60).has_value());
}

TEST_CASE("a forked process has no stream of its parent's, and can end what it has of it") {
  auto stream = std::make_unique<HostStream>();
  stream->enqueue([]() -> Result<void> { return {}; });
  REQUIRE(stream->synchronize().has_value());  // its thread waits for more, or is about to
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    stream->enqueue([]() -> Result<void> { ::_exit(1); });
    const auto misuse = stream->synchronize();
    stream.reset();
    ::_exit(!misuse && misuse.error().code == Errc::invalid_usage ? 0 : 2);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(stream->synchronize().has_value());
}

TEST_CASE("signals are not for a stream's thread") {
  std::atomic<int> blocked{-1};
  HostStream stream;
  stream.enqueue([&]() -> Result<void> {
    sigset_t mask;
    ::pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    blocked = ::sigismember(&mask, SIGALRM) + ::sigismember(&mask, SIGINT);
    return {};
  });
  CHECK(stream.synchronize().has_value());
  CHECK(blocked == 2);
}
