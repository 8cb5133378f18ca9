// Failures that no call of ccl has sent reach the other ranks.

#include <cstddef>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "comm/state.hpp"
#include "support/calls/rings.hpp"
#include "support/fake_gpus.hpp"
#include "support/gpu_ranks.hpp"
#include "support/ranks.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
/// Waits for the failure of `comm` without a call that looks for one.
bool fails_unasked(const Communicator& comm) {
  return wait_until([&] { return !detail::Access::state(comm)->status.ok(); }, 60);
}
}  // namespace

TEST_CASE("the failure of a transport ends ranks that wait, while its own rank is in no call") {
  const auto ring = [](const Communicator& comm) -> Answer {
    CCL_TRY(const auto sum, RingSums::create(comm));
    CCL_CHECK(comm.barrier());
    if (comm.rank() == 1) {
      detail::Access::state(comm)->status.set({Errc::network, "the queue pair is broken"});
      sleep_s(4);  // in the program, say
      return std::string{"back"};
    }
    int x = 1;
    const auto done = sum(&x, &x, 1);
    return done ? "went on" : done.error().what;
  };
  const auto said = run(
      3, [](int) {}, ring, false);
  for (const int r : {0, 2}) {
    INFO(said[std::size_t(r)]);
    CHECK(said[std::size_t(r)].find("the queue pair is broken") != std::string::npos);
  }
}

TEST_CASE("the failure of a kernel is found and sent while no rank is in a call") {
  (void)gpus(2);
  const auto comms = create({0, 1});
  for (const auto& comm : comms) REQUIRE(comm);
  detail::Access::state(*comms[0])->device.gpu->watched().lane_failure = {.peer = 2, .step = 5};
  for (const auto& comm : comms) CHECK(fails_unasked(*comm));
  CHECK(comms[0]->status().error().code == Errc::timed_out);
  CHECK(comms[1]->status().error().code == Errc::timed_out);
}

namespace {
/// A rank whose network thread gives no answer, as that of a stopped process.
void silence(const Communicator& comm) {
  detail::Access::state(comm)->rendezvous.bootstrap()->set_rank_status({});
}
}  // namespace

TEST_CASE("an abort on a GPU sends what it has found out about a silent rank, not its bare text") {
  (void)gpus(2);
  const auto comms = create({0, 1});
  for (const auto& comm : comms) REQUIRE(comm);
  silence(*comms[1]);
  auto& waiting = *detail::Access::state(*comms[0]);
  Operation op;
  op.what[0] = 'x';
  const Word ticket = waiting.observers.recorder()->note(op).ticket;
  waiting.observers.recorder()->started(ticket);
  waiting.device.gpu->watched().waits = {.peer = 2, .step = 1, .ticket = ticket};
  comms[0]->abort("the program gave up");
  for (const auto& comm : comms) {
    REQUIRE(fails_unasked(*comm));
    const std::string text = comm->status().error().what;
    INFO(text);
    CHECK(text.find("the program gave up") != std::string::npos);
    CHECK(text.find("does not answer") != std::string::npos);
  }
}

TEST_CASE("a report that a failure cuts short calls no rank silent") {
  (void)gpus(3);
  const auto comms = create({0, 1, 2});
  for (const auto& comm : comms) REQUIRE(comm);
  silence(*comms[2]);
  std::thread aborts{[&] {
    sleep_s(0.2);
    comms[1]->abort("enough");
  }};
  const auto found = comms[0]->report();
  aborts.join();
  CHECK(found.ranks.empty());
  CHECK(found.behind < 0);
}

TEST_CASE(
    "a connection that does not come is blamed on the rank that another rank names meanwhile") {
  (void)gpus(3);
  const auto comms = create({0, 1, 2});
  for (const auto& comm : comms) REQUIRE(comm);
  silence(*comms[2]);  // rank 1 waits for it, and rank 0 for rank 1
  const auto late = [&](int rank, int peer) {
    Error error{Errc::timed_out, "has not connected"};
    error.peer = peer;
    return detail::Access::state(*comms[std::size_t(rank)])
        ->rendezvous.late_connection(std::move(error));
  };
  std::thread other{[&] {
    sleep_s(0.5);
    Error error{Errc::timed_out, "does not answer"};
    error.peer = 2;
    detail::Access::state(*comms[1])->rendezvous.fail_all(std::move(error));
  }};
  const Error first = late(0, 1);
  other.join();
  INFO(first.message());
  CHECK(first.peer == 2);
  CHECK(first.rank == 0);
  CHECK(late(0, 1).peer == 2);  // as asked again later
}

namespace {
CUhostFn graph_goes = nullptr;  // of the graph that is captured
void* graph_holds = nullptr;

/// The driver, with a capture of each stream into one graph.
void capture_all() {
  auto cuda = fake::driver();
  cuda.stream_is_capturing = [](CUstream, CUstreamCaptureStatus* status) {
    *status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    return CUDA_SUCCESS;
  };
  cuda.stream_get_id = [](CUstream, unsigned long long* number) {
    *number = 1;
    return CUDA_SUCCESS;
  };
  cuda.stream_get_ctx = [](CUstream, CUcontext* context) {
    *context = fake::context_of(0);
    return CUDA_SUCCESS;
  };
  cuda.stream_get_capture_info = [](CUstream, CUstreamCaptureStatus*, cuuint64_t* id, CUgraph*,
                                    const CUgraphNode**, const CUgraphEdgeData**, std::size_t*) {
    *id = 1;
    return CUDA_SUCCESS;
  };
  cuda.user_object_create = [](CUuserObject*, void* held, CUhostFn goes, unsigned, unsigned) {
    graph_goes = goes;
    graph_holds = held;
    return CUDA_SUCCESS;
  };
  cuda.graph_retain_user_object = [](CUgraph, CUuserObject, unsigned, unsigned) {
    return CUDA_SUCCESS;
  };
  cuda.stream_wait_event = [](CUstream, CUevent, unsigned) { return CUDA_SUCCESS; };
  detail::use_cuda_driver(cuda, 2);
}
}  // namespace

namespace {
/// Captures a launch of `comm` in a graph that holds a handle.
void capture(const Communicator& comm) {
  graph_goes = nullptr;
  fake::Stream stream{};
  auto& order = *detail::Access::state(comm)->device.order;
  REQUIRE(order.before(reinterpret_cast<CUstream>(&stream), std::make_shared<Communicator>(comm)));
  order.give_up();
  REQUIRE(graph_goes != nullptr);
}
/// Drops `comm`, which a graph holds, and then the graph. Returns true if the state ends.
bool ends_with_graph(Result<Communicator>& comm) {
  const std::weak_ptr<detail::CommState> state = detail::Access::state(*comm);
  comm = fail(Errc::internal, "dropped");
  CHECK_FALSE(state.expired());
  graph_goes(graph_holds);
  return wait_until([&] { return state.expired(); }, 60);
}
}  // namespace

TEST_CASE("a communicator that only a graph held ends soon after the graph") {
  (void)gpus(2);
  capture_all();
  auto comms = create({0, 1});
  for (const auto& comm : comms) REQUIRE(comm);
  capture(*comms[0]);
  CHECK(comms[1]->status());
  CHECK(ends_with_graph(comms[0]));
  CHECK(fails_unasked(*comms[1]));  // the other rank has left
}

TEST_CASE("a communicator of one rank ends soon after its graph, too") {
  (void)gpus(2);
  capture_all();
  auto comms = create({0});
  REQUIRE(comms[0]);
  capture(*comms[0]);
  CHECK(ends_with_graph(comms[0]));
}

TEST_CASE("communicators whose failure has been sent end soon after their graph") {
  (void)gpus(2);
  capture_all();
  auto comms = create({0, 1});
  for (const auto& comm : comms) REQUIRE(comm);
  capture(*comms[0]);
  comms[1]->abort("enough");
  CHECK(fails_unasked(*comms[0]));
  sleep_s(1.5);  // until the looks of both have seen that it is sent
  CHECK(ends_with_graph(comms[0]));
}
