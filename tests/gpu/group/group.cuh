#pragma once

// Several calls as one launch: what the programs of this folder share.
#include "gpu/communicator.cuh"

namespace ccl::test {

template <class Op, class Algo, class Proto>
using Default = Collective<Op, Algo, Proto, DefaultTransport>;

/// Kernels that a call launches.
template <class Call>
int kernels_of(cudaStream_t stream, Call call) {
  cudaGraph_t graph;
  MUST_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  must(call());
  MUST_CUDA(cudaStreamEndCapture(stream, &graph));
  size_t count = 0;
  MUST_CUDA(cudaGraphGetNodes(graph, nullptr, &count));
  std::vector<cudaGraphNode_t> nodes(count);
  MUST_CUDA(cudaGraphGetNodes(graph, nodes.data(), &count));
  int kernels = 0;
  for (const auto node : nodes) {
    cudaGraphNodeType type;
    MUST_CUDA(cudaGraphNodeGetType(node, &type));
    kernels += type == cudaGraphNodeTypeKernel;
  }
  MUST_CUDA(cudaGraphDestroy(graph));
  return kernels;
}

struct GroupRank : Rank {
  double sum(Index i) const {
    double s = 0;
    for (int r = 0; r < ranks; ++r) s += value(r, i);
    return s;
  }
};

/// Runs `play(rank)` for one rank with its compositions, eager and in graphs, then
/// `rank.count_kernels()`.
template <class Suite, class Play>
void play_group(const Communicator& comm, Play play) {
  cudaStream_t stream;
  MUST_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  {
    Suite rank{{{comm, stream}}};
    for (const bool graph : {false, true}) {
      rank.graph = graph;
      play(rank);
    }
    rank.count_kernels();
  }
  MUST_CUDA(cudaStreamDestroy(stream));
}

/// The main program of a test of groups.
inline int run_groups(const char* name, void (*suite)(const Communicator&)) {
  const Ranks ranks = find_ranks();
  if (ranks.gpus == 0) return skipped();
  ::setenv("CCL_TIMEOUT", "20", 0);
  Config config;
  config.memory_budget_bytes = Index{1} << 30;  // for many compositions at once
  both_ways(ranks, config, suite);
  return result(name, ranks.gpus);
}

}  // namespace ccl::test
