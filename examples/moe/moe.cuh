#pragma once

// Layer of a mixture of experts over GPUs: tokens are sent to the ranks of their experts and back.
// Counts never leave the GPUs, so the whole layer can be captured into a graph.
#include <ccl/ccl.cuh>

#include <cuda_bf16.h>

#include <memory>
#include <utility>
#include <vector>

namespace moe {

using Token = __nv_bfloat16;

struct Shape {
  int tokens = 128;   // tokens of each rank, at most
  int hidden = 7168;  // elements of a token; a multiple of 8
  int top = 8;        // experts of a token
  int experts = 256;  // experts of all ranks, split evenly
};

/// Expert of a token, and the weight of its result.
struct Pick {
  int expert;
  float weight;
};

constexpr int max_ranks = 8;

// Each kernel may start while its predecessor in the stream runs, and then waits for it.

/// Computes the ranks that have an expert of each token, and the token's place among the tokens for
/// such a rank, in order. One block, one thread for each token.
static __global__ void __launch_bounds__(1024)
    route(Shape shape, int ranks, const Pick* __restrict__ picks, int* __restrict__ counts,
          int* __restrict__ list, int* __restrict__ place) {
  cudaTriggerProgrammaticLaunchCompletion();
  cudaGridDependencySynchronize();
  __shared__ int found[32][max_ranks];  // counts of each warp
  const int lane = int(threadIdx.x % 32), warp = int(threadIdx.x / 32);
  const int each = shape.experts / ranks;
  int before[max_ranks] = {};  // tokens for each rank in earlier rounds
  for (int first = 0; first < shape.tokens; first += int(blockDim.x)) {
    const int t = first + int(threadIdx.x);
    unsigned wanted = 0;
#pragma unroll 8
    for (int k = 0; k < shape.top && t < shape.tokens; ++k) {
      wanted |= 1u << picks[t * shape.top + k].expert / each;
    }
    int at[max_ranks];
#pragma unroll
    for (int r = 0; r < max_ranks; ++r) {
      const unsigned all = __ballot_sync(0xffff'ffffu, wanted >> r & 1);
      at[r] = before[r] + __popc(all & ((1u << lane) - 1));
      if (lane == 0) found[warp][r] = __popc(all);
    }
    __syncthreads();
#pragma unroll
    for (int r = 0; r < max_ranks; ++r) {
      if (r >= ranks) break;
      for (int w = 0; w < int(blockDim.x / 32); ++w) {
        at[r] += w < warp ? found[w][r] : 0;
        before[r] += found[w][r];
      }
      if (t >= shape.tokens) continue;
      const bool here = wanted >> r & 1;
      place[t * ranks + r] = here ? at[r] : -1;
      if (here) list[r * shape.tokens + at[r]] = t;
    }
    __syncthreads();
  }
#pragma unroll
  for (int r = 0; r < max_ranks; ++r) {
    if (int(threadIdx.x) == r && r < ranks) counts[r] = before[r];
  }
}

/// Sums the rows that a token's ranks sent back. One block for each token.
static __global__ void __launch_bounds__(1024)
    add_up(Shape shape, int ranks, const int* place, const Token* back, Token* out) {
  cudaTriggerProgrammaticLaunchCompletion();
  cudaGridDependencySynchronize();
  const int t = int(blockIdx.x);
  int at[max_ranks];
#pragma unroll
  for (int r = 0; r < max_ranks; ++r) at[r] = r < ranks ? place[t * ranks + r] : -1;
  for (int i = int(threadIdx.x) * 8; i < shape.hidden; i += int(blockDim.x) * 8) {
    uint4 part[max_ranks];
#pragma unroll
    for (int r = 0; r < max_ranks; ++r) {  // zeros in bfloat16 too
      const ccl::Index row = ccl::Index{r} * shape.tokens + at[r];
      part[r] = at[r] < 0 ? uint4{0, 0, 0, 0}
                          : *reinterpret_cast<const uint4*>(back + row * shape.hidden + i);
    }
    float sum[8] = {};
#pragma unroll
    for (int r = 0; r < max_ranks; ++r) {
      const auto* const pair = reinterpret_cast<const __nv_bfloat162*>(&part[r]);
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const float2 two = __bfloat1622float2(pair[k]);
        sum[2 * k] += two.x;
        sum[2 * k + 1] += two.y;
      }
    }
    __nv_bfloat162 eight[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) eight[k] = __floats2bfloat162_rn(sum[2 * k], sum[2 * k + 1]);
    *reinterpret_cast<uint4*>(out + ccl::Index{t} * shape.hidden + i) =
        *reinterpret_cast<const uint4*>(eight);
  }
}

template <class... Parameters, class... Arguments>
ccl::Result<void> launch(void (*kernel)(Parameters...), int blocks, int threads,
                         cudaStream_t stream, Arguments... arguments) {
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(unsigned(blocks));
  config.blockDim = dim3(unsigned(threads));
  config.stream = stream;
  config.attrs = &early;
  config.numAttrs = 1;
  const cudaError_t e = cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...);
  if (e != cudaSuccess) return ccl::fail(ccl::Errc::cuda, cudaGetErrorString(e));
  return {};
}

class Layer {
 public:
  /// Input of the experts after a dispatch: `counts[r]` rows of rank r, from row r * tokens on.
  struct Arrived {
    const int* counts;
    const Token* tokens;
    int first_expert, experts;  // experts of this rank
    const Pick* picks;          // all `top` picks of each row, including those of other ranks
    /// True if a pick is of this rank.
    __host__ __device__ bool contains(Pick pick) const {
      return pick.expert >= first_expert && pick.expert < first_expert + experts;
    }
  };

  /// Creates the layer. Collective.
  static ccl::Result<Layer> create(const ccl::Communicator& comm, Shape shape) {
    if (comm.ranks() > max_ranks) {
      return ccl::fail(ccl::Errc::invalid_argument, "a layer has at most 8 ranks");
    }
    CCL_TRY(auto exchange, Exchange::create(comm));
    Layer layer{shape, comm.rank(), comm.ranks(), std::move(exchange)};
    const std::size_t most = std::size_t(comm.ranks()) * std::size_t(shape.tokens);
    const std::size_t row = std::size_t(shape.hidden) * sizeof(Token);
    const std::size_t picks = std::size_t(shape.top) * sizeof(Pick);
    const std::size_t ranks = std::size_t(comm.ranks()) * sizeof(int);
    for (const auto& [at, bytes] :
         {std::pair{(void**)&layer.counts_, ranks}, std::pair{(void**)&layer.got_, ranks},
          std::pair{(void**)&layer.returned_, ranks},
          std::pair{(void**)&layer.list_, most * sizeof(int)},
          std::pair{(void**)&layer.place_, most * sizeof(int)},
          std::pair{(void**)&layer.arrived_picks_, most * picks},
          std::pair{(void**)&layer.arrived_, most * row},
          std::pair{(void**)&layer.back_, most * row}}) {
      CCL_TRY(auto memory, allocate(bytes));
      *at = memory.get();
      layer.memory_.push_back(std::move(memory));
    }
    return layer;
  }

  /// Sends each token once to every rank that has an expert of it.
  ccl::Result<void> dispatch(const Token* tokens, const Pick* picks, cudaStream_t stream) const {
    const int threads = shape_.tokens < 1024 ? (shape_.tokens + 31) / 32 * 32 : 1024;
    CCL_CHECK(launch(route, 1, threads, stream, shape_, ranks_, picks, counts_, list_, place_));
    ccl::CountedRows rows;
    rows.row = shape_.hidden;
    rows.send_counts = counts_;
    rows.send_rows = list_;
    rows.recv_counts = got_;
    rows.send_stride = rows.recv_stride = shape_.tokens;
    rows.send_side = picks;
    rows.recv_side = arrived_picks_;
    rows.side_bytes = shape_.top * int(sizeof(Pick));
    return exchange_.counted(tokens, arrived_, rows, stream);
  }
  Arrived arrived() const {
    const int each = shape_.experts / ranks_;
    return {got_, arrived_, rank_ * each, each, arrived_picks_};
  }

  /// Sends the experts' weighted results, one row for each arrived token, back to the tokens'
  /// ranks. Stores their sum there.
  ccl::Result<void> combine(const Token* results, Token* out, cudaStream_t stream) const {
    ccl::CountedRows rows;
    rows.row = shape_.hidden;
    rows.send_counts = got_;
    rows.recv_counts = returned_;
    rows.send_stride = rows.recv_stride = shape_.tokens;
    CCL_CHECK(exchange_.counted(results, back_, rows, stream));
    const int threads = shape_.hidden < 8192 ? (shape_.hidden / 8 + 31) / 32 * 32 : 1024;
    return launch(add_up, shape_.tokens, threads, stream, shape_, ranks_, place_, back_, out);
  }

 private:
  using Exchange = ccl::Collective<ccl::AllToAllV, ccl::OneShot, ccl::LL128, ccl::DefaultTransport>;
  using Memory = std::shared_ptr<void>;
  Layer(Shape shape, int rank, int ranks, Exchange exchange)
      : shape_{shape}, rank_{rank}, ranks_{ranks}, exchange_{std::move(exchange)} {}
  static ccl::Result<Memory> allocate(std::size_t bytes) {
    void* at = nullptr;
    if (cudaMalloc(&at, bytes) != cudaSuccess) {
      return ccl::fail(ccl::Errc::out_of_memory, "no memory for the layer");
    }
    return Memory{at, [](void* p) { (void)cudaFree(p); }};
  }

  Shape shape_;
  int rank_, ranks_;
  Exchange exchange_;
  std::vector<Memory> memory_;
  int *counts_ = nullptr, *got_ = nullptr, *returned_ = nullptr;
  int* list_ = nullptr;   // tokens for each rank
  int* place_ = nullptr;  // place of each token among those of each rank; -1: none
  Pick* arrived_picks_ = nullptr;
  Token *arrived_ = nullptr, *back_ = nullptr;
};

}  // namespace moe
