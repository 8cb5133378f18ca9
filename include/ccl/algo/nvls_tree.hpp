#pragma once

#include <ccl/algo/hierarchical.hpp>
#include <ccl/algo/nvls.hpp>
#include <ccl/algo/tree.hpp>

namespace ccl {

struct Simple;

/// AllReduce over several hosts: each head of a host reduces a slice by NVLink multicast, the n-th
/// heads of all hosts reduce theirs over trees, and each head stores the result to its host. The
/// protocol is that of the trees. Hosts may have different numbers of ranks.
///
/// Heads are the GPUs next to a NIC, if the topology knows them, else all ranks of a host; as many
/// on each host as on the host with the fewest. Not run on hardware: see `Nvls`.
struct NvlsTree : Hierarchical<With<detail::NvlsHeads, Simple>, Tree> {
  static constexpr const char* name = "NVLSTree";
};
template <>
inline constexpr bool detail::is_hierarchical<NvlsTree> = true;

}  // namespace ccl
