// What a played GPU promises: lanes, order on streams, places of blocks, and graphs.
#include <atomic>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/played/capture.hpp"
#include "support/played/cuda_language.hpp"
#include "support/played/played_gpus.hpp"

using namespace ccl::test;
using played::Kernel;

namespace {

const ccl::detail::CudaDriver& driver() {
  return **ccl::detail::cuda_driver();
}
CUstream make_stream(int device) {
  CUstream stream = nullptr;
  (void)cudaSetDevice(device);
  (void)driver().stream_create(&stream, CU_STREAM_NON_BLOCKING);
  return stream;
}
/// Launches on the device of the stream.
void start(CUstream stream, Kernel kernel, bool early = false) {
  (void)cudaSetDevice(played::stream_of(stream)->device);
  REQUIRE(played::launch(stream, std::move(kernel), early) == CUDA_SUCCESS);
}

/// A kernel whose lanes poll until it is opened.
struct Latch {
  std::atomic<bool> open{false};
  std::atomic<unsigned> begun{0};
  Kernel kernel(unsigned blocks) {
    return {[this] {
              played::launch_dependents();
              ++begun;
              while (!open) played::pause();
            },
            blocks, 1};
  }
};
void await(const std::atomic<unsigned>& value, unsigned wanted) {
  while (value < wanted) std::this_thread::yield();
}

}  // namespace

TEST_CASE(
    "each lane of a kernel runs once, and its lanes wait for, vote with and read each other") {
  played::install(1, 2);
  const CUstream stream = make_stream(0);
  std::mutex mutex;
  std::set<std::pair<unsigned, unsigned>> seen;
  std::atomic<int> wrong{0}, behind{0};
  const auto body = [&] {
    const unsigned lane = threadIdx.x % played::warp_width;
    {
      const std::lock_guard lock{mutex};
      seen.emplace(unsigned(blockIdx.x), unsigned(threadIdx.x));
    }
    wrong += __shfl_sync(~0u, int(lane), 5) != 5;
    for (int n = 0; n < 3; ++n) {
      wrong += played::warp().all(lane != 7 || n != 1) != (n != 1);
      ++behind;
      __syncthreads();
      wrong += behind < 96 * (n + 1);  // of this block, all
      __syncthreads();
    }
  };
  start(stream, {body, 5, 96});
  REQUIRE(driver().stream_synchronize(stream) == CUDA_SUCCESS);
  CHECK(seen.size() == 5 * 96);
  CHECK(wrong == 0);
}

TEST_CASE("a stream is in order, and an event orders two streams, of two GPUs too") {
  played::install(2, 2);
  const CUstream first = make_stream(0), second = make_stream(1);
  Latch latch;
  std::atomic<int> step{0};
  const auto count = [&](int from) { return Kernel{[&, from] { step += step == from; }, 1, 1}; };
  CUevent event = nullptr;
  REQUIRE(driver().event_create(&event, 0) == CUDA_SUCCESS);
  start(first, latch.kernel(1));
  start(first, count(0));
  REQUIRE(driver().event_record(event, first) == CUDA_SUCCESS);
  REQUIRE(driver().stream_wait_event(second, event, 0) == CUDA_SUCCESS);
  start(second, count(1));
  await(latch.begun, 1);
  CHECK(driver().event_query(event) == CUDA_ERROR_NOT_READY);
  CHECK(step == 0);
  latch.open = true;
  REQUIRE(driver().stream_synchronize(second) == CUDA_SUCCESS);
  CHECK(driver().event_query(event) == CUDA_SUCCESS);
  CHECK(step == 2);
  (void)cudaSetDevice(0);
  CHECK(played::launch(second, count(2), false) == CUDA_ERROR_INVALID_HANDLE);  // of GPU 1
}

TEST_CASE("early launches take places while they wait, and the last waits for a place") {
  played::install(1, 8);
  const CUstream stream = make_stream(0);
  Latch latch;
  std::atomic<unsigned> resident{0};
  std::atomic<int> order{0}, wrong{0};
  start(stream, latch.kernel(2));
  for (int n = 0; n < 6; ++n) {
    start(stream,
          {[&, n] {
             played::launch_dependents();
             ++resident;
             played::await_previous();
             wrong += !latch.open || order++ / 2 != n;
           },
           2, 1},
          true);
  }
  await(resident, 6);
  const auto unplaced = played::Queue::instance().unplaced();
  REQUIRE(unplaced.size() == 1);  // and two behind it, which may not begin before it has
  CHECK(unplaced[0].placed == 0);
  CHECK(unplaced[0].blocks == 2);
  CHECK(unplaced[0].places == 8);
  CHECK(unplaced[0].taken == 8);
  CHECK(resident == 6);
  latch.open = true;
  REQUIRE(driver().stream_synchronize(stream) == CUDA_SUCCESS);
  CHECK(resident == 12);
  CHECK(wrong == 0);
}

TEST_CASE("a launch that does not wait lets the next one overtake those before it") {
  played::install(1, 8);
  const CUstream stream = make_stream(0);
  for (const bool all : {false, true}) {
    played::Queue::instance().await_all_before(all);
    Latch latch;
    std::atomic<unsigned> overtook{0}, ran{0};
    start(stream, latch.kernel(1));
    start(stream, {[] { played::launch_dependents(); }, 1, 1}, true);
    start(stream,
          {[&] {
             ++ran;
             played::await_previous();
             overtook += !latch.open;
           },
           1, 1},
          true);
    await(ran, 1);
    if (all) {
      CHECK(played::Queue::instance().stands_still(100));
    } else {
      await(overtook, 1);
    }
    latch.open = true;
    CHECK(driver().stream_synchronize(stream) == CUDA_SUCCESS);
    CHECK(overtook == !all);
  }
  played::Queue::instance().await_all_before(false);
}

TEST_CASE("kernels that wait for peers stand still if GPUs give the places to different ones") {
  played::install(2, 4);
  const CUstream streams[2][2] = {{make_stream(0), make_stream(0)},
                                  {make_stream(1), make_stream(1)}};
  // Kernel k of GPU g waits for kernel k of the other GPU. Each wants all places.
  std::atomic<unsigned> begun[2][2] = {};
  std::atomic<bool> stop{false};
  const auto kernel = [&](int gpu, int k) {
    return Kernel{[&, gpu, k] {
                    ++begun[gpu][k];
                    while (begun[1 - gpu][k] < 4 && !stop) played::pause();
                  },
                  4, 1};
  };
  played::Queue& queue = played::Queue::instance();
  SECTION("in the same order") {
    for (const int gpu : {0, 1}) {
      for (const int k : {0, 1}) start(streams[gpu][k], kernel(gpu, k));
    }
    for (const auto& of : streams) {
      for (const CUstream stream : of) CHECK(driver().stream_synchronize(stream) == CUDA_SUCCESS);
    }
    CHECK(!queue.stands_still());
  }
  SECTION("in the other order") {
    for (const int gpu : {0, 1}) {
      for (const int k : {gpu, 1 - gpu}) start(streams[gpu][k], kernel(gpu, k));
    }
    CHECK(queue.stands_still());
    const auto unplaced = queue.unplaced();
    REQUIRE(unplaced.size() == 2);
    for (const int gpu : {0, 1}) {
      const auto& of = unplaced[std::size_t(gpu)];
      CHECK(of.device == gpu);
      CHECK(of.placed == 0);
      CHECK(of.blocks == 4);
      CHECK(of.taken == of.places);
    }
    stop = true;
    for (const auto& of : streams) {
      for (const CUstream stream : of) CHECK(driver().stream_synchronize(stream) == CUDA_SUCCESS);
    }
    CHECK(queue.unplaced().empty());
  }
}

TEST_CASE("a graph repeats what was captured, in its order, and keeps what is tied to it") {
  played::install(1, 4);
  const CUstream stream = make_stream(0), side = make_stream(0);
  std::atomic<int> step{0}, wrong{0};
  const auto count = [&](int first, int last) {
    return Kernel{[&, first, last] {
                    const int at = step++ % 4;
                    wrong += at < first || at > last;
                  },
                  1, 1};
  };
  CUevent fork = nullptr, join = nullptr;
  REQUIRE(driver().event_create(&fork, 0) == CUDA_SUCCESS);
  REQUIRE(driver().event_create(&join, 0) == CUDA_SUCCESS);
  REQUIRE(played::Capture::begin(*played::stream_of(stream)) == CUDA_SUCCESS);
  start(stream, count(0, 0));
  REQUIRE(driver().event_record(fork, stream) == CUDA_SUCCESS);
  REQUIRE(driver().stream_wait_event(side, fork, 0) == CUDA_SUCCESS);
  start(side, count(1, 2));
  start(stream, count(1, 2), true);
  REQUIRE(driver().event_record(join, side) == CUDA_SUCCESS);
  REQUIRE(driver().stream_wait_event(stream, join, 0) == CUDA_SUCCESS);
  start(stream, count(3, 3));
  CUstreamCaptureStatus status;
  CHECK(driver().stream_is_capturing(side, &status) == CUDA_SUCCESS);
  CHECK(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
  CUuserObject object = nullptr;
  static int gone = 0;
  const auto capture = played::stream_of(stream)->capture;
  REQUIRE(driver().user_object_create(
              &object, nullptr, [](void*) { ++gone; }, 1, 0) == CUDA_SUCCESS);
  REQUIRE(driver().graph_retain_user_object(reinterpret_cast<CUgraph>(&capture->graph()), object, 1,
                                            CU_GRAPH_USER_OBJECT_MOVE) == CUDA_SUCCESS);
  played::Graph* made = nullptr;
  REQUIRE(capture->end(*played::stream_of(stream), &made) == CUDA_SUCCESS);
  std::shared_ptr<played::Graph> graph{made};
  CHECK(step == 0);
  for (int n = 0; n < 3; ++n) REQUIRE(played::launch_graph(graph, stream) == CUDA_SUCCESS);
  graph.reset();
  REQUIRE(driver().stream_synchronize(stream) == CUDA_SUCCESS);
  CHECK(step == 12);
  CHECK(wrong == 0);
}

TEST_CASE("a graph without nodes begins and ends in the order of its stream") {
  played::install(1, 4);
  const CUstream stream = make_stream(0);
  REQUIRE(played::Capture::begin(*played::stream_of(stream)) == CUDA_SUCCESS);
  played::Graph* made = nullptr;
  const auto capture = played::stream_of(stream)->capture;
  REQUIRE(capture->end(*played::stream_of(stream), &made) == CUDA_SUCCESS);
  const std::shared_ptr<played::Graph> graph{made};
  Latch latch;
  CUevent event = nullptr;
  REQUIRE(driver().event_create(&event, 0) == CUDA_SUCCESS);
  start(stream, latch.kernel(1));
  REQUIRE(played::launch_graph(graph, stream) == CUDA_SUCCESS);
  REQUIRE(driver().event_record(event, stream) == CUDA_SUCCESS);
  await(latch.begun, 1);
  CHECK(driver().event_query(event) == CUDA_ERROR_NOT_READY);
  latch.open = true;
  CHECK(driver().stream_synchronize(stream) == CUDA_SUCCESS);
}

TEST_CASE("a graph's copies run when the stream of its capture is no more") {
  played::install(1, 4);
  const CUstream stream = make_stream(0);
  int from = 7, to = 0;
  REQUIRE(played::Capture::begin(*played::stream_of(stream)) == CUDA_SUCCESS);
  REQUIRE(driver().memcpy_async(reinterpret_cast<CUdeviceptr>(&to),
                                reinterpret_cast<CUdeviceptr>(&from), sizeof to,
                                stream) == CUDA_SUCCESS);
  played::Graph* made = nullptr;
  const auto capture = played::stream_of(stream)->capture;
  REQUIRE(capture->end(*played::stream_of(stream), &made) == CUDA_SUCCESS);
  const std::shared_ptr<played::Graph> graph{made};
  REQUIRE(driver().stream_destroy(stream) == CUDA_SUCCESS);
  const CUstream other = make_stream(0);
  REQUIRE(played::launch_graph(graph, other) == CUDA_SUCCESS);
  CHECK(driver().stream_synchronize(other) == CUDA_SUCCESS);
  CHECK(to == 7);
}
