// CPU time of a call of a collective through the public interface. It alternates with a bare launch
// of an empty kernel with as many bytes of arguments, on the same thread and stream. Two GPUs, as
// ranks of one process and as two processes; if there is one GPU, two threads share it. Prints
// medians of 10,000 calls on rank 0, one line of JSON each.
#include <ccl/ccl.cuh>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "must.cuh"
#include <sys/wait.h>
#include <unistd.h>

using namespace ccl;
using bench::must;

namespace {

template <class Work>
__global__ void nothing(const __grid_constant__ Work, int) {}

double median(std::vector<double>& all) {
  std::sort(all.begin(), all.end());
  return all[all.size() / 2];
}

template <class Work, class Call>
void measure(const Communicator& comm, const char* as, const Work& work, const std::string& name,
             cudaStream_t stream, Call call) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> calls, bare;
  for (int i = 0; i < 11000; ++i) {
    const auto begin = Clock::now();
    must(call());
    const auto middle = Clock::now();
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(16);
    config.blockDim = dim3(128);
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = 1;
    MUST(cudaLaunchKernelEx(&config, nothing<Work>, work, 64));
    const auto end = Clock::now();
    const auto ns = [](auto d) { return std::chrono::duration<double, std::nano>(d).count(); };
    if (i >= 1000) calls.push_back(ns(middle - begin)), bare.push_back(ns(end - middle));
    if (i % 64 == 63) MUST(cudaStreamSynchronize(stream));  // keeps the queue from filling
  }
  if (comm.rank() != 0) return;
  const double a = median(calls), b = median(bare);
  std::printf(
      "{\"call\":\"%s\",\"as\":\"%s\",\"ranks\":%d,\"argument_bytes\":%zu,\"median_ns\":%.0f,"
      "\"bare_ns\":%.0f,\"on_top_ns\":%.0f}\n",
      name.c_str(), as, comm.ranks(), sizeof(Work), a, b, a - b);
  std::fflush(stdout);
}

void run(const Communicator& comm, const char* as) {
  MUST(cudaSetDevice(comm.device()));
  cudaStream_t stream;
  MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  float* data = nullptr;
  MUST(cudaMalloc(&data, 1 << 20));
  using Sum32 = detail::Reduction<Sum, float>;
  {
    const auto op = must(Collective<AllReduce, Ring, LL, DefaultTransport>::create(comm));
    measure(comm, as, detail::WireWork<Sum32>{Sum32{Sum{}, 2}}, op.name(), stream,
            [&] { return op(data, data + 1024, 1024, Sum{}, stream); });
  }
  {
    const auto op = must(Collective<AllReduce, OneShot, LL128, DefaultTransport>::create(comm));
    measure(comm, as, detail::PeerWork<Sum32>{Sum32{Sum{}, 2}}, op.name(), stream,
            [&] { return op(data, data + 1024, 1024, Sum{}, stream); });
  }
  {
    const auto op = must(Collective<AllToAll, Pairwise, LL, DefaultTransport>::create(comm));
    measure(comm, as, detail::ExchangeWork{detail::WireWork<detail::Bytes>{detail::Bytes{}}},
            op.name(), stream, [&] { return op(data, data + 65536, 256, stream); });
  }
  MUST(cudaFree(data));
  MUST(cudaStreamDestroy(stream));
}

void as_threads(const Config& config) {
  auto comms = must(Communicator::create_all(2, config));
  std::thread other{[&] { run(comms[1], "threads"); }};
  run(comms[0], "threads");
  other.join();
}
void as_process(int rank, const Config& config) {
  const auto put = [](const char* name, const std::string& value) {
    ::setenv(name, value.c_str(), 1);
  };
  put("RANK", std::to_string(rank));
  put("LOCAL_RANK", std::to_string(rank));
  put("WORLD_SIZE", "2");
  put("MASTER_ADDR", "127.0.0.1");
  put("MASTER_PORT", std::to_string(20000 + ::getppid() % 12000));
  run(must(Communicator::from_env(config)), "processes");
}

/// Runs `f` in a process of its own, because the parent must not touch CUDA. Its exit status is the
/// result.
template <class F>
pid_t start(F f) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  f();
  std::_Exit(0);
}
int join(pid_t child) {
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

}  // namespace

int main() {
  const int gpus = join(start([] {
    int n = 0;
    std::_Exit(cudaGetDeviceCount(&n) == cudaSuccess ? n : 0);
  }));
  if (gpus == 0) {
    std::printf("SKIP: no GPU\n");
    return 77;
  }
  if (gpus == 1) {
    ::setenv("CCL_MULTI_RANK_GPU_ENABLE", "1", 1);
    ::setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  }
  Config config;
  config.timeout_s = 10;
  const int threads = join(start([&] { as_threads(config); }));
  if (gpus == 1) return threads;  // processes would alternate in milliseconds
  const pid_t ranks[] = {start([&] { as_process(0, config); }),
                         start([&] { as_process(1, config); })};
  const int first = join(ranks[0]), second = join(ranks[1]);
  return threads != 0 ? threads : first != 0 ? first : second;
}
