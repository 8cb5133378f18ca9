#pragma once

#include <ccl/topo/path.hpp>
#include <ccl/topo/xml.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ccl::topo {

/// Problem of a machine, and the remedy.
struct Finding {
  std::string problem, advice;
};

/// Returns the problems that the graph shows:
/// - narrow PCIe links,
/// - asymmetric NVLinks,
/// - NICs on other sockets than the GPUs,
/// - missing GDR,
/// - repairs of the file.
///
/// `rules` must be those of the communicators: a path and GDR depend on them.
std::vector<Finding> lint(const LoadedGraph& machine, const PathRules& rules = {});

/// Files and limits that `lint_system` reads. Unset limits are those of the process.
struct SystemFiles {
  std::string sys = "/sys", proc = "/proc", shm = "/dev/shm";
  std::optional<std::uint64_t> open_files, locked_bytes, shm_bytes;
};
/// Returns the problems that only the running system shows:
/// - PCIe links slower than card and slot support,
/// - ACS redirects,
/// - an IOMMU that translates,
/// - MIG,
/// - containers that hide the driver,
/// - limits that are too low.
std::vector<Finding> lint_system(const SystemFiles& files = {});

}  // namespace ccl::topo
