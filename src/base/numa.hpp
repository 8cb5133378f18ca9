#pragma once

#include <cstddef>
#include <vector>

namespace ccl::detail {

/// NUMA node that holds all CPUs that this thread may run on; -1 if there is none.
int bound_numa_node();

/// CPUs on which this thread may run, ascending.
std::vector<int> allowed_cpus();
/// Lets this thread run on these CPUs alone. Does nothing if there are none, or if the system
/// refuses.
void run_on(const std::vector<int>& cpus);

/// Asks for pages of NUMA node `node` when memory is touched first, whichever thread touches it.
/// `at` begins a page. Does nothing if `node` is -1 or the system refuses.
void prefer_node(void* at, std::size_t bytes, int node);

/// Scope in which this thread runs on some CPUs alone, so that memory that it touches first lies on
/// their NUMA node. Does nothing without CPUs.
class OnCpus {
 public:
  explicit OnCpus(const std::vector<int>& cpus);
  ~OnCpus();
  OnCpus(const OnCpus&) = delete;
  OnCpus& operator=(const OnCpus&) = delete;

 private:
  std::vector<int> before_;  // empty: nothing to restore
};

}  // namespace ccl::detail
