#include <ccl/topo/discover.hpp>
#include <ccl/topo/lint.hpp>

#include <fmt/format.h>

#include <cstring>

#include "base/io/file.hpp"
#include "base/text.hpp"
#include "topo/discover/sys_files.hpp"
#include <sys/resource.h>
#include <sys/statvfs.h>

namespace ccl::topo {
using detail::entries;
using detail::line_of;
namespace fs = std::filesystem;
namespace {

constexpr std::uint64_t any = ~std::uint64_t{0};

class System {
 public:
  explicit System(const SystemFiles& files) : files_(files), sys_(files.sys), proc_(files.proc) {}

  std::vector<Finding> run() {
    look_at_gpus();
    look_at_limits();
    look_at_iommu();
    look_at_pcie();
    look_at_acs();
    return std::move(findings_);
  }

 private:
  void finding(std::string problem, std::string advice) {
    findings_.push_back({std::move(problem), std::move(advice)});
  }

  void look_at_gpus() {
    if (files_.sys != "/sys") return;  // NVML reads the real machine only
    std::string why;
    const std::vector<DiscoveredGpu> gpus = nvml_gpus(why);
    for (const DiscoveredGpu& gpu : gpus) {
      if (!gpu.mig) continue;
      finding(fmt::format("GPU {} is in MIG mode (its instances have no NVLink and no peer access)",
                          gpu.bus_id),
              "nvidia-smi -mig 0, if ranks of one job are to share it over NVLink");
    }
    if (gpus.empty() && !entries(proc_ / "driver/nvidia/gpus").empty()) {
      finding(fmt::format("there are GPUs, but NVML does not tell of them ({})", why),
              "give the container the driver's utility libraries "
              "(NVIDIA_DRIVER_CAPABILITIES=compute,utility)");
    }
  }

  static std::uint64_t limit_of(int resource) {
    rlimit limit{};
    if (getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0 ||
        limit.rlim_cur == RLIM_INFINITY) {
      return any;
    }
    return limit.rlim_cur;
  }

  void look_at_limits() {
    // A rank holds a few descriptors for each peer and channel, and pins its buffers for NICs.
    const std::uint64_t files = files_.open_files.value_or(limit_of(RLIMIT_NOFILE));
    if (files < 4096) {
      finding(fmt::format("the number of open files is limited to {}", files),
              "raise it: ulimit -n 65536 (for services: LimitNOFILE, for containers: --ulimit "
              "nofile=65536)");
    }
    const std::uint64_t locked = files_.locked_bytes.value_or(limit_of(RLIMIT_MEMLOCK));
    if (locked < std::uint64_t{1} << 30) {
      finding(fmt::format("locked memory is limited to {} KiB (NICs register what they send)",
                          locked >> 10),
              "raise it: ulimit -l unlimited (for services: LimitMEMLOCK, for containers: --ulimit "
              "memlock=-1)");
    }
    struct statvfs shm {};
    std::uint64_t bytes = any;
    if (files_.shm_bytes) {
      bytes = *files_.shm_bytes;
    } else if (statvfs(files_.shm.c_str(), &shm) == 0) {
      bytes = std::uint64_t{shm.f_blocks} * shm.f_frsize;
    }
    if (bytes < std::uint64_t{256} << 20) {
      finding(
          fmt::format("{} holds {} MiB (ranks of a host talk through it)", files_.shm, bytes >> 20),
          "give the container more: --shm-size=1g, or --ipc=host");
    }
  }

  void look_at_iommu() {
    int translating = 0, groups = 0;
    for (const fs::path& group : entries(sys_ / "kernel/iommu_groups")) {
      const std::string type = line_of(group / "type");
      ++groups;
      if (type.rfind("DMA", 0) == 0) ++translating;  // else "identity", or that of a VM
    }
    const std::string command = line_of(proc_ / "cmdline");
    const bool pass_through = command.find("iommu=pt") != std::string::npos;
    const bool present = !entries(sys_ / "class/iommu").empty();
    // Old kernels do not report the type of groups.
    if (translating > 0 || (present && groups == 0 && !pass_through)) {
      finding(
          "the IOMMU is on and translates (PCIe P2P and GPU direct RDMA go through the CPU)",
          "boot with iommu=pt (and intel_iommu=on or amd_iommu=on if VMs need it), or switch it "
          "off in the BIOS");
    }
  }

  /// Checks GPUs, NICs, switches and their ports for links that run below what both ends support.
  void look_at_pcie() {
    for (const fs::path& device : entries(sys_ / "bus/pci/devices")) {
      const std::string kind = line_of(device / "class");
      const bool gpu = kind.rfind("0x03", 0) == 0, nic = kind.rfind("0x02", 0) == 0;
      if (!gpu && !nic) continue;
      std::error_code missing;
      const fs::path real = fs::canonical(device, missing);
      const auto number = [](const fs::path& file) {
        return ccl::detail::leading_number(line_of(file)).value;
      };
      const double width = number(device / "current_link_width");
      const double best = number(device / "max_link_width");
      const double slot = missing ? 0 : number(real.parent_path() / "max_link_width");
      const double speed = number(device / "current_link_speed");
      const double best_speed = number(device / "max_link_speed");
      const double slot_speed = missing ? 0 : number(real.parent_path() / "max_link_speed");
      const std::string what =
          fmt::format("{} {}", gpu ? "GPU" : "NIC", device.filename().string());
      if (best > 64 || width > 64) continue;  // 255 if a VM has no information
      if (width > 0 && width < best) {
        finding(fmt::format("{} runs on {:g} of its {:g} PCIe lanes{}", what, width, best,
                            slot > 0 && slot < best ? fmt::format(" (its slot has {:g})", slot)
                                                    : std::string()),
                slot > 0 && slot < best
                    ? "move the card to a wider slot, or change the BIOS's lane split"
                    : "reseat the card, check riser and cable, and look for PCIe errors in dmesg");
      }
      // Idle GPUs lower their speed, not their width: only permanent limits are reported.
      if (best_speed > 0 && slot_speed > 0 && slot_speed < best_speed) {
        finding(fmt::format("{} can {:g} GT/s, its slot {:g}", what, best_speed, slot_speed),
                "use a slot of the card's PCIe generation, or look for a limit in the BIOS");
      } else if (nic && speed > 0 && speed < best_speed) {
        finding(fmt::format("{} runs at {:g} of its {:g} GT/s", what, speed, best_speed),
                "reseat the card, and look for a limit of the link speed in the BIOS");
      }
    }
  }

  void look_at_acs() {
    std::vector<std::string> redirecting;
    int bridges = 0, hidden = 0;
    for (const fs::path& device : entries(sys_ / "bus/pci/devices")) {
      if (line_of(device / "class").rfind("0x0604", 0) != 0) continue;
      ++bridges;
      const auto read = ccl::detail::whole_file(device / "config");
      const std::string config = read.value_or(std::string{});
      if (read && config.size() <= 64) ++hidden;  // only root may read more
      const auto word = [&](std::size_t at) {
        unsigned value = 0;
        if (at + 4 <= config.size()) std::memcpy(&value, config.data() + at, 4);
        return value;
      };
      // Extended capabilities start at 0x100. ACS is number 0xd, its control is at +6.
      for (std::size_t at = 0x100, hops = 0; at >= 0x100 && at + 8 <= config.size() && hops < 48;
           ++hops) {
        const unsigned header = word(at);
        if (header == 0 || header == ~0U) break;
        if ((header & 0xffffU) == 0xdU && ((word(at + 4) >> 16) & 0x1dU) != 0) {
          redirecting.push_back(device.filename().string());
        }
        at = header >> 20;
      }
    }
    for (const std::string& bridge : redirecting) {
      finding(
          fmt::format("ACS redirects on bridge {} (P2P below it goes up to the CPU)", bridge),
          fmt::format("setpci -s {} ECAP_ACS+0x6.w=0000, or switch ACS off in the BIOS", bridge));
    }
    if (hidden > 0) {
      finding(fmt::format("{} of {} PCIe bridges do not show their ACS bits", hidden, bridges),
              "run ccl_topo lint as root, on the host if this is a container");
    }
  }

  const SystemFiles& files_;
  const fs::path sys_, proc_;
  std::vector<Finding> findings_;
};

}  // namespace

std::vector<Finding> lint_system(const SystemFiles& files) {
  return System(files).run();
}

}  // namespace ccl::topo
