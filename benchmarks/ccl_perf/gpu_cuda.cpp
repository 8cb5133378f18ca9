#include <ccl/types/word.hpp>

#include <cuda_runtime_api.h>

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gpu.hpp"
#include "gpu_kernels.hpp"
#include "report.hpp"
#include <dlfcn.h>
#include <unistd.h>

namespace ccl::perf::gpu {
namespace {

Result<void> done(cudaError_t e, const char* what) {
  if (e == cudaSuccess) return {};
  (void)cudaGetLastError();  // clears the error, so that the next launch does not report it again
  Error error;
  error.code = e == cudaErrorMemoryAllocation ? Errc::out_of_memory : Errc::cuda;
  error.what = fmt::format("{} failed ({})", what, cudaGetErrorString(e));
  error.os_code = int(e);
  return fail(std::move(error));
}

/// Returns a typed pointer as the `void**` of CUDA's functions.
template <class T>
void** pointer_to(T*& pointer) {
  return reinterpret_cast<void**>(&pointer);
}

template <std::size_t N>
void put(char (&field)[N], std::string_view text) {
  text.copy(field, N - 1);
}

std::string driver_version() {
  void* const nvml = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (nvml == nullptr) return {};
  const auto init = reinterpret_cast<int (*)()>(::dlsym(nvml, "nvmlInit_v2"));
  const auto version =
      reinterpret_cast<int (*)(char*, unsigned)>(::dlsym(nvml, "nvmlSystemGetDriverVersion"));
  char text[80] = "";
  if (init == nullptr || version == nullptr || init() != 0 || version(text, sizeof text) != 0) {
    return {};
  }
  return text;
}

/// Words in memory of the host by which it asks a kernel for its clock.
struct ClockExchange {
  static constexpr int rounds = 101;
  std::atomic<unsigned> asked{0};
  std::atomic<unsigned long long> answers[rounds] = {};  // 0: none yet
};
static_assert(sizeof(std::atomic<unsigned long long>) == sizeof(unsigned long long));

long long system_ns() {
  using namespace std::chrono;
  return duration_cast<nanoseconds>(system_clock::now().time_since_epoch()).count();
}

class CudaQueue final : public Queue {
 public:
  CudaQueue(StartGate& gate, double deadline_s) : gate_{gate}, deadline_s_{deadline_s} {}
  /// Frees nothing. A rank ends its process, and a stream that hangs must not block that.
  ~CudaQueue() override = default;

  Result<void> start() {
    CCL_CHECK(done(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate"));
    CCL_CHECK(done(cudaEventCreate(&begin_), "cudaEventCreate"));
    CCL_CHECK(done(cudaEventCreate(&end_), "cudaEventCreate"));
    CCL_CHECK(done(cudaMalloc(pointer_to(wrong_), 256), "cudaMalloc"));
    CCL_CHECK(
        done(cudaHostAlloc(pointer_to(wrong_here_), 256, cudaHostAllocPortable), "cudaHostAlloc"));
    CCL_CHECK(done(cudaHostAlloc(pointer_to(exchange_), sizeof(ClockExchange),
                                 cudaHostAllocPortable | cudaHostAllocMapped),
                   "cudaHostAlloc"));
    CCL_CHECK(done(load_kernels(), "loading the benchmark's kernels"));
    // If several ranks share a process, one registers the page for all, and the others wait for it.
    static std::mutex registering;
    const std::lock_guard lock{registering};
    const auto e =
        cudaHostRegister(&gate_, 4096, cudaHostRegisterPortable | cudaHostRegisterMapped);
    if (e == cudaErrorHostMemoryAlreadyRegistered) {
      (void)cudaGetLastError();
    } else {
      CCL_CHECK(done(e, "cudaHostRegister of the page that the ranks share"));
    }
    CCL_CHECK(done(cudaHostGetDevicePointer(pointer_to(gate_there_), &gate_, 0),
                   "cudaHostGetDevicePointer"));
    return {};
  }

  Stream stream() const override { return stream_; }
  void* native() const override { return stream_; }

  Result<void> wait() override {
    const double begin = now_s();
    for (;;) {
      const cudaError_t e = cudaStreamQuery(stream_);
      if (e == cudaSuccess) return {};
      if (e != cudaErrorNotReady) return done(e, "what was queued on the GPU");
      const double waited = now_s() - begin;
      if (waited > deadline_s_) {
        return fail(Errc::timed_out,
                    fmt::format("the GPU has not finished after {:.0f} s (a peer is late, or it "
                                "hangs); see --timeout",
                                waited));
      }
      if (waited < 200e-6) {
        std::this_thread::yield();
      } else {
        ::usleep(20);
      }
    }
  }

  Result<void> fill_values(DataType type, RedOp redop, int ranks, int rank, Index count,
                           std::byte* send) override {
    return done(launch_fill_values(type, redop, ranks, rank, count, send, stream_), "filling");
  }
  Result<void> fill_moved(int from, Index bytes, std::byte* send) override {
    return done(launch_fill_moved(from, bytes, send, stream_), "filling");
  }
  Result<void> poison(std::byte* recv, Index bytes) override {
    return done(cudaMemsetAsync(recv, poison_byte, std::size_t(bytes), stream_), "cudaMemset");
  }
  Result<Index> count_values(DataType type, RedOp redop, int ranks, Index first, Index count,
                             const std::byte* recv) override {
    return counted([&] {
      return launch_count_values(type, redop, ranks, first, count, recv, wrong_, stream_);
    });
  }
  Result<Index> count_moved(const Piece& piece, Index element_bytes,
                            const std::byte* recv) override {
    return counted([&] { return launch_count_moved(piece, element_bytes, recv, wrong_, stream_); });
  }
  Result<Index> count_poison_gone(const std::byte* memory, Index bytes) override {
    return counted([&] { return launch_count_poison_gone(memory, bytes, wrong_, stream_); });
  }

  Result<void> capture(const std::function<Result<void>()>& calls) override {
    CCL_CHECK(drop_graph());
    CCL_CHECK(done(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal),
                   "cudaStreamBeginCapture"));
    const auto queued = calls();
    cudaGraph_t graph = nullptr;
    const auto ended = done(cudaStreamEndCapture(stream_, &graph), "cudaStreamEndCapture");
    CCL_CHECK(queued);
    CCL_CHECK(ended);
    const auto made = done(cudaGraphInstantiate(&graph_, graph, 0), "cudaGraphInstantiate");
    (void)cudaGraphDestroy(graph);
    CCL_CHECK(made);
    CCL_CHECK(done(cudaGraphUpload(graph_, stream_), "cudaGraphUpload"));
    return wait();
  }
  Result<void> replay() override {
    return done(cudaGraphLaunch(graph_, stream_), "cudaGraphLaunch");
  }
  Result<void> drop_graph() override {
    if (graph_ == nullptr) return {};
    return done(cudaGraphExecDestroy(std::exchange(graph_, nullptr)), "cudaGraphExecDestroy");
  }

  Result<void> hold(unsigned number) override {
    static_assert(sizeof(std::atomic<unsigned>) == sizeof(unsigned));
    return done(launch_gate(reinterpret_cast<unsigned*>(&gate_there_->opened),
                            reinterpret_cast<unsigned*>(&gate_there_->missed), number,
                            deadline_s_ / 2, stream_),
                "the launch of the gate");
  }
  Result<void> begin_clock() override {
    return done(cudaEventRecord(begin_, stream_), "cudaEventRecord");
  }
  Result<void> end_clock() override {
    return done(cudaEventRecord(end_, stream_), "cudaEventRecord");
  }
  Result<double> clock_us() override {
    float ms = 0;
    CCL_CHECK(done(cudaEventElapsedTime(&ms, begin_, end_), "cudaEventElapsedTime"));
    return double(ms) * 1e3;
  }

  Result<long long> lane_clock_ns() override {
    ::new (exchange_) ClockExchange;
    ClockExchange* there = nullptr;
    CCL_CHECK(done(cudaHostGetDevicePointer(pointer_to(there), exchange_, 0),
                   "cudaHostGetDevicePointer"));
    CCL_CHECK(done(launch_answer_clock(reinterpret_cast<unsigned*>(&there->asked),
                                       reinterpret_cast<unsigned long long*>(there->answers),
                                       ClockExchange::rounds, deadline_s_ / 2, stream_),
                   "the launch of the clock"));
    std::vector<long long> offsets;
    for (int n = 0; n < ClockExchange::rounds; ++n) {
      CCL_TRY(const long long offset, ask_clock(n));
      offsets.push_back(offset);
    }
    CCL_CHECK(wait());
    const auto middle = offsets.begin() + ClockExchange::rounds / 2;
    std::nth_element(offsets.begin(), middle, offsets.end());
    return *middle;
  }

 private:
  /// Returns the system clock, half-way between question and answer, less the clock of the GPU.
  Result<long long> ask_clock(int round) {
    const long long begin = system_ns();
    const double until = now_s() + deadline_s_;
    exchange_->asked.store(unsigned(round) + 1, std::memory_order_release);
    unsigned long long answer = 0;
    while ((answer = exchange_->answers[round].load(std::memory_order_acquire)) == 0) {
      if (now_s() < until) continue;
      return fail(Errc::timed_out,
                  fmt::format("the GPU's clock has not answered within {:.0f} s", deadline_s_));
    }
    const long long end = system_ns();
    return begin + (end - begin) / 2 - static_cast<long long>(answer);
  }

  template <class F>
  Result<Index> counted(F&& launch) {
    CCL_CHECK(done(cudaMemsetAsync(wrong_, 0, sizeof *wrong_, stream_), "cudaMemset"));
    CCL_CHECK(done(launch(), "checking"));
    CCL_CHECK(
        done(cudaMemcpyAsync(wrong_here_, wrong_, sizeof *wrong_, cudaMemcpyDeviceToHost, stream_),
             "cudaMemcpy"));
    CCL_CHECK(wait());
    return Index(*wrong_here_);
  }

  StartGate& gate_;
  double deadline_s_;
  StartGate* gate_there_ = nullptr;
  ClockExchange* exchange_ = nullptr;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  cudaGraphExec_t graph_ = nullptr;
  unsigned long long *wrong_ = nullptr, *wrong_here_ = nullptr;
};

}  // namespace

bool compiled() {
  return true;
}

Facts look() {
  Facts facts;
  (void)cudaRuntimeGetVersion(&facts.runtime_cuda);
  const cudaError_t e = cudaGetDeviceCount(&facts.count);
  if (e != cudaSuccess) {
    facts.count = 0;
    (void)cudaDriverGetVersion(&facts.driver_cuda);
    put(facts.why_none, facts.driver_cuda == 0 ? "no NVIDIA driver" : cudaGetErrorString(e));
    return facts;
  }
  (void)cudaDriverGetVersion(&facts.driver_cuda);
  put(facts.driver, driver_version());
  cudaDeviceProp properties{};
  if (facts.count > 0 && cudaGetDeviceProperties(&properties, 0) == cudaSuccess) {
    put(facts.model, properties.name);
  }
  return facts;
}

Result<void> select(int device) {
  CCL_CHECK(done(cudaSetDevice(device), "cudaSetDevice"));
  return done(cudaFree(nullptr), "creating a context");
}
int communicator_device(int device) {
  return device;
}
Result<Index> free_memory() {
  std::size_t free = 0, all = 0;
  CCL_CHECK(done(cudaMemGetInfo(&free, &all), "cudaMemGetInfo"));
  return Index(free);
}
Result<std::byte*> allocate(Index bytes) {
  // Other processes map memory of another size in small pages, which are slow from 768 MiB on
  // (docs/validation/performance_h200x2.md). Frameworks allocate such sizes, too.
  constexpr Index page = Index{2} << 20;
  bytes = div_up(bytes, page) * page;
  void* memory = nullptr;
  CCL_CHECK(done(cudaMalloc(&memory, std::size_t(bytes)),
                 fmt::format("cudaMalloc of {} bytes", bytes).c_str()));
  return static_cast<std::byte*>(memory);
}
void release(std::byte* memory) {
  (void)cudaFree(memory);
}
Result<std::unique_ptr<Queue>> Queue::create(StartGate& gate, double deadline_s) {
  auto queue = std::make_unique<CudaQueue>(gate, deadline_s);
  CCL_CHECK(queue->start());
  return queue;
}

}  // namespace ccl::perf::gpu
