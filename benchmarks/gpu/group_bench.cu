// Eight small all-reduces, like those of a framework's gradients, one by one and as one group.
// Variants: eight compositions, one composition, Auto, and NCCL if its library is given; also with
// a message to the next rank. Prints the times of a round on rank 0, from a CUDA graph and from
// plain launches: one line of JSON for each size. On one GPU two ranks share it, without NCCL.
//   group_bench [min bytes] [max bytes] [libnccl.so.2]
// Exits with 1 if a result is wrong.
#include <ccl/ccl.cuh>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "must.cuh"
#include "nccl_at_run_time.hpp"

using namespace ccl;
using bench::must;

namespace {

constexpr int calls = 8;
std::atomic<bool> all_good{true};

double us_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin)
      .count();
}

/// Returns the microseconds of a round in a graph of `rounds`, the fastest of several replays.
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

/// Returns the microseconds of a round in plain launches, and their CPU time.
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

struct Buffers {
  std::array<float*, calls> in, out;
};

void fill(const Communicator& comm, const Buffers& buffers, Index count) {
  std::vector<float> mine(static_cast<std::size_t>(count));
  for (int k = 0; k < calls; ++k) {
    for (Index i = 0; i < count; ++i) mine[std::size_t(i)] = float((i + k) % 7 + comm.rank());
    const std::size_t bytes = mine.size() * sizeof(float);
    MUST(cudaMemcpy(buffers.in[std::size_t(k)], mine.data(), bytes, cudaMemcpyDefault));
    MUST(cudaMemset(buffers.out[std::size_t(k)], 0, bytes));
  }
  MUST(cudaDeviceSynchronize());
}
void check(const Communicator& comm, const Buffers& buffers, Index count) {
  std::vector<float> got(static_cast<std::size_t>(count));
  const int ranks = comm.ranks();
  for (int k = 0; k < calls; ++k) {
    MUST(cudaMemcpy(got.data(), buffers.out[std::size_t(k)], got.size() * sizeof(float),
                    cudaMemcpyDefault));
    for (Index i = 0; i < count; ++i) {
      const float want = float(ranks * ((i + k) % 7) + ranks * (ranks - 1) / 2);
      if (got[std::size_t(i)] != want) all_good = false;
    }
  }
}

/// Prints one line. `apart` makes the calls one by one, `together` makes them as a group.
template <class Apart, class Together>
void measure(const Communicator& comm, cudaStream_t stream, const char* what,
             const Buffers& buffers, Index count, Apart apart, Together together) {
  fill(comm, buffers, count);
  // waits for these copies, if ranks share a GPU, and for kernels of other ranks
  must(comm.barrier());
  together();
  MUST(cudaStreamSynchronize(stream));
  must(comm.barrier());
  check(comm, buffers, count);
  must(comm.barrier());
  const double each = in_a_graph(comm, stream, apart), grouped = in_a_graph(comm, stream, together);
  const double each_plain = as_launches(comm, stream, apart),
               grouped_plain = as_launches(comm, stream, together);
  if (comm.rank() != 0) return;
  std::printf(
      "{\"of\":\"%s\",\"ranks\":%d,\"calls\":%d,\"bytes\":%lld,\"apart_us\":%.2f,"
      "\"group_us\":%.2f,\"apart_plain_us\":%.2f,\"group_plain_us\":%.2f,\"ok\":%s}\n",
      what, comm.ranks(), calls, static_cast<long long>(count) * 4, each, grouped, each_plain,
      grouped_plain, all_good ? "true" : "false");
  std::fflush(stdout);
}

template <std::size_t... N>
void run(const Communicator& comm, const bench::Nccl* nccl, bench::Nccl::Comm rival, Index least,
         Index most, std::index_sequence<N...>) {
  MUST(cudaSetDevice(comm.device()));
  cudaStream_t stream;
  MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  using Op = Collective<AllReduce, OneShot, LL128, DefaultTransport>;
  const std::array<Op, calls> ops{((void)N, must(Op::create(comm)))...};
  const auto chosen = must(Collective<AllReduce>::create(comm));
  const auto packets = must(Collective<SendRecv, OneShot, LL128>::create(comm));
  const auto stores = must(Collective<SendRecv, Direct, Simple>::create(comm));
  const int next = (comm.rank() + 1) % comm.ranks(),
            before = (comm.rank() + comm.ranks() - 1) % comm.ranks();
  float* got = nullptr;
  MUST(cudaMalloc(&got, std::size_t(most)));
  Buffers buffers;
  for (int k = 0; k < calls; ++k) {
    MUST(cudaMalloc(&buffers.in[std::size_t(k)], std::size_t(most)));
    MUST(cudaMalloc(&buffers.out[std::size_t(k)], std::size_t(most)));
  }
  for (Index bytes = least; bytes <= most; bytes *= 4) {
    const Index count = bytes / Index{sizeof(float)};
    const auto of = [&](const char* what, const auto& bound) {
      measure(
          comm, stream, what, buffers, count,
          [&] { std::apply([&](const auto&... one) { (must(one(stream)), ...); }, bound); },
          [&] {
            must(std::apply([&](const auto&... one) { return group(stream, one...); }, bound));
          });
    };
    of("compositions", std::tuple{ops[N].bind(buffers.in[N], buffers.out[N], count)...});
    of("one composition", std::tuple{ops[0].bind(buffers.in[N], buffers.out[N], count)...});
    of("auto", std::tuple{chosen.bind(buffers.in[N], buffers.out[N], count)...});
    const auto with = [&](const char* what, const auto& message) {
      of(what,
         std::tuple_cat(std::tuple{ops[N].bind(buffers.in[N], buffers.out[N], count)...},
                        std::tuple{message.bind(buffers.in[0], count, next, got, count, before)}));
    };
    with("compositions and a message of packets", packets);
    with("compositions and a message of plain stores", stores);
    if (nccl == nullptr) continue;
    const auto each = [&] {
      for (int k = 0; k < calls; ++k) {
        MUST_NCCL(nccl->all_reduce(buffers.in[std::size_t(k)], buffers.out[std::size_t(k)],
                                   std::size_t(count), bench::Nccl::float32, bench::Nccl::sum,
                                   rival, stream));
      }
    };
    measure(comm, stream, "nccl", buffers, count, each, [&] {
      MUST_NCCL(nccl->group_start());
      each();
      MUST_NCCL(nccl->group_end());
    });
  }
  must(comm.barrier());
  MUST(cudaFree(got));
  for (int k = 0; k < calls; ++k) {
    MUST(cudaFree(buffers.in[std::size_t(k)]));
    MUST(cudaFree(buffers.out[std::size_t(k)]));
  }
  MUST(cudaStreamDestroy(stream));
}

}  // namespace

int main(int argc, char** argv) {
  // Two ranks share a GPU if there is only one. A rank must not load a kernel while another's
  // kernel waits for it.
  ::setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  int gpus = 0;
  if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus == 0) {
    std::printf("SKIP: no GPU\n");
    return 77;
  }
  const Index least = argc > 1 ? std::atoll(argv[1]) : 256;
  const Index most = argc > 2 ? std::atoll(argv[2]) : 1 << 20;
  ::setenv("CCL_TIMEOUT", "20", 0);
  if (gpus == 1) ::setenv("CCL_MULTI_RANK_GPU_ENABLE", "1", 1);
  std::optional<bench::Nccl> nccl;
  std::vector<bench::Nccl::Comm> rivals(std::size_t(std::max(2, gpus)), nullptr);
  if (argc > 3 && gpus > 1) {
    nccl.emplace(argv[3]);
    std::vector<int> devices;
    for (int g = 0; g < gpus; ++g) devices.push_back(g);
    MUST_NCCL(nccl->init_all(rivals.data(), gpus, devices.data()));
  }
  Config config;
  config.memory_budget_bytes = Index{1} << 30;
  auto comms = must(Communicator::create_all(std::max(2, gpus), config));
  std::vector<std::thread> threads;
  for (auto& comm : comms) {
    threads.emplace_back([&] {
      run(comm, nccl ? &*nccl : nullptr, rivals[std::size_t(comm.rank())], least, most,
          std::make_index_sequence<calls>{});
    });
  }
  for (auto& thread : threads) thread.join();
  return all_good ? 0 : 1;
}
