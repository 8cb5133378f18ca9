#pragma once

#include <ccl/topo/xml.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ccl::topo {

/// What is wrong, and what to do about it.
struct Finding {
  std::string problem, advice;
};

/// What slows a machine down, as far as its graph shows: narrow PCIe links, asymmetric NVLinks,
/// NICs on other sockets than GPUs, missing GDR, and what had to be repaired in its file.
std::vector<Finding> lint(const LoadedGraph& machine);

/// Where `lint_system` looks. Limits that are not set are the process's own.
struct SystemFiles {
  std::string sys = "/sys", proc = "/proc", shm = "/dev/shm";
  std::optional<std::uint64_t> open_files, locked_bytes, shm_bytes;
};
/// What only the running system tells: PCIe links that run below what card and slot can, ACS
/// redirects, an IOMMU that translates, MIG, containers that hide the driver, and limits that are
/// too low.
std::vector<Finding> lint_system(const SystemFiles& files = {});

}  // namespace ccl::topo
