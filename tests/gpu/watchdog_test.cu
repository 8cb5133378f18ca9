// Faults of jobs on GPUs that the watchdog must explain by itself: those of CPU ranks in
// tests/comm/watchdog_test.cpp, and some that only kernels have. The four processes share GPUs if
// there are fewer.
//
//   ccl.test.gpu.watchdog.gpu    prints the table of docs/validation/diagnosis.md
#include <ccl/checked.hpp>

#include <algorithm>
#include <limits>

#include "communicator.cuh"
#include "support/call_faults.hpp"
#include "support/network_faults.hpp"
#include "support/rank_faults.hpp"
#include "support/skip.hpp"

using namespace ccl;
using namespace ccl::test;
using namespace ccl::test::faults;

namespace {

/// GPUs of this machine, counted before the first rank starts.
int gpus() {
  static const int found = count_gpus();
  return found;
}
/// True if a test must leave out, because there is no GPU.
bool without_gpu() {
  if (gpus() > 0) return false;
  skip("no GPU");
  return true;
}

/// Elements in device memory, all alike. They live as long as the process.
template <class T>
class DeviceElements {
 public:
  DeviceElements(Index n, T value) {
    const std::vector<T> all(std::size_t(n), value);
    MUST_CUDA(cudaMalloc(&at_, std::size_t(n) * sizeof(T)));
    MUST_CUDA(cudaMemcpy(at_, all.data(), std::size_t(n) * sizeof(T), cudaMemcpyDefault));
  }
  T* data() const { return at_; }

 private:
  T* at_ = nullptr;
};

/// Ranks on GPUs. All calls are on the default stream.
struct GpuRank : CpuRank {
  template <class T>
  using Array = DeviceElements<T>;
  static Config config(int rank) {
    ::setenv("CCL_MULTI_RANK_GPU_ENABLE", "1", 1);
    ::setenv("CUDA_MODULE_LOADING", "EAGER", 1);
    Config config;
    config.device = rank % gpus();
    return config;
  }
  static void enter(const Communicator& comm) { MUST_CUDA(cudaSetDevice(comm.device())); }
  /// The result of a call when its kernel has ended, or the communicator has failed.
  static Result<void> ended(const Communicator& comm, Result<void> call) {
    CCL_CHECK(call);
    while (cudaStreamQuery(nullptr) == cudaErrorNotReady && comm.status()) sleep_s(0.001);
    return comm.status();
  }
};
using Near = Calls<DefaultTransport, GpuRank>;
using Far = Calls<SocketTransport, GpuRank>;

/// Runs until `*go` is 1. Host memory holds it.
__global__ void hold(const volatile int* go) {
  while (*go == 0) __nanosleep(1000);
}

/// A word of pinned memory, 0.
int* pinned_word() {
  int* word = nullptr;
  MUST_CUDA(cudaHostAlloc(&word, sizeof(int), 0));
  *word = 0;
  return word;
}

/// Calls of all ranks that are in a graph.
class GraphOfSums {
 public:
  GraphOfSums(Near& calls, Index n) : calls_{calls} {
    MUST_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    MUST_CUDA(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    must(calls.sums(calls.x.data(), calls.y.data(), n, Sum{}, stream_));
    cudaGraph_t captured;
    MUST_CUDA(cudaStreamEndCapture(stream_, &captured));
    MUST_CUDA(cudaGraphInstantiate(&ready_, captured, 0));
  }
  /// Replays the graph, and waits for its end or the communicator's failure.
  Result<void> replay() const {
    MUST_CUDA(cudaGraphLaunch(ready_, stream_));
    while (cudaStreamQuery(stream_) == cudaErrorNotReady && calls_.comm.status()) sleep_s(0.001);
    return calls_.comm.status();
  }
  /// Puts a kernel that does not end before later replays.
  void hold_stream() const { hold<<<1, 1, 0, stream_>>>(pinned_word()); }

 private:
  Near& calls_;
  cudaStream_t stream_{};
  cudaGraphExec_t ready_{};
};

/// Sum that does not return until `*go` is 1, if there is a word.
struct HangsOnGpu {
  const volatile int* go;
  CCL_HD float operator()(float a, float b) const {
    while (go != nullptr && *go == 0) {
    }
    return a + b;
  }
};

}  // namespace

TEST_CASE("faults of calls on GPUs") {
  if (without_gpu()) return;
  faults_of_calls<Near>();
}

TEST_CASE("faults of GPUs' processes") {
  if (without_gpu()) return;
  faults_of_processes<Near, Far>();
}

TEST_CASE("faults of networks between GPUs") {
  if (without_gpu()) return;
  faults_of_networks<Far>();
}

TEST_CASE("faults of steps of GPUs' ranks") {
  if (without_gpu()) return;
  faults_of_steps<Near>();
  faults_over_tcp<Far>();
}

TEST_CASE("faults of graphs") {
  if (without_gpu()) return;
  play<Near>("does not replay a graph", {Cause::queued, victim, "", 4, Cause::not_called},
             [](Near& calls) -> Result<void> {
               const GraphOfSums graph{calls, count};
               CCL_CHECK(graph.replay());
               if (!calls.is_victim()) return graph.replay();
               fires(calls.board);
               wait_for_the_end(calls.board);
               return {};
             });
  play<Near>("replays a graph behind a kernel of its stream", {Cause::queued, victim, "", 4},
             [](Near& calls) -> Result<void> {
               const GraphOfSums graph{calls, count};
               CCL_CHECK(graph.replay());
               if (calls.is_victim()) {
                 graph.hold_stream();
                 fires(calls.board);
               }
               return graph.replay();
             });
}

TEST_CASE("faults of kernels") {
  if (without_gpu()) return;
  play<Near>("is queued behind a kernel of its stream",
             {Cause::queued, victim, "it is behind other work, or it computes", 4},
             [](Near& calls) -> Result<void> {
               if (calls.is_victim()) {
                 hold<<<1, 1>>>(pinned_word());
                 fires(calls.board);
               }
               return calls.sum();
             });
  play<Near>(
      "its functor does not return",
      {Cause::queued, victim, "waits for nobody", 4, Cause::working},  // if it has waited
      [](Near& calls) -> Result<void> {
        const int* const go = calls.is_victim() ? pinned_word() : nullptr;
        if (calls.is_victim()) fires(calls.board);
        return calls.ended(calls.sums(calls.x.data(), calls.y.data(), count, HangsOnGpu{go}));
      });
  play<Near>(
      "its functor does not return, after a wait", {Cause::working, victim, "waits for nobody", 4},
      [](Near& calls) -> Result<void> {
        const int* const go = calls.is_victim() ? pinned_word() : nullptr;
        if (calls.is_victim()) fires(calls.board);
        if (!calls.is_victim()) sleep_s(1);
        return calls.ended(calls.sums(calls.x.data(), calls.y.data(), count, HangsOnGpu{go}));
      });
  fails<Near>("has a NaN, with Checked", Errc::not_a_number, [](Near& calls) -> Result<void> {
    CCL_TRY(const auto sums, (Collective<AllReduce, Checked<Ring>, Simple>::create(calls.comm)));
    if (calls.is_victim()) {
      const float bad = std::numeric_limits<float>::quiet_NaN();
      MUST_CUDA(cudaMemcpy(calls.x.data() + 77, &bad, sizeof bad, cudaMemcpyDefault));
      fires(calls.board);
    }
    return calls.ended(sums(calls.x.data(), calls.y.data(), count));
  });
  fails<Near>("calls abort", Errc::aborted, [](Near& calls) -> Result<void> {
    if (calls.is_victim()) {
      fires(calls.board);
      calls.comm.abort("the fault");
    }
    return calls.sum();
  });
}

// The last case of the file: what the ones before have played.
TEST_CASE("faults of GPUs in all: of at least 30, all but one are named rightly within 10 s") {
  if (table().empty()) return skip("the cases before have played no fault");
  const auto in_time =
      std::ranges::count_if(table(), [](const Named& of) { return of.right && of.took_s < 10; });
  std::printf("%td of %zu faults are named within 10 s\n", in_time, table().size());
  CHECK(table().size() >= 30);
  CHECK(std::size_t(in_time) + 1 >= table().size());
}
