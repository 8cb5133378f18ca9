#pragma once

// A layer of a mixture of experts over GPUs: tokens to the ranks of their experts and back. Counts
// never leave the GPUs, so all of it can be captured into a graph.
#include <ccl/ccl.cuh>

#include <cuda_bf16.h>

#include <memory>
#include <utility>
#include <vector>

namespace moe {

using Token = __nv_bfloat16;

struct Shape {
  int tokens = 128;   // of each rank, at most
  int hidden = 7168;  // elements of a token; a multiple of 8
  int top = 8;        // experts of a token
  int experts = 256;  // of all ranks, split evenly
};

/// An expert of a token, and what its result counts. -1: one of another rank.
struct Pick {
  int expert;
  float weight;
};

/// A warp for each rank finds the tokens with an expert there, in order.
static __global__ void route(Shape shape, int ranks, const Pick* picks, int* counts, int* list,
                             int* place, Pick* sent) {
  const int rank = int(threadIdx.x / 32), lane = int(threadIdx.x % 32);
  const int each = shape.experts / ranks;
  int found = 0;
  for (int first = 0; first < shape.tokens; first += 32) {
    const int t = first + lane;
    bool here = false;
    for (int k = 0; k < shape.top && t < shape.tokens; ++k) {
      here |= picks[t * shape.top + k].expert / each == rank;
    }
    const unsigned all = __ballot_sync(0xffff'ffffu, here);
    const int at = found + __popc(all & ((1u << lane) - 1));
    found += __popc(all);
    if (t >= shape.tokens) continue;
    place[t * ranks + rank] = here ? at : -1;
    if (!here) continue;
    list[rank * shape.tokens + at] = t;
    for (int k = 0; k < shape.top; ++k) {
      Pick pick = picks[t * shape.top + k];
      if (pick.expert / each != rank) pick.expert = -1;
      sent[(rank * shape.tokens + at) * shape.top + k] = pick;
    }
  }
  if (lane == 0) counts[rank] = found;
}

/// A block for each token: the sum of what its ranks sent back.
static __global__ void add_up(Shape shape, int ranks, const int* place, const Token* back,
                              Token* out) {
  const int t = int(blockIdx.x);
  for (int i = int(threadIdx.x) * 8; i < shape.hidden; i += int(blockDim.x) * 8) {
    float sum[8] = {};
    for (int r = 0; r < ranks; ++r) {
      const int at = place[t * ranks + r];
      if (at < 0) continue;
      const ccl::Index from = (ccl::Index{r} * shape.tokens + at) * shape.hidden + i;
      const uint4 eight = *reinterpret_cast<const uint4*>(back + from);
      const auto* const pair = reinterpret_cast<const __nv_bfloat162*>(&eight);
      for (int k = 0; k < 4; ++k) {
        const float2 two = __bfloat1622float2(pair[k]);
        sum[2 * k] += two.x;
        sum[2 * k + 1] += two.y;
      }
    }
    __nv_bfloat162 eight[4];
    for (int k = 0; k < 4; ++k) eight[k] = __floats2bfloat162_rn(sum[2 * k], sum[2 * k + 1]);
    *reinterpret_cast<uint4*>(out + ccl::Index{t} * shape.hidden + i) =
        *reinterpret_cast<const uint4*>(eight);
  }
}

class Layer {
 public:
  /// What dispatch leaves here, for the experts: `counts[r]` rows of rank r from row r * tokens on.
  struct Arrived {
    const int* counts;
    const Token* tokens;
    const Pick* picks;  // `top` of each row
  };

  /// Collective.
  static ccl::Result<Layer> create(const ccl::Communicator& comm, Shape shape) {
    CCL_TRY(auto exchange, Exchange::create(comm));
    Layer layer{shape, comm.ranks(), std::move(exchange)};
    const std::size_t most = std::size_t(comm.ranks()) * std::size_t(shape.tokens);
    const std::size_t row = std::size_t(shape.hidden) * sizeof(Token);
    const std::size_t pick = std::size_t(shape.top) * sizeof(Pick);
    const std::size_t ranks = std::size_t(comm.ranks()) * sizeof(int);
    for (const auto& [at, bytes] :
         {std::pair{(void**)&layer.counts_, ranks}, std::pair{(void**)&layer.got_, ranks},
          std::pair{(void**)&layer.returned_, ranks},
          std::pair{(void**)&layer.list_, most * sizeof(int)},
          std::pair{(void**)&layer.place_, most * sizeof(int)},
          std::pair{(void**)&layer.sent_picks_, most * pick},
          std::pair{(void**)&layer.arrived_picks_, most * pick},
          std::pair{(void**)&layer.arrived_, most * row},
          std::pair{(void**)&layer.back_, most * row}}) {
      CCL_TRY(auto memory, allocate(bytes));
      *at = memory.get();
      layer.memory_.push_back(std::move(memory));
    }
    return layer;
  }

  /// Each token once to every rank that has an expert of it.
  ccl::Result<void> dispatch(const Token* tokens, const Pick* picks, cudaStream_t stream) const {
    route<<<1, unsigned(32 * ranks_), 0, stream>>>(shape_, ranks_, picks, counts_, list_, place_,
                                                   sent_picks_);
    ccl::CountedRows rows;
    rows.row = shape_.hidden;
    rows.send_counts = counts_;
    rows.send_rows = list_;
    rows.recv_counts = got_;
    rows.send_stride = rows.recv_stride = shape_.tokens;
    rows.send_side = sent_picks_;
    rows.recv_side = arrived_picks_;
    rows.side_bytes = shape_.top * int(sizeof(Pick));
    return exchange_.counted(tokens, arrived_, rows, stream);
  }
  Arrived arrived() const { return {got_, arrived_, arrived_picks_}; }

  /// The experts' weighted results, a row for each that arrived, to where the tokens came from;
  /// their sum there.
  ccl::Result<void> combine(const Token* results, Token* out, cudaStream_t stream) const {
    ccl::CountedRows rows;
    rows.row = shape_.hidden;
    rows.send_counts = got_;
    rows.recv_counts = returned_;
    rows.send_stride = rows.recv_stride = shape_.tokens;
    CCL_CHECK(exchange_.counted(results, back_, rows, stream));
    add_up<<<unsigned(shape_.tokens), 896, 0, stream>>>(shape_, ranks_, place_, back_, out);
    return {};
  }

 private:
  using Exchange = ccl::Collective<ccl::AllToAllV, ccl::OneShot, ccl::LL128, ccl::DefaultTransport>;
  using Memory = std::shared_ptr<void>;
  Layer(Shape shape, int ranks, Exchange exchange)
      : shape_{shape}, ranks_{ranks}, exchange_{std::move(exchange)} {}
  static ccl::Result<Memory> allocate(std::size_t bytes) {
    void* at = nullptr;
    if (cudaMalloc(&at, bytes) != cudaSuccess) {
      return ccl::fail(ccl::Errc::out_of_memory, "no memory for the layer");
    }
    return Memory{at, [](void* p) { (void)cudaFree(p); }};
  }

  Shape shape_;
  int ranks_;
  Exchange exchange_;
  std::vector<Memory> memory_;
  int *counts_ = nullptr, *got_ = nullptr, *returned_ = nullptr;
  int* list_ = nullptr;   // tokens for each rank
  int* place_ = nullptr;  // of each token among those of each rank; -1: not there
  Pick *sent_picks_ = nullptr, *arrived_picks_ = nullptr;
  Token *arrived_ = nullptr, *back_ = nullptr;
};

}  // namespace moe
