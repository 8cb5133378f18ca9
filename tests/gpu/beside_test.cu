// No function of a communicator waits for a kernel of the program that runs meanwhile: a split,
// compositions, calls, graphs, windows and the end. Calls do not wait either for a later copy of
// memory that is not pinned. Otherwise a program whose kernel waits for later work would hang.
// Kernels are loaded at start: what follows the loading of a kernel waits for kernels that run.
#include "late.cuh"

using namespace ccl;
using namespace ccl::test;

namespace {

__global__ void hold(const volatile int* go, long long longest_ns) {
  long long begin = 0, now = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  while (*go == 0 && now - begin < longest_ns);
}

/// A kernel that runs until this ends, or for eight seconds.
class Held {
 public:
  Held() {
    MUST_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    MUST_CUDA(cudaHostAlloc(&go_, sizeof *go_, cudaHostAllocMapped));
    *go_ = 0;
    hold<<<4, 64, 0, stream_>>>(go_, 8'000'000'000);
    MUST_CUDA(cudaGetLastError());
  }
  ~Held() {
    *const_cast<volatile int*>(go_) = 1;
    MUST_CUDA(cudaStreamSynchronize(stream_));
    MUST_CUDA(cudaStreamDestroy(stream_));
    MUST_CUDA(cudaFreeHost(go_));
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

  /// Tests that the previous step has not waited for the kernel.
  void still(const char* after, const Communicator& comm) {
    if (ended_) return;
    ended_ = cudaStreamQuery(stream_) != cudaErrorNotReady;
    check(!ended_, "%s of rank %d waited for the kernel", after, comm.rank());
  }

 private:
  cudaStream_t stream_ = nullptr;
  bool ended_ = false;
  int* go_ = nullptr;
};

/// A call and a graph of it.
template <class AllReduce>
void calls(const AllReduce& all_reduce, const Communicator& comm, Held& held) {
  cudaStream_t stream;
  MUST_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  int* data = nullptr;
  MUST_CUDA(cudaMallocAsync(&data, 4000, stream));
  MUST_CUDA(cudaMemsetAsync(data, 0, 4000, stream));
  must(all_reduce(data, data, 1000, Sum{}, stream));
  drain(stream, 15);
  held.still("a call", comm);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t ready = nullptr;
  MUST_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  must(all_reduce(data, data, 1000, Sum{}, stream));
  MUST_CUDA(cudaStreamEndCapture(stream, &graph));
  MUST_CUDA(cudaGraphInstantiate(&ready, graph, 0));
  MUST_CUDA(cudaGraphLaunch(ready, stream));
  drain(stream, 15);
  MUST_CUDA(cudaGraphExecDestroy(ready));
  MUST_CUDA(cudaGraphDestroy(graph));
  held.still("a graph", comm);
  MUST_CUDA(cudaFreeAsync(data, stream));
  MUST_CUDA(cudaStreamDestroy(stream));
}

/// Capture of a stream that ccl does not use. The end of objects that were used meanwhile must not
/// affect it.
class Captured {
 public:
  Captured() {
    MUST_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    MUST_CUDA(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed));
  }
  ~Captured() {
    cudaGraph_t graph = nullptr;
    const cudaError_t ended = cudaStreamEndCapture(stream_, &graph);
    check(ended == cudaSuccess, "a capture beside the end of a composition: %s",
          cudaGetErrorString(ended));
    if (graph != nullptr) MUST_CUDA(cudaGraphDestroy(graph));
    MUST_CUDA(cudaStreamDestroy(stream_));
  }
  Captured(const Captured&) = delete;
  Captured& operator=(const Captured&) = delete;

 private:
  cudaStream_t stream_ = nullptr;
};

using ByRing = Collective<AllReduce, Ring, Simple>;
using ByOneShot = Collective<AllReduce, OneShot, LL128>;

/// Tests that `finalize` waits for the calls.
void ended_by_finalize(const Communicator& comm) {
  const auto ring = must(ByRing::create(comm));
  constexpr Index count = 4 << 20;
  cudaStream_t stream;
  MUST_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  float* data = nullptr;
  MUST_CUDA(cudaMallocAsync(&data, count * sizeof(float), stream));
  MUST_CUDA(cudaMemsetAsync(data, 0, count * sizeof(float), stream));
  for (int call = 0; call < 50; ++call) must(ring(data, data, count, Sum{}, stream));
  const bool under_way = cudaStreamQuery(stream) == cudaErrorNotReady;
  must(comm.finalize());
  check(under_way && cudaStreamQuery(stream) == cudaSuccess,
        "rank %d: finalize left calls under way", comm.rank());
  MUST_CUDA(cudaFreeAsync(data, stream));
  MUST_CUDA(cudaStreamDestroy(stream));
}

void suite(const Communicator& comm) {
  Held held;
  {
    const Communicator part = must(comm.split(0, comm.rank())).value();
    held.still("split", comm);
    {
      const Captured until_they_end;
      const auto ring = must(ByRing::create(part));
      const auto one_shot = must(ByOneShot::create(part));
      held.still("the making of compositions", comm);
      calls(ring, comm, held);
      calls(one_shot, comm, held);
    }
    held.still("the end of compositions", comm);
    {
      const auto memory = must(SharedMemory::allocate(part, 1 << 20));
      const auto window = must(Window::create(part, memory));
      held.still("a window", comm);
      const auto closed = must(Window::create(part, memory));
      const Captured until_closed;
      must(closed.close());
      held.still("the close of a window", comm);
    }
    held.still("the end of a window", comm);
    ended_by_finalize(part);
    held.still("finalize", comm);
  }
  held.still("the end of a communicator", comm);
  {
    const Communicator part = must(comm.split(0, comm.rank())).value();
    const auto ring = must(ByRing::create(part));
    must(comm.barrier());  // an abort would end the creation on a rank that is late
    part.abort("a test");
    held.still("abort", comm);
  }
  held.still("the end of an aborted communicator", comm);
  // A free on one rank would wait for the kernel of another, if they share a process and a GPU.
  must(comm.barrier());
}

}  // namespace

int main() {
  const Ranks ranks = find_ranks();
  if (ranks.gpus == 0) return skipped();
  ::setenv("CCL_TIMEOUT", "30", 0);
  ::setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  both_ways(ranks, {}, suite);
  return result("Beside a kernel", ranks.gpus);
}
