// A product of matrices whose inner dimension is spread over GPUs, and the reduce-scatter of its
// tiles, on all GPUs of this process:
// - "product": a kernel writes the tiles of this GPU's product.
// - "inside": the same kernel sends each tile to its owner when it is ready, which adds it up (as
//   examples/11_gemm_reduce_scatter.cu).
// - "apart": the product, then a reduce-scatter by ccl.
// - "cublas", "cublas+nccl": cuBLAS alone, and then NCCL's reduce-scatter.
// Prints one line of JSON for each. Exits with 1 if a result is wrong. It is not part of the build,
// because it wants cuBLAS:
//   nvcc -O3 -std=c++20 -arch=sm_90 -I include -I BUILD/include benchmarks/gpu/beside/cublas.cu
//     BUILD/libccl_runtime.a -lcublas -lfmt -lpugixml -ldl -o products
//   products [LIBNCCL] [rounds]
#include <ccl/device.cuh>
// after the header that suppresses warnings
#include <ccl/algo/direct.hpp>
#include <ccl/collective.cuh>
#include <ccl/transport/any_of.hpp>

#include <cuda_bf16.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "../nccl_at_run_time.hpp"
#include <cublas_v2.h>
#include <mma.h>

using namespace ccl;

namespace {

constexpr int m = 4096, n = 4096, k = 2048;  // inner dimension of each rank
constexpr int side = 64, step = 64, lanes = 256;
constexpr int tiles_across = n / side, tiles_in_all = m / side * tiles_across;
constexpr Index tile_elements = Index{side} * side;

using Half = __nv_bfloat16;
using Lanes = BlockLanes<lanes>;
using Parts = Tiles<Lanes, float, TileShape<side, side>, LL128>;

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
__host__ __device__ float in_a(int row, int, int rank) {
  return float((row + rank) % 3);
}
__host__ __device__ float in_b(int, int column) {
  return float(column % 5);
}
__global__ void fill(Half* a, Half* b, int rank) {
  for (int i = int(blockIdx.x * blockDim.x + threadIdx.x); i < (m > n ? m : n) * k;
       i += int(gridDim.x * blockDim.x)) {
    if (i < m * k) a[i] = __float2bfloat16(in_a(i / k, i % k, rank));
    if (i < k * n) b[i] = __float2bfloat16(in_b(i / n, i % n));
  }
}

/// Computes a tile of `a`, m x k, times `b`, k x n, with the tensor cores: 8 warps, 16 x 32 each.
__device__ void multiply(const Half* a, const Half* b, int tile, float* result) {
  namespace mma = nvcuda::wmma;
  __shared__ alignas(128) Half rows[side][step + 8], columns[step][side + 8];
  const int first_row = tile / tiles_across * side, first_column = tile % tiles_across * side;
  const int lane = int(threadIdx.x), warp = lane / 32;
  const int row = warp / 2 * 16, column = warp % 2 * 32;
  mma::fragment<mma::accumulator, 16, 16, 16, float> sum[2];
  for (auto& one : sum) mma::fill_fragment(one, 0.0f);
  constexpr int each = 8;  // elements of a 16-byte load
  constexpr int loads = side * step / each / lanes;
  for (int at = 0; at < k; at += step) {
    uint4 of_a[loads], of_b[loads];
    for (int l = 0; l < loads; ++l) {
      const int i = (l * lanes + lane) * each;
      of_a[l] =
          *reinterpret_cast<const uint4*>(a + Index(first_row + i / step) * k + at + i % step);
      of_b[l] =
          *reinterpret_cast<const uint4*>(b + Index(at + i / side) * n + first_column + i % side);
    }
    __syncthreads();
    for (int l = 0; l < loads; ++l) {
      const int i = (l * lanes + lane) * each;
      *reinterpret_cast<uint4*>(&rows[i / step][i % step]) = of_a[l];
      *reinterpret_cast<uint4*>(&columns[i / side][i % side]) = of_b[l];
    }
    __syncthreads();
    for (int inner = 0; inner < step; inner += 16) {
      mma::fragment<mma::matrix_a, 16, 16, 16, Half, mma::row_major> left;
      mma::load_matrix_sync(left, &rows[row][inner], step + 8);
      for (int c = 0; c < 2; ++c) {
        mma::fragment<mma::matrix_b, 16, 16, 16, Half, mma::row_major> right;
        mma::load_matrix_sync(right, &columns[inner][column + 16 * c], side + 8);
        mma::mma_sync(sum[c], left, right, sum[c]);
      }
    }
  }
  for (int c = 0; c < 2; ++c) {
    mma::store_matrix_sync(result + row * side + column + 16 * c, sum[c], side, mma::mem_row_major);
  }
  __syncthreads();
}

/// Tile t is tile t / ranks of rank t % ranks. `c` has the tiles of rank 0, then those of rank 1.
__global__ void __launch_bounds__(lanes)
    product(const Half* a, const Half* b, float* c, int ranks) {
  for (int t = int(blockIdx.x); t < tiles_in_all; t += int(gridDim.x)) {
    const Index place = Index{t % ranks} * (tiles_in_all / ranks) + t / ranks;
    multiply(a, b, t, c + place * tile_elements);
  }
}
/// `c` has this rank's tiles.
__global__ void __launch_bounds__(lanes)
    product_inside(const __grid_constant__ Team team, const Half* a, const Half* b, float* c) {
  __shared__ alignas(128) float tile[tile_elements];
  const int me = team.rank(), ranks = team.ranks();
  TeamSession session{Lanes{}, team, int(blockIdx.x), int(gridDim.x)};
  Parts parts{session};
  for (const bool own : {false, true}) {
    // Ranks begin with different owners.
    for (int t = int(blockIdx.x); t < tiles_in_all; t += int(gridDim.x)) {
      const int owner = t % ranks, slot = t / ranks;
      if ((owner == me) != own) continue;
      multiply(a, b, t, tile);
      if (!parts.reduce(owner, slot, tile)) return;
      for (int i = int(threadIdx.x); own && i < side * side; i += lanes) {
        c[slot * tile_elements + i] = tile[i];
      }
    }
  }
}

/// What a rank has, and how it times its work.
class Rank {
 public:
  Rank(const Communicator& comm, int rounds) : comm_{comm}, rounds_{rounds} {
    MUST(cudaSetDevice(comm.device()));
    MUST(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    MUST(cudaMalloc(&a_, sizeof(Half) * m * k));
    MUST(cudaMalloc(&b_, sizeof(Half) * k * n));
    MUST(cudaMalloc(&c_, sizeof(float) * m * n));
    MUST(cudaMalloc(&own_, sizeof(float) * m * n / comm.ranks()));
    fill<<<512, 256, 0, stream_>>>(a_, b_, comm.rank());
    MUST(cudaStreamSynchronize(stream_));
  }

  void run(const bench::Nccl* nccl, bench::Nccl::Comm with) {
    const int ranks = comm_.ranks(), blocks = blocks_of(product);
    measure(
        "product", [&] { product<<<blocks, lanes, 0, stream_>>>(a_, b_, c_, ranks); }, false);

    const auto memory = must(SharedMemory::allocate(comm_, 16));
    const auto window = must(Window::create(comm_, memory));
    const int inside_blocks = blocks_of(product_inside);
    const auto device = must(DeviceComm::create(
        comm_, window,
        {.blocks = inside_blocks, .ll128_bytes = Parts::bytes(tiles_in_all / ranks, ranks)}));
    must(check_launch(device, product_inside, inside_blocks, lanes));
    measure(
        "inside",
        [&] { product_inside<<<inside_blocks, lanes, 0, stream_>>>(device.team(), a_, b_, own_); },
        true);
    must(device.status());

    const auto scatter =
        must(Collective<ReduceScatter, Direct, Simple, DefaultTransport>::create(comm_));
    const auto call = [&] { must(scatter(c_, own_, Index{m} * n / ranks, Sum{}, stream_)); };
    measure("reduce-scatter", call, false);
    measure(
        "apart", [&] { product<<<blocks, lanes, 0, stream_>>>(a_, b_, c_, ranks), call(); }, true);

    cublasHandle_t blas;
    MUST(cublasCreate(&blas));
    MUST(cublasSetStream(blas, stream_));
    const float one = 1, zero = 0;
    // cuBLAS stores columns: the transposed product of the transposed factors.
    const auto by_blas = [&] {
      MUST(cublasGemmEx(blas, CUBLAS_OP_N, CUBLAS_OP_N, n, m, k, &one, b_, CUDA_R_16BF, n, a_,
                        CUDA_R_16BF, k, &zero, c_, CUDA_R_32F, n, CUBLAS_COMPUTE_32F,
                        CUBLAS_GEMM_DEFAULT));
    };
    measure("cublas", by_blas, false);
    measure(
        "cublas, ccl", [&] { by_blas(), call(); }, false);
    if (nccl != nullptr) {
      const auto by_nccl = [&] {
        MUST(nccl->reduce_scatter(c_, own_, size_t(m) * n / size_t(ranks), bench::Nccl::float32,
                                  bench::Nccl::sum, with, stream_));
      };
      measure("NCCL's reduce-scatter", by_nccl, false);
      measure(
          "cublas, nccl", [&] { by_blas(), by_nccl(); }, false);
      measure(
          "product, nccl",
          [&] { product<<<blocks, lanes, 0, stream_>>>(a_, b_, c_, ranks), by_nccl(); }, true);
    }
    MUST(cublasDestroy(blas));
    must(comm_.barrier());
    must(device.close());
  }

 private:
  int blocks_of(auto kernel) const {
    int each = 0, processors = 0;
    MUST(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, lanes, 0));
    MUST(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, comm_.device()));
    return each * processors;
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
    const int ranks = comm_.ranks();
    std::vector<float> got(size_t(m) * n / size_t(ranks));
    MUST(cudaMemcpy(got.data(), own_, got.size() * sizeof(float), cudaMemcpyDefault));
    for (int t = comm_.rank(); t < tiles_in_all; t += ranks) {
      for (int i = 0; i < tile_elements; i += 7) {
        const int row = t / tiles_across * side + i / side,
                  column = t % tiles_across * side + i % side;
        float want = 0;
        for (int r = 0; r < ranks; ++r) want += in_a(row, 0, r) * in_b(0, column) * k;
        if (got[size_t(t / ranks * tile_elements + i)] != want) all_good = false;
      }
    }
  }

  const Communicator& comm_;
  const int rounds_;
  cudaStream_t stream_ = nullptr;
  Half *a_ = nullptr, *b_ = nullptr;
  float *c_ = nullptr, *own_ = nullptr;
};

}  // namespace

int main(int argc, char** argv) {
  ::setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  ::setenv("CCL_TIMEOUT", "20", 0);
  const char* const library = argc > 1 ? argv[1] : nullptr;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 7;
  int gpus = 0;
  MUST(cudaGetDeviceCount(&gpus));
  auto comms = must(Communicator::create_all(gpus));
  std::vector<bench::Nccl::Comm> with(static_cast<size_t>(gpus));
  std::optional<bench::Nccl> nccl;
  if (library != nullptr) {
    nccl.emplace(library);
    MUST(nccl->init_all(with.data(), gpus, nullptr));
  }
  std::vector<std::thread> threads;
  for (size_t r = 0; r < comms.size(); ++r) {
    threads.emplace_back([&, r] { Rank{comms[r], rounds}.run(nccl ? &*nccl : nullptr, with[r]); });
  }
  for (auto& thread : threads) thread.join();
  return all_good ? 0 : 1;
}
