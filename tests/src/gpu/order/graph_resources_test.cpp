// Launches of several communicators into captured graphs, and what the graphs own.
#include "gpu/order/graph_resources.hpp"

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "support/catch.hpp"
#include "support/gpu_comm.hpp"
#include "support/gpu_scheduler.hpp"
#include <sys/wait.h>
#include <unistd.h>

using namespace ccl;
using namespace ccl::test;
using Comm = GpuComm;

namespace {
constexpr int multiprocessors = 132;
}  // namespace

TEST_CASE("captured launches wait for other communicators that do not fit, also in replays") {
  GpuScheduler gpus{1, multiprocessors};
  Comm first{gpus, 0, 1, 64, true}, second{gpus, 1, 1, 128, true};
  auto& one = GpuScheduler::of(gpus.stream(0));
  auto& other = GpuScheduler::of(gpus.stream(0));
  const auto stream = [](ScheduledStream& of) { return reinterpret_cast<CUstream>(&of); };
  one.capture = other.capture = 7;
  first.call(0, stream(one));
  CHECK(one.outside.size() == 2);  // for launches of both before the replay
  first.call(0, stream(one));
  CHECK(one.outside.size() == 2);
  const auto ends = one.nodes;
  REQUIRE(ends.size() == 1);
  REQUIRE(second.order(0).before(stream(other), nullptr));
  CHECK(other.outside.size() == 2);
  CHECK(other.nodes == ends);  // after the launches of the first in this capture
  REQUIRE(second.order(0).after(stream(other)));

  // Outside of the capture, launches follow its replays.
  auto& eager = GpuScheduler::of(gpus.stream(0));
  second.call(0, stream(eager));
  const auto waits_for = [&](const ScheduledEvent* event) {
    return std::ranges::any_of(eager.work, [&](const auto& work) {
      return work->kind == ScheduledWork::wait && work->event == event;
    });
  };
  for (const ScheduledEvent* event : one.outside) CHECK(waits_for(event));
  GpuScheduler::drop_graphs();
  detail::free_graph_resources();
}

TEST_CASE("a graph keeps the events of other communicators that its replays wait for") {
  GpuScheduler gpus{1, multiprocessors};
  auto first = std::make_unique<Comm>(gpus, 0, 1, 64, true);
  Comm second{gpus, 1, 1, 128, true};
  auto& captured = GpuScheduler::of(gpus.stream(0));
  captured.capture = 7;
  second.call(0, reinterpret_cast<CUstream>(&captured));
  const auto destroyed = [&] {
    return std::ranges::count_if(captured.outside, [](const auto* of) { return of->destroyed; });
  };
  REQUIRE(captured.outside.size() == 2);
  first.reset();
  CHECK(destroyed() == 0);
  CHECK_FALSE(detail::graphs_have_gone());
  GpuScheduler::drop_graphs();
  CHECK(detail::graphs_have_gone());
  detail::free_graph_resources();
  CHECK(destroyed() == 1);
  CHECK_FALSE(detail::graphs_have_gone());
}

TEST_CASE("a forked child leaves what its parent's graphs held alone") {
  GpuScheduler gpus{1, multiprocessors};
  Comm comm{gpus, 0, 1, 64, true};
  auto& captured = GpuScheduler::of(gpus.stream(0));
  captured.capture = 7;
  struct Held {
    explicit Held(int& in) : released{in} {}
    ~Held() { ++released; }
    int& released;
  };
  int released = 0;
  REQUIRE(comm.order(0).before(reinterpret_cast<CUstream>(&captured),
                               std::make_shared<Held>(released)));
  REQUIRE(comm.order(0).after(reinterpret_cast<CUstream>(&captured)));
  GpuScheduler::drop_graphs();
  REQUIRE(detail::graphs_have_gone());
  const pid_t child = ::fork();
  if (child == 0) {
    const bool has_some = detail::graphs_have_gone();
    detail::free_graph_resources();
    std::_Exit(has_some || released != 0 ? 1 : 0);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(detail::graphs_have_gone());
  detail::free_graph_resources();
  CHECK(released == 1);
}

TEST_CASE("captured launches of communicators that fit wait for their own only") {
  GpuScheduler gpus{1, multiprocessors};
  Comm first{gpus, 0, 1, 32, true}, second{gpus, 1, 1, 32, true};
  auto& one = GpuScheduler::of(gpus.stream(0));
  one.capture = 8;
  for (Comm* comm : {&first, &second}) comm->call(0, reinterpret_cast<CUstream>(&one));
  CHECK(one.outside.size() == 2);
  CHECK(one.outside.front() != one.outside.back());
  GpuScheduler::drop_graphs();
  detail::free_graph_resources();
}

TEST_CASE("what the launches of a graph may hold counts until the graph is destroyed") {
  GpuScheduler gpus{1, multiprocessors};
  Comm first{gpus, 0, 1, 32, true};
  auto& captured = GpuScheduler::of(gpus.stream(0));
  captured.capture = 9;
  first.call(0, reinterpret_cast<CUstream>(&captured));
  CHECK(first.order(0).share()->blocks == 64);
  Comm second{gpus, 1, 1, 64, true}, third{gpus, 2, 1, 32, true};
  auto& stream = GpuScheduler::of(gpus.stream(0));
  const auto waits_of_third = [&] {
    first.call(0, gpus.stream(0));
    second.call(0, gpus.stream(0));
    third.call(0, reinterpret_cast<CUstream>(&stream));
    REQUIRE(gpus.run(1));
    return std::ranges::count(stream.work, ScheduledWork::wait,
                              [](const auto& work) { return work->kind; });
  };
  CHECK(waits_of_third() == 1);  // for the second: 64, 64 and 32 blocks do not fit
  GpuScheduler::drop_graphs();
  detail::free_graph_resources();
  CHECK(waits_of_third() == 1);  // no more
}

TEST_CASE("a communicator whose graphs were destroyed counts as others do") {
  GpuScheduler gpus{1, multiprocessors};
  Comm first{gpus, 0, 1, 32, true};
  auto& captured = GpuScheduler::of(gpus.stream(0));
  captured.capture = 11;
  first.call(0, reinterpret_cast<CUstream>(&captured));
  GpuScheduler::drop_graphs();
  detail::free_graph_resources();
  first.call(0, gpus.stream(0));  // may hold everything
  REQUIRE(gpus.run(1));
  Comm second{gpus, 1, 1, 64, true}, third{gpus, 2, 1, 32, true};
  auto& stream = GpuScheduler::of(gpus.stream(0));
  second.call(0, reinterpret_cast<CUstream>(&stream));
  CHECK(stream.work.front()->kind == ScheduledWork::launch);  // waits for nothing
}
