#pragma once

#include <ccl/topo/path.hpp>

namespace ccl::topo {

/// True if NVLinks of one width join all pairs of GPUs: their order then does not matter.
bool all_alike(const Graph& graph, const Paths& paths);

/// Links from a GPU of a machine to the others, by the slowest of them.
struct GpuLinks {
  float bw = 0;         // GB/s: of all NVLinks of a GPU, or of the path to another; 0: one GPU
  bool nvlink = false;  // all pairs reach each other by NVLink
};
GpuLinks gpu_links(const Graph& graph, const Paths& paths);

}  // namespace ccl::topo
