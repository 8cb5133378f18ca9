// Copies into windows for which one rank never calls. Streams that wait must end at the deadline or
// by an abort, both if a kernel waits and if the stream itself waits.
#include <ccl/comm/window.hpp>

#include "late.cuh"

using namespace ccl;
using namespace ccl::test;

namespace {

/// The last rank does not call; the others have two calls queued, as a graph or one by one.
template <class Algo>
void late(const Communicator& whole, bool graph, bool aborts) {
  const auto comm = with_timeout(whole, aborts ? 0 : 0.5);
  const int last = comm.ranks() - 1;
  const Index n = 1 << 16;
  cudaStream_t stream;
  MUST_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  const auto memory = must(SharedMemory::allocate(comm, n * comm.ranks()));
  const auto window = must(Window::create(comm, memory));
  Buffer<char> in{n, 0};
  const auto op = must(Collective<ccl::AllGather, Algo, Simple, DefaultTransport>::create(comm));
  must(op(in.get(), memory.as<char>(), n, stream));  // together
  drain(stream, 10);
  must(comm.barrier());
  if (comm.rank() != last) {
    const auto twice = [&] {
      must(op(in.get(), memory.as<char>(), n, stream));
      must(op(in.get(), memory.as<char>(), n, stream));
    };
    if (graph) {
      cudaGraph_t captured;
      cudaGraphExec_t ready;
      MUST_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
      twice();
      MUST_CUDA(cudaStreamEndCapture(stream, &captured));
      MUST_CUDA(cudaGraphInstantiate(&ready, captured, 0));
      MUST_CUDA(cudaGraphLaunch(ready, stream));
      drain(stream, 20);
      MUST_CUDA(cudaGraphExecDestroy(ready));
      MUST_CUDA(cudaGraphDestroy(captured));
    } else {
      twice();
      drain(stream, 20);
    }
    const auto status = failure(comm, 5);
    check(!status, "%s: rank %d saw no failure", Algo::name, comm.rank());
    if (!status && !aborts) {
      check(status.error().code == Errc::timed_out, "%s: rank %d: %s", Algo::name, comm.rank(),
            status.error().message().c_str());
      check(status.error().peer == last, "%s: rank %d blames %d", Algo::name, comm.rank(),
            status.error().peer);
    }
    const auto again = op(in.get(), memory.as<char>(), n, stream);
    check(!again, "%s: a call after the failure", Algo::name);
  } else {
    std::this_thread::sleep_for(std::chrono::milliseconds{300});
    if (aborts) comm.abort("a test");
    check(!failure(comm, 20), "%s: the late rank got no error", Algo::name);
  }
  MUST_CUDA(cudaStreamDestroy(stream));
}

void suite(const Communicator& comm) {
  for (const bool graph : {false, true}) {
    for (const bool aborts : {false, true}) {
      late<CopyEngine>(comm, graph, aborts);
      late<WindowCopies>(comm, graph, aborts);
      late<ZeroSmCopies>(comm, graph, aborts);
    }
  }
}

}  // namespace

int main() {
  score();
  const int gpus = count_gpus();
  if (gpus < 2) {
    std::printf("SKIP: %d GPUs, and copies between them want two\n", gpus);
    return 77;
  }
  ::setenv("CCL_TIMEOUT", "10", 0);
  Config config;
  config.memory_budget_bytes = Index{4} << 30;
  as_threads(gpus, config, suite);
  as_processes(gpus, config, suite);
  return result("Late ranks and windows", gpus);
}
