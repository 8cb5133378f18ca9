#include "topo/graph/p2p_path.hpp"

#include <ccl/detail/runtime/settings.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "base/fork_mutex.hpp"
#include "base/io/file.hpp"
#include "base/made_once.hpp"
#include "gpu/devices.hpp"
#include "gpu/driver.hpp"
#include "settings/values.hpp"

namespace ccl::detail {
namespace {
using topo::PathType;
namespace fs = std::filesystem;

constexpr std::array type_names{
    std::pair{PathType::loc, "LOC"}, std::pair{PathType::nvl, "NVL"},
    std::pair{PathType::nvb, "NVB"}, std::pair{PathType::c2c, "C2C"},
    std::pair{PathType::pix, "PIX"}, std::pair{PathType::pxb, "PXB"},
    std::pair{PathType::p2c, "P2C"}, std::pair{PathType::pxn, "PXN"},
    std::pair{PathType::phb, "PHB"}, std::pair{PathType::sys, "SYS"},
};

/// Whether NVLink joins two GPUs, as the driver says; nothing if this process does not see both.
std::optional<bool> linked(std::int64_t a, std::int64_t b) {
  const auto cuda = cuda_driver();
  if (!cuda) return {};
  CUdevice devices[2];
  for (int i = 0; i < 2; ++i) {
    const std::string text = bus_id_text(i == 0 ? a : b);
    if ((*cuda)->device_get_by_pci_bus_id(&devices[i], text.c_str()) != CUDA_SUCCESS) return {};
  }
  int atomics = 0;
  const auto asked = (*cuda)->device_get_p2p_attribute(
      &atomics, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, devices[0], devices[1]);
  return asked == CUDA_SUCCESS && atomics != 0;
}

/// Paths between GPUs of this host that were asked for or noted.
struct KnownPaths {
  using Key = std::pair<std::int64_t, std::int64_t>;
  std::map<Key, PathType> paths;
  ForkMutex mutex{[this] { renew(paths); }};
  static Key key(std::int64_t a, std::int64_t b) { return {std::min(a, b), std::max(a, b)}; }
  static KnownPaths& get() {
    static constinit MadeOnce<KnownPaths> one;
    return one.get();
  }
};

int numa_node(const fs::path& device) {
  const std::string line = first_line(device / "numa_node");
  return line.empty() ? -1 : std::atoi(line.c_str());
}
}  // namespace

namespace {
Result<std::optional<PathType>> path_level(const char* setting) {
  CCL_TRY(std::string level, setting_text(setting));
  if (level.empty()) return std::optional<PathType>{};
  // Numbers refer to NCCL's former six levels.
  constexpr std::array old_levels{PathType::loc, PathType::pix, PathType::pxb,
                                  PathType::phb, PathType::sys, PathType::sys};
  if (const auto number = parse_integer(level); number && *number >= 0) {
    return std::optional{old_levels[std::size_t(std::min(*number, Index{old_levels.size() - 1}))]};
  }
  for (const auto& [type, name] : type_names) {
    if (level == name) return std::optional{type};
  }
  return fail(Errc::bad_setting,
              fmt::format("CCL_{} is \"{}\" (no path type); give one of LOC NVL NVB C2C PIX "
                          "PXB P2C PXN PHB SYS",
                          setting, level));
}
}  // namespace

Result<std::optional<PathType>> p2p_level() {
  return path_level("P2P_LEVEL");
}

Result<std::optional<PathType>> gdr_level() {
  return path_level("NET_GDR_LEVEL");
}

std::string_view path_text(PathType type) {
  for (const auto& [known, name] : type_names) {
    if (known == type) return name;
  }
  return "unknown";
}

PathType pci_path(const std::string& sysfs, const std::string& a, const std::string& b) {
  std::error_code error;
  fs::path at[2];
  for (int i = 0; i < 2; ++i) {
    at[i] = fs::canonical(fs::path{sysfs} / "bus/pci/devices" / (i == 0 ? a : b), error);
    if (error) return PathType::dis;
  }
  if (at[0] == at[1]) return PathType::loc;
  // .../pci0000:17/0000:17:01.0 (port)/0000:18:00.0 (switch, up)/0000:19:00.0 (down)/0000:1a:00.0
  const auto bridges = [](const fs::path& path) {
    std::vector<std::string> parts;
    for (const auto& part : path) {
      if (part.string().starts_with("pci")) parts.clear();
      parts.push_back(part.string());
    }
    return parts;  // from the root
  };
  const auto first = bridges(at[0]), second = bridges(at[1]);
  const auto parted = std::mismatch(first.begin(), first.end(), second.begin(), second.end());
  const auto common = parted.first - first.begin();
  if (common >= 2) {
    // Bridges below the common part: a port of the switch and the GPU, and two for each further
    // switch.
    const auto below = std::max(first.end() - parted.first, second.end() - parted.second);
    return below <= 2 ? PathType::pix : PathType::pxb;
  }
  if (common == 1) return PathType::phb;
  const int nodes[2] = {numa_node(at[0]), numa_node(at[1])};
  return nodes[0] == nodes[1] && nodes[0] >= 0 ? PathType::phb : PathType::sys;
}

PathType gpu_path(const PeerInfo& a, const PeerInfo& b) {
  if (a.host_hash != b.host_hash) return same_fabric(a, b) ? PathType::nvl : PathType::dis;
  if (same_gpu(a, b)) return PathType::loc;
  if (are_instances(a, b)) return PathType::phb;
  auto& [known, mutex] = KnownPaths::get();
  const auto key = KnownPaths::key(a.bus_id, b.bus_id);
  const std::lock_guard lock{mutex};
  const auto found = known.find(key);
  if (found != known.end()) return found->second;
  const PathType path = linked(key.first, key.second).value_or(false)
                            ? PathType::nvl
                            : pci_path("/sys", bus_id_text(key.first), bus_id_text(key.second));
  known.emplace(key, path);
  return path;
}

void note_nvlink(std::int64_t a, std::int64_t b) {
  if (linked(a, b)) return;
  auto& [known, mutex] = KnownPaths::get();
  const std::lock_guard lock{mutex};
  known[KnownPaths::key(a, b)] = PathType::nvl;
}

bool lines_proven(const PeerInfo& a, const PeerInfo& b) {
  if (a.host_hash != b.host_hash || gpu_path(a, b) > PathType::nvl) return false;
  const auto [lower, higher] = std::minmax(a.compute_capability, b.compute_capability);
  return lower >= 90 || (lower >= 70 && lower == higher);
}

}  // namespace ccl::detail
