#pragma once

// Stand-in for a model: tokens, a router and experts with results that are exact in bfloat16, and
// the expected output.
#include <vector>

#include "moe.cuh"

namespace moe {

inline float element(int rank, int token, int i, int turn) {
  return float((rank * 5 + token * 3 + i + turn) % 9 - 4);
}
inline std::vector<Pick> picks_of(Shape shape, int rank, int turn) {
  std::vector<Pick> picks;
  unsigned state = unsigned(rank * 1000 + turn + 1);
  for (int t = 0; t < shape.tokens; ++t) {
    std::vector<bool> taken(std::size_t(shape.experts));
    for (int k = 0; k < shape.top;) {
      state = state * 1664525u + 1013904223u;
      const int expert = int(state >> 8) % shape.experts;
      if (taken[std::size_t(expert)]) continue;
      taken[std::size_t(expert)] = true;
      picks.push_back({expert, float(1 + k++ % 4) / 8});
    }
  }
  return picks;
}
/// Returns the factor of an expert: it doubles its tokens or leaves them unchanged.
__host__ __device__ inline float scale(int expert) {
  return float(1 + expert % 2);
}

/// Computes the weighted results of this rank's experts. One block for each row that can have
/// arrived.
static __global__ void run_experts(Shape shape, Layer::Arrived arrived, Token* results) {
  const int rank = int(blockIdx.x) / shape.tokens, i = int(blockIdx.x) % shape.tokens;
  if (i >= arrived.counts[rank]) return;
  float factor = 0;
  for (int k = 0; k < shape.top; ++k) {
    const Pick pick = arrived.picks[blockIdx.x * unsigned(shape.top) + unsigned(k)];
    if (arrived.contains(pick)) factor += pick.weight * scale(pick.expert);
  }
  const ccl::Index row = ccl::Index{blockIdx.x} * shape.hidden;
  for (int h = int(threadIdx.x); h < shape.hidden; h += int(blockDim.x)) {
    results[row + h] = __float2bfloat16(factor * __bfloat162float(arrived.tokens[row + h]));
  }
}

/// Returns the number of elements of `out` that differ from the weighted sum of the experts'
/// results.
inline long wrong(Shape shape, int rank, int turn, const std::vector<Token>& out) {
  const auto picks = picks_of(shape, rank, turn);
  long n = 0;
  for (int t = 0; t < shape.tokens; ++t) {
    float factor = 0;
    for (int k = 0; k < shape.top; ++k) {
      const Pick pick = picks[std::size_t(t * shape.top + k)];
      factor += pick.weight * scale(pick.expert);
    }
    for (int i = 0; i < shape.hidden; ++i) {
      const float got =
          __bfloat162float(out[std::size_t(t) * std::size_t(shape.hidden) + std::size_t(i)]);
      n += got != factor * element(rank, t, i, turn);
    }
  }
  return n;
}
inline std::vector<Token> tokens_of(Shape shape, int rank, int turn) {
  std::vector<Token> tokens;
  tokens.reserve(std::size_t(shape.tokens) * std::size_t(shape.hidden));
  for (int t = 0; t < shape.tokens; ++t) {
    for (int i = 0; i < shape.hidden; ++i) {
      tokens.push_back(__float2bfloat16(element(rank, t, i, turn)));
    }
  }
  return tokens;
}

}  // namespace moe
