#pragma once

// Machines for tests, of the shapes of real ones, as topology files in NCCL's schema.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

namespace ccl::test::room {

/// A PCIe switch of a NUMA node, with the GPUs and NICs below it.
struct Switch {
  int numa = 0;
  std::vector<int> gpus, nics;
};

struct Shape {
  const char* name;
  int gpus, nics;
  int sm, nvlinks;  // of a GPU, to the NVSwitch
  int nic_mbps;
  const char* cpu;    // attributes
  const char* speed;  // of PCIe
  std::vector<Switch> switches;
  std::vector<std::vector<int>> cpus = {};  // of each NUMA node; none: 8 and 8
  std::string fabric = {};       // NVLink domain of its GPUs over several hosts: "cluster:clique"
  std::vector<int> absent = {};  // NICs that the host has not, though others of the room do
};

constexpr auto intel = R"(arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143")";
constexpr auto amd = R"(arch="x86_64" vendor="AuthenticAMD" familyid="23" modelid="49")";

/// 8 GPUs, each with a NIC of 400 Gbit/s at its switch, as DGX H100.
inline Shape dgx() {
  Shape shape{"dgx", 8, 8, 90, 18, 400000, intel, "32.0 GT/s PCIe", {}};
  for (int n = 0; n < 8; ++n) shape.switches.push_back({n / 4, {n}, {n}});
  return shape;
}

/// 8 GPUs and 8 NICs of 200 Gbit/s, two and two on each of four NUMA nodes, as azure-ndv4.
inline Shape ndv4() {
  Shape shape{"ndv4", 8, 8, 80, 12, 200000, amd, "16.0 GT/s PCIe", {}};
  // GPUs 0 and 1 are on NUMA node 1, as there.
  const int numa[4] = {1, 0, 3, 2};
  for (int n = 0; n < 4; ++n) {
    shape.switches.push_back({numa[n], {2 * n, 2 * n + 1}, {2 * n, 2 * n + 1}});
  }
  return shape;
}

/// 8 GPUs and 4 NICs of 100 Gbit/s: a switch for two GPUs and a NIC, as p4d.24xlarge.
inline Shape p4d() {
  Shape shape{"p4d", 8, 4, 80, 12, 100000, intel, "8.0 GT/s PCIe", {}};
  for (int n = 0; n < 4; ++n) shape.switches.push_back({n / 2, {2 * n, 2 * n + 1}, {n}});
  return shape;
}

/// 8 GPUs, each with four NICs of 100 Gbit/s at its switch, as p5.48xlarge.
inline Shape p5() {
  Shape shape{"p5", 8, 32, 90, 18, 100000, intel, "32.0 GT/s PCIe", {}};
  for (int n = 0; n < 8; ++n) {
    shape.switches.push_back({n / 4, {n}, {4 * n, 4 * n + 1, 4 * n + 2, 4 * n + 3}});
  }
  return shape;
}

/// 8 GPUs and 2 NICs of 200 Gbit/s: a switch of each socket has four GPUs and a NIC.
inline Shape two_nics() {
  Shape shape{"two-nics", 8, 2, 80, 12, 200000, intel, "16.0 GT/s PCIe", {}};
  for (int n = 0; n < 2; ++n) {
    shape.switches.push_back({n, {4 * n, 4 * n + 1, 4 * n + 2, 4 * n + 3}, {n}});
  }
  return shape;
}

/// 8 GPUs, of which four have a NIC of 200 Gbit/s each; the other socket has none.
inline Shape one_sided() {
  Shape shape{"one-sided", 8, 4, 80, 12, 200000, intel, "16.0 GT/s PCIe", {}};
  for (int n = 0; n < 8; ++n) {
    shape.switches.push_back({n / 4, {n}, n < 4 ? std::vector{n} : std::vector<int>{}});
  }
  return shape;
}

/// 8 GPUs without NVLink and 4 NICs of 400 Gbit/s: a switch for two GPUs and a NIC.
inline Shape pcie() {
  Shape shape{"pcie", 8, 4, 90, 0, 400000, amd, "32.0 GT/s PCIe", {}};
  for (int n = 0; n < 4; ++n) shape.switches.push_back({n / 2, {2 * n, 2 * n + 1}, {n}});
  return shape;
}

/// A set of CPUs as the kernel and topology files write it: words of 32 bits, the highest first.
inline std::string cpu_mask(const std::vector<int>& cpus) {
  std::vector<unsigned> words(1);
  for (const int cpu : cpus) {
    words.resize(std::max(words.size(), std::size_t(cpu / 32 + 1)));
    words[std::size_t(cpu / 32)] |= 1U << cpu % 32;
  }
  std::string text;
  for (std::size_t n = words.size(); n-- > 0;) {
    text += fmt::format("{:08x}{}", words[n], n == 0 ? "" : ",");
  }
  return text;
}

inline std::vector<int> cpus_of_node(const Shape& shape, int numa) {
  if (std::size_t(numa) < shape.cpus.size()) return shape.cpus[std::size_t(numa)];
  std::vector<int> eight(8);
  std::iota(eight.begin(), eight.end(), 8 * numa);
  return eight;
}

inline std::string nic_name(int host, int nic) {
  return fmt::format("h{}_nic{}", host, nic);
}

/// The file of a host. `bus_id(gpu)` is that of a GPU; `gpus` of them are there.
template <class BusId>
std::string topology(const Shape& shape, int host, int gpus, BusId bus_id) {
  const std::string pci = fmt::format(R"(link_speed="{}" link_width="16")", shape.speed);
  const std::string fabric =
      shape.fabric.empty() ? "" : fmt::format(R"( fabric="{}")", shape.fabric);
  const std::string links =
      shape.nvlinks == 0
          ? ""
          : fmt::format(R"(<nvlink target="fffffff:ffff:ff" count="{}" tclass="0x068000"/>)",
                        shape.nvlinks);
  int numas = 0;
  for (const Switch& s : shape.switches) numas = std::max(numas, s.numa + 1);
  std::string text = R"(<system version="1">)";
  for (int numa = 0; numa < numas; ++numa) {
    text += fmt::format(R"(<cpu numaid="{}" affinity="{}" {}>)", numa,
                        cpu_mask(cpus_of_node(shape, numa)), shape.cpu);
    for (std::size_t n = 0; n < shape.switches.size(); ++n) {
      const Switch& s = shape.switches[n];
      if (s.numa != numa) continue;
      text += fmt::format(R"(<pci busid="ff{:02x}:01:00.0" class="0x060400" {}>)", n, pci);
      for (const int g : s.gpus) {
        if (g >= gpus) continue;
        text += fmt::format(
            R"(<pci busid="{}" class="0x030200" {}><gpu dev="{}" sm="{}" rank="{}" gdr="1"{}>)"
            R"({}</gpu></pci>)",
            bus_id(g), pci, g, shape.sm, g, fabric, links);
      }
      for (const int nic : s.nics) {
        if (std::count(shape.absent.begin(), shape.absent.end(), nic) > 0) continue;
        text += fmt::format(
            R"(<pci busid="fe{:02x}:01:00.0" class="0x020700" {}><nic><net name="{}" dev="{}" )"
            R"(speed="{}" port="1" guid="0x{:x}" maxconn="131072" gdr="1"/></nic></pci>)",
            nic, pci, nic_name(host, nic), nic, shape.nic_mbps, 0x100 + nic);
      }
      text += "</pci>";
    }
    text += "</cpu>";
  }
  return text + "</system>";
}

}  // namespace ccl::test::room
