#pragma once

#include <ccl/types/result.hpp>

#include <memory>

#include "gpu/driver.hpp"

namespace ccl::detail {

/// Lets a graph own `keep` and `alive` until it and its executables are destroyed. `alive` then
/// goes at once, and `keep` with the next `free_graph_resources`.
Result<void> keep_for_graph(const CudaDriver& cuda, CUgraph graph, std::shared_ptr<void> keep,
                            std::shared_ptr<void> alive);

/// Releases the resources of destroyed graphs later, because their destruction may come when the
/// driver accepts no calls.
void free_graph_resources();
/// True if `free_graph_resources` has something to release. Takes no lock and no memory.
bool graphs_have_gone() noexcept;

}  // namespace ccl::detail
