// Eight small all-reduces, as frameworks make of gradients: one by one, and as one group. Times of
// a round on rank 0, from a CUDA graph and from plain launches; one line of JSON for each size.
//   group_bench [min bytes] [max bytes]
// Exits with 1 if a result is wrong.
#include <ccl/ccl.cuh>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

using namespace ccl;

namespace {

constexpr int calls = 8;
std::atomic<bool> all_good{true};

void must(cudaError_t e, int line) {
  if (e == cudaSuccess) return;
  std::printf("line %d: %s\n", line, cudaGetErrorString(e));
  std::_Exit(1);
}
#define MUST(call) must((call), __LINE__)
template <class T>
T must(Result<T> r, int line = __builtin_LINE()) {
  if (!r) {
    std::printf("line %d: %s\n", line, r.error().message().c_str());
    std::_Exit(1);
  }
  if constexpr (!std::is_void_v<T>) return *std::move(r);
}

double us_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin)
      .count();
}

/// Microseconds of a round: a graph of `rounds`, the fastest of some.
template <class Round>
double in_a_graph(const Communicator& comm, cudaStream_t stream, Round round) {
  constexpr int rounds = 50;
  cudaGraph_t captured;
  cudaGraphExec_t ready;
  cudaEvent_t begin, end;
  MUST(cudaEventCreate(&begin));
  MUST(cudaEventCreate(&end));
  MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < rounds; ++i) round();
  MUST(cudaStreamEndCapture(stream, &captured));
  MUST(cudaGraphInstantiate(&ready, captured, 0));
  double best = 0;
  for (int i = 0; i < 7; ++i) {
    must(comm.barrier());
    MUST(cudaEventRecord(begin, stream));
    MUST(cudaGraphLaunch(ready, stream));
    MUST(cudaEventRecord(end, stream));
    MUST(cudaEventSynchronize(end));
    float ms = 0;
    MUST(cudaEventElapsedTime(&ms, begin, end));
    const double us = double(ms) * 1000 / rounds;
    if (i == 1 || (i > 1 && us < best)) best = us;
  }
  MUST(cudaGraphExecDestroy(ready));
  MUST(cudaGraphDestroy(captured));
  MUST(cudaEventDestroy(begin));
  MUST(cudaEventDestroy(end));
  return best;
}

/// The same of plain launches, with what they take the CPU.
template <class Round>
double as_launches(const Communicator& comm, cudaStream_t stream, Round round) {
  constexpr int rounds = 100;
  double best = 0;
  for (int i = 0; i < 7; ++i) {
    must(comm.barrier());
    const auto begin = std::chrono::steady_clock::now();
    for (int k = 0; k < rounds; ++k) round();
    MUST(cudaStreamSynchronize(stream));
    const double us = us_since(begin) / rounds;
    if (i == 1 || (i > 1 && us < best)) best = us;
  }
  return best;
}

template <std::size_t... N>
void run(const Communicator& comm, Index least, Index most, std::index_sequence<N...>) {
  MUST(cudaSetDevice(comm.device()));
  cudaStream_t stream;
  MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  using Op = Collective<AllReduce, OneShot, LL128, DefaultTransport>;
  const std::array<Op, calls> ops{((void)N, must(Op::create(comm)))...};
  std::array<float*, calls> in, out;
  for (int k = 0; k < calls; ++k) {
    MUST(cudaMalloc(&in[std::size_t(k)], std::size_t(most)));
    MUST(cudaMalloc(&out[std::size_t(k)], std::size_t(most)));
  }
  for (Index bytes = least; bytes <= most; bytes *= 4) {
    const Index count = bytes / Index{sizeof(float)};
    std::vector<float> mine(static_cast<std::size_t>(count)), got(mine.size());
    for (int k = 0; k < calls; ++k) {
      for (Index i = 0; i < count; ++i) {
        mine[std::size_t(i)] = float((i + k) % 7 + comm.rank());
      }
      MUST(cudaMemcpy(in[std::size_t(k)], mine.data(), std::size_t(bytes), cudaMemcpyDefault));
      MUST(cudaMemset(out[std::size_t(k)], 0, std::size_t(bytes)));
    }
    MUST(cudaDeviceSynchronize());
    const std::tuple bound{ops[N].bind(in[N], out[N], count)...};
    const auto apart = [&] {
      std::apply([&](const auto&... one) { (must(one(stream)), ...); }, bound);
    };
    const auto together = [&] {
      must(std::apply([&](const auto&... one) { return group(stream, one...); }, bound));
    };
    const auto lone = [&] { must(std::get<0>(bound)(stream)); };
    together();
    MUST(cudaStreamSynchronize(stream));
    for (int k = 0; k < calls; ++k) {
      MUST(cudaMemcpy(got.data(), out[std::size_t(k)], std::size_t(bytes), cudaMemcpyDefault));
      const int ranks = comm.ranks();
      for (Index i = 0; i < count; ++i) {
        const float want = float(ranks * ((i + k) % 7) + ranks * (ranks - 1) / 2);
        if (got[std::size_t(i)] != want) all_good = false;
      }
    }
    const double one = in_a_graph(comm, stream, lone), each = in_a_graph(comm, stream, apart),
                 grouped = in_a_graph(comm, stream, together);
    const double each_plain = as_launches(comm, stream, apart),
                 grouped_plain = as_launches(comm, stream, together);
    if (comm.rank() == 0) {
      std::printf(
          "{\"ranks\":%d,\"calls\":%d,\"bytes\":%lld,\"one_us\":%.2f,\"apart_us\":%.2f,"
          "\"group_us\":%.2f,\"apart_plain_us\":%.2f,\"group_plain_us\":%.2f,\"ok\":%s}\n",
          comm.ranks(), calls, static_cast<long long>(bytes), one, each, grouped, each_plain,
          grouped_plain, all_good ? "true" : "false");
      std::fflush(stdout);
    }
  }
  must(comm.barrier());
  for (int k = 0; k < calls; ++k) {
    MUST(cudaFree(in[std::size_t(k)]));
    MUST(cudaFree(out[std::size_t(k)]));
  }
  MUST(cudaStreamDestroy(stream));
}

}  // namespace

int main(int argc, char** argv) {
  int gpus = 0;
  if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus < 2) {
    std::printf("SKIP: needs two GPUs, has %d\n", gpus);
    return 77;
  }
  const Index least = argc > 1 ? std::atoll(argv[1]) : 256;
  const Index most = argc > 2 ? std::atoll(argv[2]) : 1 << 20;
  ::setenv("CCL_TIMEOUT", "20", 0);
  Config config;
  config.memory_budget_bytes = Index{1} << 30;
  auto comms = must(Communicator::create_all(gpus, config));
  std::vector<std::thread> threads;
  for (auto& comm : comms) {
    threads.emplace_back(
        [&comm, least, most] { run(comm, least, most, std::make_index_sequence<calls>{}); });
  }
  for (auto& thread : threads) thread.join();
  return all_good ? 0 : 1;
}
