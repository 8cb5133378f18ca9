#include <ccl/algo/pat.hpp>
#include <ccl/algo/tree.hpp>
#include <ccl/detail/base/status.hpp>
#include <ccl/detail/runtime/call_sequencer.hpp>
#include <ccl/group.hpp>
#include <ccl/hierarchical.hpp>
#include <ccl/proto/ll.hpp>
#include <ccl/proto/simple.hpp>

#include <chrono>
#include <future>
#include <optional>
#include <thread>
#include <vector>

#include "support/catch.hpp"
#include "support/error_matchers.hpp"
#include "support/loopback_ranks.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
using Sums = Collective<AllReduce, Tree, Simple, LoopbackTransport>;
using Gathers = Collective<AllGather, Pat, LL, LoopbackTransport>;
using Levels = Collective<AllReduce, Hierarchical<Tree, Tree>, Simple, LoopbackTransport>;
constexpr Index n = 1000;

/// A stream whose calls wait until it is opened.
struct Held {
  std::promise<void> gate;
  bool opened = false;
  HostStream stream;
  Held() {
    stream.enqueue([opened = gate.get_future().share()]() -> Result<void> {
      opened.wait();
      return {};
    });
  }
  ~Held() {
    if (!opened) gate.set_value();
  }
  /// Late enough for a call that does not wait for its turn to go first.
  void open() {
    std::this_thread::sleep_for(std::chrono::milliseconds{50});
    opened = true;
    gate.set_value();
  }
};

/// Calls of `sums` on two streams, of which one rank holds the first up and another the second.
template <class Sum>
Result<void> on_two_streams(const Communicator& comm, const Sum& sums) {
  Held first, second;
  (comm.rank() == 0 ? second : first).open();
  std::vector<int> a(n, 1), b(n, 10);
  CCL_CHECK(sums(a.data(), a.data(), n, ccl::Sum{}, first.stream));
  CCL_CHECK(sums(b.data(), b.data(), n, ccl::Sum{}, second.stream));
  (comm.rank() == 0 ? first : second).open();
  CCL_CHECK(first.stream.synchronize());
  CCL_CHECK(second.stream.synchronize());
  if (a != std::vector<int>(n, 2) || b != std::vector<int>(n, 20)) {
    return fail(Errc::internal, "another call's data");
  }
  return {};
}
}  // namespace

TEST_CASE("calls of one composition on several streams run in the order in which they were made") {
  on_all(make(2), [](const Communicator& comm) -> Result<void> {
    CCL_TRY(const auto sums, Sums::create(comm));
    CCL_CHECK(on_two_streams(comm, sums));
    CCL_TRY(const auto levels, Levels::create(comm));
    CCL_CHECK(on_two_streams(comm, levels));
    return comm.finalize();
  });
}

TEST_CASE("a call without a stream runs after those that are queued") {
  on_all(make(2), [](const Communicator& comm) -> Result<void> {
    CCL_TRY(const auto sums, Sums::create(comm));
    std::vector<int> a(n, 1), b(n, 10);
    Held held;
    CCL_CHECK(sums(a.data(), a.data(), n, Sum{}, held.stream));
    std::thread opens{[&] { held.open(); }};
    if (comm.rank() == 1) opens.join();
    const auto done = sums(b.data(), b.data(), n);
    if (opens.joinable()) opens.join();
    CCL_CHECK(done);
    CCL_CHECK(held.stream.synchronize());
    if (a[0] != 2 || b[0] != 20) return fail(Errc::internal, "another call's data");
    return comm.finalize();
  });
}

TEST_CASE("groups take the turns of all their compositions at once") {
  on_all(make(2), [](const Communicator& comm) -> Result<void> {
    CCL_TRY(const auto sums, Sums::create(comm));
    CCL_TRY(const auto gathers, Gathers::create(comm));
    std::vector<int> a(n, 1), b(n, 10), c(n, 100), all(2 * n), again(2 * n);
    Held first, second;
    (comm.rank() == 0 ? second : first).open();
    CCL_CHECK(group(first.stream, sums.bind(a.data(), a.data(), n, Sum{}),
                    gathers.bind(c.data(), all.data(), n)));
    CCL_CHECK(gathers(b.data(), again.data(), n, second.stream));
    CCL_CHECK(sums(b.data(), b.data(), n, Sum{}, second.stream));
    (comm.rank() == 0 ? first : second).open();
    // Without a stream, after all these.
    CCL_CHECK(
        group({}, gathers.bind(c.data(), all.data(), n), sums.bind(b.data(), b.data(), n, Sum{})));
    if (a[0] != 2 || b[0] != 40 || all[n] != 100 || again[n] != 10) {
      return fail(Errc::internal, "another call's data");
    }
    CCL_CHECK(first.stream.synchronize());
    CCL_CHECK(second.stream.synchronize());
    return comm.finalize();
  });
}

TEST_CASE("what a stream's own call calls waits for nothing behind it on that stream") {
  on_all(make(2), [](const Communicator& comm) -> Result<void> {
    CCL_TRY(const auto sums, Sums::create(comm));
    std::vector<int> a(n, 1), b(n, 10);
    HostStream stream;
    std::promise<void> queued;
    stream.enqueue([&]() -> Result<void> {
      queued.get_future().wait();
      CCL_CHECK(sums(a.data(), a.data(), n));
      return group({}, sums.bind(a.data(), a.data(), n, Sum{}));
    });
    CCL_CHECK(sums(b.data(), b.data(), n, Sum{}, stream));
    queued.set_value();
    CCL_CHECK(stream.synchronize());
    if (a[0] != 4 || b[0] != 20) return fail(Errc::internal, "another call's data");
    return comm.finalize();
  });
}

namespace {
using Wait = detail::CallSequencer::Wait;

/// Result of rank 0's call without a stream, behind one whose stream is held. `meanwhile` runs once
/// it waits. A call that still waits after 10 s is let through, and `ended` is false.
struct Behind {
  bool ended = false;
  Result<void> result;
};
template <class F>
Behind behind_a_held_stream(const std::vector<Communicator>& comms, F meanwhile) {
  std::vector<std::optional<Sums>> all(comms.size());
  on_all(comms, [&all](const Communicator& comm) -> Result<void> {
    CCL_TRY(all[std::size_t(comm.rank())], Sums::create(comm));
    return {};
  });
  const Sums& sums = *all[0];
  std::vector<int> a(n, 1), b(n, 10);
  Held held;
  if (!sums(a.data(), a.data(), n, Sum{}, held.stream)) return {};
  auto waits = std::async(std::launch::async, [&] { return sums(b.data(), b.data(), n, Sum{}); });
  std::this_thread::sleep_for(std::chrono::milliseconds{50});
  meanwhile();
  Behind behind;
  behind.ended = waits.wait_for(std::chrono::seconds{10}) == std::future_status::ready;
  held.open();
  behind.result = waits.get();
  (void)held.stream.synchronize();
  return behind;
}
}  // namespace

TEST_CASE("abort ends the wait of a call for its turn") {
  const auto comms = make(2);
  const Behind behind =
      behind_a_held_stream(comms, [&] { comms[0].abort("the user called abort"); });
  CHECK(behind.ended);
  CHECK(code(behind.result) == Errc::aborted);
}

TEST_CASE("a call whose turn does not come fails its communicator at the deadline") {
  Config config;
  config.timeout_s = 0.2;
  const auto comms = make(2, config);
  const Behind behind = behind_a_held_stream(comms, [] {});
  CHECK(behind.ended);
  REQUIRE(code(behind.result) == Errc::timed_out);
  CHECK(mentions(behind.result.error().what, "has not begun in 0.2 s"));
  CHECK(code(comms[0].status()) == Errc::timed_out);
}

TEST_CASE("a sequencer is idle unless a turn that was taken has not ended") {
  detail::CallSequencer sequencer;
  detail::Status status;
  CHECK(sequencer.idle());
  const Word first = sequencer.take(), second = sequencer.take();
  CHECK_FALSE(sequencer.idle());
  REQUIRE(sequencer.await(first, status, 0) == Wait::begun);
  sequencer.end(first);
  CHECK_FALSE(sequencer.idle());
  REQUIRE(sequencer.await(second, status, 0) == Wait::begun);
  CHECK_FALSE(sequencer.idle());
  sequencer.end(second);
  CHECK(sequencer.idle());
}

TEST_CASE("turns come in the order in which they are taken") {
  detail::CallSequencer sequencer;
  const detail::Status status;
  const Word first = sequencer.take(), second = sequencer.take();
  std::vector<int> order;
  std::thread later{[&] {
    (void)sequencer.await(second, status, 0);
    order.push_back(2);
    sequencer.end(second);
  }};
  CHECK(sequencer.await(first, status, 0) == Wait::begun);
  order.push_back(1);
  sequencer.end(first);
  later.join();
  CHECK(sequencer.await(sequencer.take(), status, 0) == Wait::begun);
  CHECK(order == std::vector<int>{1, 2});
}

TEST_CASE("a turn that runs is late for nobody") {
  detail::CallSequencer sequencer;
  const detail::Status status;
  const Word first = sequencer.take(), second = sequencer.take();
  CHECK(sequencer.await(second, status, 0.1) == Wait::late);  // the first has not begun
  REQUIRE(sequencer.await(first, status, 0.1) == Wait::begun);
  std::thread runs{[&] {
    std::this_thread::sleep_for(std::chrono::milliseconds{500});
    sequencer.end(first);
  }};
  CHECK(sequencer.await(second, status, 0.2) == Wait::begun);
  runs.join();
}
