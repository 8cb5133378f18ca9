// A product of matrices whose inner dimension is spread over GPUs, and the reduce-scatter of its
// rows, on all GPUs of this process:
// - "product": a kernel writes this GPU's product (product.cuh).
// - "inside": the same kernel sends each part of a tile to its owner when it is ready, which adds
//   it up (as examples/11_gemm_reduce_scatter.cu).
// - "apart": the product, then a reduce-scatter by ccl.
// - "cublas", "cublas, nccl": cuBLAS alone, and then NCCL's reduce-scatter.
// Prints one line of JSON for each. Exits with 1 if a result is wrong. It is not part of the build,
// because it wants cuBLAS:
//   nvcc -O3 -std=c++20 -gencode arch=compute_90a,code=sm_90a -I include -I BUILD/include
//     benchmarks/gpu/beside/cublas.cu BUILD/libccl_runtime.a -lcublas -lcuda -lfmt -lpugixml -ldl
//     -o products
//   products [LIBNCCL, or - for none] [rounds] [k of each rank] [ranks]
// More ranks than GPUs share them, if CCL_MULTI_RANK_GPU_ENABLE is 1. NCCL refuses that.
#include <ccl/device.cuh>
// after the header that suppresses warnings
#include <ccl/algo/direct.hpp>
#include <ccl/collective.cuh>
#include <ccl/transport/any_of.hpp>

#include <cuda_bf16.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "../nccl_at_run_time.hpp"
#include "product.cuh"
#include <cublas_v2.h>

using namespace ccl;

namespace {

constexpr int m = 4096, n = 4096;

using Half = __nv_bfloat16;
using bench::Factors;
using bench::Product;
template <class Proto, int MaxRanks>
using Parts =
    Tiles<Product::Group, float, TileShape<Product::side, Product::side>, Proto, MaxRanks>;
using PartsOfFew = Parts<LL128Pairs, 4>;
using PartsOfMany = Parts<LL128, 8>;  // pairs of so many ranks would spill registers

std::atomic<bool> all_good{true};

void must(bool ok, const char* what, int line) {
  if (ok) return;
  std::fprintf(stderr, "line %d: %s failed\n", line, what);
  std::_Exit(1);
}
#define MUST(call) must(int(call) == 0, #call, __LINE__)
template <class T>
T must(Result<T> r, int line = __builtin_LINE()) {
  if (!r) {
    std::fprintf(stderr, "line %d: %s\n", line, r.error().message().c_str());
    std::_Exit(1);
  }
  if constexpr (!std::is_void_v<T>) return *std::move(r);
}

/// Elements of the factors: whole numbers, whose sums are exact.
__host__ __device__ float in_a(int row, int inner, int rank) {
  return float((row + inner + rank) % 3);
}
__host__ __device__ float in_b(int inner, int column) {
  return float((inner + column) % 5);
}
__global__ void fill(Half* a, Half* b, int k, int rank) {
  for (int i = int(blockIdx.x * blockDim.x + threadIdx.x); i < (m > n ? m : n) * k;
       i += int(gridDim.x * blockDim.x)) {
    if (i < m * k) a[i] = __float2bfloat16(in_a(i / k, i % k, rank));
    if (i < k * n) b[i] = __float2bfloat16(in_b(i / n, i % n));
  }
}

__global__ void __launch_bounds__(Product::lanes, 1)
    product(const __grid_constant__ Factors factors, float* c) {
  const Product work{factors, 0, 1};
  if (Product::group() == Product::groups) return work.load();
  work.multiply([&](const Product::Square& square, const float* sums) {
    Product::copy(sums, c + Index{square.row} * n + square.column, n);
  });
}
/// `c` has this rank's rows.
template <class Parts>
__global__ void __launch_bounds__(Product::lanes, 1)
    product_inside(const __grid_constant__ Team team, const __grid_constant__ Factors factors,
                   float* c) {
  const int me = team.rank(), first_row = m / team.ranks() * me;
  const Product work{factors, me, team.ranks()};
  if (Product::group() == Product::groups) return work.load();
  // Each group of a block has a session, as if it were a block.
  TeamSession session{Product::Group{}, team, int(blockIdx.x) * Product::groups + Product::group(),
                      int(gridDim.x) * Product::groups};
  Parts parts{session};
  work.multiply([&](const Product::Square& square, float* sums) {
    if (!parts.reduce(square.owner, square.number, sums) || square.owner != me) return;
    Product::copy(sums, c + Index{square.row - first_row} * n + square.column, n);
  });
}

/// What a rank has, and how it times its work.
class Rank {
 public:
  Rank(const Communicator& comm, int sharing, int rounds, int k)
      : comm_{comm}, rounds_{rounds}, k_{k} {
    MUST(cudaSetDevice(comm.device()));
    MUST(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    MUST(cudaMalloc(&a_, sizeof(Half) * m * size_t(k)));
    MUST(cudaMalloc(&b_, sizeof(Half) * n * size_t(k)));
    MUST(cudaMalloc(&c_, sizeof(float) * m * n));
    MUST(cudaMalloc(&own_, sizeof(float) * m * n / comm.ranks()));
    fill<<<512, 256, 0, stream_>>>(a_, b_, k, comm.rank());
    MUST(cudaDeviceGetAttribute(&blocks_, cudaDevAttrMultiProcessorCount, comm.device()));
    blocks_ /= sharing;
    MUST(cudaStreamSynchronize(stream_));
  }

  void run(const bench::Nccl* nccl, bench::Nccl::Comm with) {
    const int ranks = comm_.ranks();
    const Factors factors = Product::factors(a_, b_, m, n, k_);
    const auto by_kernel = [&] {
      product<<<blocks_, Product::lanes, Product::shared_bytes(), stream_>>>(factors, c_);
    };
    reserve(product, Product::shared_bytes());
    measure("product", by_kernel, false);

    const auto memory = must(SharedMemory::allocate(comm_, 16));
    const auto window = must(Window::create(comm_, memory));
    const Index slots = Index{Product::tiles(m, n) / ranks} * Product::squares;
    const bool few = ranks <= 4;
    const auto kernel = few ? product_inside<PartsOfFew> : product_inside<PartsOfMany>;
    const Index packet_bytes =
        few ? PartsOfFew::bytes(slots, ranks) : PartsOfMany::bytes(slots, ranks);
    const auto device = must(DeviceComm::create(
        comm_, window, {.blocks = blocks_ * Product::groups, .ll128_bytes = packet_bytes}));
    reserve(kernel, Product::shared_bytes());
    must(check_launch(device, kernel, blocks_, Product::lanes, Product::shared_bytes()));
    const auto inside = [&] {
      kernel<<<blocks_, Product::lanes, Product::shared_bytes(), stream_>>>(device.team(), factors,
                                                                            own_);
    };
    measure("inside", inside, true);
    must(device.status());

    const auto scatter =
        must(Collective<ReduceScatter, Direct, Simple, DefaultTransport>::create(comm_));
    const auto call = [&] { must(scatter(c_, own_, Index{m} * n / ranks, Sum{}, stream_)); };
    measure("reduce-scatter", call, false);
    measure(
        "apart", [&] { by_kernel(), call(); }, true);

    cublasHandle_t blas;
    MUST(cublasCreate(&blas));
    MUST(cublasSetStream(blas, stream_));
    const float one = 1, zero = 0;
    // cuBLAS stores columns: the transposed product of the transposed factors.
    const auto by_blas = [&] {
      MUST(cublasGemmEx(blas, CUBLAS_OP_N, CUBLAS_OP_N, n, m, k_, &one, b_, CUDA_R_16BF, n, a_,
                        CUDA_R_16BF, k_, &zero, c_, CUDA_R_32F, n, CUBLAS_COMPUTE_32F,
                        CUBLAS_GEMM_DEFAULT));
    };
    measure("cublas", by_blas, false);
    measure(
        "cublas, ccl", [&] { by_blas(), call(); }, true);
    if (nccl != nullptr) {
      const auto by_nccl = [&] {
        MUST(nccl->reduce_scatter(c_, own_, size_t(m) * n / size_t(ranks), bench::Nccl::float32,
                                  bench::Nccl::sum, with, stream_));
      };
      measure("NCCL's reduce-scatter", by_nccl, false);
      measure(
          "cublas, nccl", [&] { by_blas(), by_nccl(); }, true);
      measure(
          "product, nccl", [&] { by_kernel(), by_nccl(); }, true);
    }
    MUST(cublasDestroy(blas));
    must(comm_.barrier());
    must(device.close());
  }

 private:
  static void reserve(auto kernel, int shared_bytes) {
    MUST(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes));
  }
  /// Times calls one after the other, and checks the sums if `own_` has them.
  void measure(const char* how, const std::function<void()>& call, bool sums) {
    MUST(cudaMemsetAsync(own_, 0, sizeof(float) * m * n / size_t(comm_.ranks()), stream_));
    cudaEvent_t begin, end;
    MUST(cudaEventCreate(&begin));
    MUST(cudaEventCreate(&end));
    std::vector<double> times;
    constexpr int calls = 10;
    for (int round = 0; round <= rounds_; ++round) {
      MUST(cudaStreamSynchronize(stream_));
      must(comm_.barrier());
      MUST(cudaEventRecord(begin, stream_));
      for (int i = 0; i < calls; ++i) call();
      MUST(cudaEventRecord(end, stream_));
      MUST(cudaEventSynchronize(end));
      float ms = 0;
      MUST(cudaEventElapsedTime(&ms, begin, end));
      if (round > 0) times.push_back(double(ms) * 1000 / calls);
    }
    std::sort(times.begin(), times.end());
    if (sums) check();
    MUST(cudaEventDestroy(begin));
    MUST(cudaEventDestroy(end));
    must(comm_.barrier());
    if (comm_.rank() != 0) return;
    std::printf("{\"of\":\"product\",\"gpus\":%d,\"how\":\"%s\",\"us\":%.1f,\"ok\":%s}\n",
                comm_.ranks(), how, times[times.size() / 2], all_good ? "true" : "false");
    std::fflush(stdout);
  }
  void check() const {
    const int ranks = comm_.ranks(), first_row = m / ranks * comm_.rank();
    // Elements repeat after 3 rows and 5 columns.
    std::array<std::array<float, 5>, 3> want{};
    for (int i = 0; i < 3 * 5; ++i) {
      for (int inner = 0; inner < ranks * k_; ++inner) {
        want[size_t(i / 5)][size_t(i % 5)] +=
            in_a(i / 5, inner % k_, inner / k_) * in_b(inner % k_, i % 5);
      }
    }
    std::vector<float> got(size_t(m) * n / size_t(ranks));
    MUST(cudaMemcpy(got.data(), own_, got.size() * sizeof(float), cudaMemcpyDefault));
    for (size_t i = 0; i < got.size(); ++i) {
      if (got[i] != want[(i / n + size_t(first_row)) % 3][i % n % 5]) all_good = false;
    }
  }

  const Communicator& comm_;
  const int rounds_, k_;
  int blocks_ = 0;  // of a launch: one on each multiprocessor of this rank
  cudaStream_t stream_ = nullptr;
  Half *a_ = nullptr, *b_ = nullptr;
  float *c_ = nullptr, *own_ = nullptr;
};

}  // namespace

int main(int argc, char** argv) {
  ::setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  ::setenv("CCL_TIMEOUT", "20", 0);
  const char* const library = argc > 1 && std::strcmp(argv[1], "-") != 0 ? argv[1] : nullptr;
  int gpus = 0;
  MUST(cudaGetDeviceCount(&gpus));
  const auto number = [&](int at, int otherwise) {
    return argc > at ? std::atoi(argv[at]) : otherwise;
  };
  const int rounds = number(2, 7), k = number(3, 2048), ranks = number(4, gpus);
  must(Product::divides(m, n, k, ranks), "the division of the product into tiles", __LINE__);
  const int sharing = (ranks + gpus - 1) / gpus;
  auto comms = must(Communicator::create_all(ranks));
  std::vector<bench::Nccl::Comm> with(static_cast<size_t>(ranks));
  std::optional<bench::Nccl> nccl;
  if (library != nullptr) {
    nccl.emplace(library);
    MUST(nccl->init_all(with.data(), ranks, nullptr));
  }
  std::vector<std::thread> threads;
  for (size_t r = 0; r < comms.size(); ++r) {
    threads.emplace_back([&, r] {
      Rank{comms[r], sharing, rounds, k}.run(nccl ? &*nccl : nullptr, with[r]);
    });
  }
  for (auto& thread : threads) thread.join();
  return all_good ? 0 : 1;
}
