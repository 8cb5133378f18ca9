#pragma once

namespace ccl::detail {

/// NUMA node that holds all CPUs that this thread may run on; -1 if there is none.
int bound_numa_node();

}  // namespace ccl::detail
