// Failures that no call of ccl has sent reach the other ranks.
#include <ccl/ccl.hpp>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "comm/state.hpp"
#include "support/fake_gpus.hpp"
#include "support/gpu_ranks.hpp"
#include "support/ranks.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
/// Waits for the failure of `comm` without a call that looks for one.
bool fails_unasked(const Communicator& comm) {
  return wait_until([&] { return !detail::Access::state(comm)->status.ok(); }, 10);
}
}  // namespace

TEST_CASE("the failure of a transport ends ranks that wait, while its own rank is in no call") {
  const auto ring = [](const Communicator& comm) -> Answer {
    CCL_TRY(const auto sum, (Collective<AllReduce, Ring, Simple>::create(comm)));
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

TEST_CASE("a communicator that only a graph held ends soon after the graph") {
  (void)gpus(2);
  capture_all();
  auto comms = create({0, 1});
  for (const auto& comm : comms) REQUIRE(comm);
  {
    fake::Stream stream{};
    auto& order = *detail::Access::state(*comms[0])->device.order;
    REQUIRE(order.before(reinterpret_cast<CUstream>(&stream),
                         std::make_shared<Communicator>(*comms[0])));
    order.give_up();
  }
  comms[0] = fail(Errc::internal, "dropped");
  REQUIRE(graph_goes != nullptr);
  CHECK(comms[1]->status());
  graph_goes(graph_holds);
  CHECK(fails_unasked(*comms[1]));  // the other rank has left
}
