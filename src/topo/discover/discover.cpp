#include <ccl/detail/runtime/settings.hpp>
#include <ccl/topo/discover.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>
#include <tuple>

#include "base/io/file.hpp"
#include "base/text.hpp"
#include "net/address.hpp"
#include "topo/discover/sys_files.hpp"
#include <sys/utsname.h>

namespace ccl::topo {
namespace fs = std::filesystem;
using ccl::detail::leading_number;
using ccl::detail::lower;
using detail::entries;
using detail::line_of;
namespace {

bool is_bdf(const std::string& name) {
  // dddd:bb:dd.f
  const auto colon = name.find(':');
  std::int64_t id = 0;
  return colon != std::string::npos && name.find(':', colon + 1) != std::string::npos &&
         name.find('.') != std::string::npos && parse_bus_id(name, id);
}

double gigatransfers(const std::string& speed) {
  return leading_number(speed).value;
}

class Detector {
 public:
  explicit Detector(const DiscoverOptions& options) : options_(options), sys_(options.sys) {
    root_.name = "system";
    root_.set("version", "1");
  }

  Result<Element> run() {
    add_cpus();
    std::string why;
    const std::vector<DiscoveredGpu> gpus = options_.gpus ? *options_.gpus : nvml_gpus(why);
    for (const DiscoveredGpu& gpu : gpus) gpu_ids_.insert(lower(gpu.bus_id));
    for (const DiscoveredGpu& gpu : gpus) add_gpu(gpu);
    if (!options_.network) return std::move(root_);
    CCL_TRY(const std::vector<DiscoveredNic> nics, rdma_ports());
    for (const DiscoveredNic& nic : nics) add_rdma_port(nic);
    if (nics.empty()) CCL_CHECK(add_interfaces());
    return std::move(root_);
  }

 private:
  void add_cpus() {
    std::string vendor, family, model;
    std::istringstream in{ccl::detail::whole_file(options_.proc + "/cpuinfo").value_or("")};
    std::string line;
    while (std::getline(in, line)) {
      const auto colon = line.find(": ");
      if (colon == std::string::npos) {
        if (!vendor.empty()) break;  // the first processor describes them all
        continue;
      }
      const std::string value = line.substr(colon + 2);
      if (line.rfind("vendor_id", 0) == 0) vendor = value;
      if (line.rfind("cpu family", 0) == 0) family = value;
      if (line.rfind("model\t", 0) == 0) model = value;
    }
    utsname host{};
    uname(&host);
    const std::string machine = host.machine;
    const std::string arch = machine == "aarch64"             ? "arm64"
                             : machine.rfind("ppc64", 0) == 0 ? "ppc64"
                                                              : machine;
    std::vector<std::pair<int, std::string>> numa;
    for (const fs::path& node : entries(sys_ / "devices/system/node")) {
      const std::string name = node.filename();
      if (name.rfind("node", 0) != 0 || name.size() < 5 ||
          std::isdigit(static_cast<unsigned char>(name[4])) == 0) {
        continue;
      }
      const std::string map = line_of(node / "cpumap");
      // NUMA nodes with memory alone have no CPUs for ranks.
      if (map.find_first_not_of("0,") == std::string::npos) continue;
      numa.emplace_back(std::atoi(name.c_str() + 4), map);
    }
    std::sort(numa.begin(), numa.end());
    if (numa.empty()) numa.emplace_back(0, "");
    for (const auto& [number, map] : numa) {
      Element cpu;
      cpu.name = "cpu";
      cpu.set("numaid", std::to_string(number));
      if (!map.empty()) cpu.set("affinity", map);
      cpu.set("arch", arch);
      if (!vendor.empty()) cpu.set("vendor", vendor);
      if (!family.empty()) cpu.set("familyid", family);
      if (!model.empty()) cpu.set("modelid", model);
      root_.children.push_back(std::move(cpu));
    }
  }

  Element& cpu_of(int numa) {
    for (Element& cpu : root_.children) {
      if (*cpu.find("numaid") == std::to_string(numa)) return cpu;
    }
    return root_.children.front();  // VMs and single sockets report -1
  }

  /// Element of the device at `path` below all switches above it. Valid until the next call.
  Element& place(const fs::path& path) {
    const std::string name = lower(path.filename().string());
    // A switch shows an upstream and a downstream port: every second bridge is one of the chain.
    const fs::path above = path.parent_path().parent_path();
    const bool below_switch = is_bdf(path.parent_path().filename()) && is_bdf(above.filename());
    int numa = std::atoi(line_of(path / "numa_node").c_str());
    Element& parent = below_switch ? place(above) : cpu_of(numa);
    for (Element& known : parent.children) {
      const std::string* id = known.find("busid");
      if (id != nullptr && *id == name) return known;
    }
    Element pci;
    pci.name = "pci";
    pci.set("busid", name);
    std::string device_class = line_of(path / "class");
    pci.set("class", device_class);
    for (const char* file : {"vendor", "device", "subsystem_vendor", "subsystem_device"}) {
      const std::string value = line_of(path / file);
      if (!value.empty()) pci.set(file, value);
    }
    // The slower end limits the speed of the link. Virtual functions and ports read "Unknown".
    std::string speed = line_of(path / "max_link_speed");
    const std::string port_speed = line_of(path.parent_path() / "max_link_speed");
    const double device_rate = gigatransfers(speed), port_rate = gigatransfers(port_speed);
    if (port_rate > 0 && (device_rate <= 0 || port_rate < device_rate)) speed = port_speed;
    int width = std::atoi(line_of(path / "max_link_width").c_str());
    const int port_width = std::atoi(line_of(path.parent_path() / "max_link_width").c_str());
    if (port_width > 0 && (width == 0 || port_width < width)) width = port_width;
    if (width < 0 || width > 64) width = 0;  // 255 if a VM has no information
    pci.set("link_speed", speed);
    pci.set("link_width", std::to_string(width));
    parent.children.push_back(std::move(pci));
    return parent.children.back();
  }

  fs::path device_path(const std::string& bus_id) const {
    std::error_code missing;
    const fs::path real = fs::canonical(sys_ / "bus/pci/devices" / lower(bus_id), missing);
    return missing ? fs::path() : real;
  }

  void add_gpu(const DiscoveredGpu& seen) {
    const fs::path path = device_path(seen.bus_id);
    Element alone;
    alone.name = "pci";
    alone.set("busid", lower(seen.bus_id));
    alone.set("class", "0x030200");
    // In containers without /sys a GPU is placed at the first CPU.
    Element& pci = path.empty() ? (root_.children.front().children.push_back(alone),
                                   root_.children.front().children.back())
                                : place(path);
    Element gpu;
    gpu.name = "gpu";
    gpu.set("dev", std::to_string(seen.dev));
    gpu.set("sm", std::to_string(seen.sm));
    gpu.set("rank", std::to_string(gpus_++));
    gpu.set("gdr", peer_memory() || open_kernel_module() ? "1" : "0");
    if (!seen.fabric.empty()) gpu.set("fabric", seen.fabric);
    // An NVSwitch has many bus ids; remote devices that are no GPUs count as one fabric.
    int fabric = 0;
    const auto add_link = [&](const std::string& target, const std::string& kind, int count) {
      Element nvlink;
      nvlink.name = "nvlink";
      nvlink.set("target", target);
      nvlink.set("count", std::to_string(count));
      nvlink.set("tclass", kind);
      gpu.children.push_back(std::move(nvlink));
    };
    for (const DiscoveredLink& link : seen.links) {
      const std::string remote = lower(link.remote_bus_id);
      const fs::path path_there = remote.empty() ? fs::path() : device_path(remote);
      const std::string kind = path_there.empty() ? "" : line_of(path_there / "class");
      if (kind.rfind("0x03", 0) == 0 || gpu_ids_.count(remote) != 0) {
        add_link(remote, kind.empty() ? "0x030200" : kind, link.count);
      } else if (kind.rfind("0x0680", 0) == 0 && vendor_is_ibm(path_there)) {
        add_link(remote, "0x068001", link.count);  // POWER's bridge to the CPU
      } else {
        fabric += link.count;
      }
    }
    if (fabric > 0) add_link("fffffff:ff:ff.0", "0x068000", fabric);
    if (seen.c2c_links > 0) {
      Element c2c;
      c2c.name = "c2c";
      c2c.set("bw", std::to_string(seen.c2c_mbps));
      c2c.set("count", std::to_string(seen.c2c_links));
      gpu.children.push_back(std::move(c2c));
    }
    pci.children.push_back(std::move(gpu));
  }

  static bool vendor_is_ibm(const fs::path& device) {
    return line_of(device / "vendor") == "0x1014";
  }

  bool peer_memory() const {
    std::error_code ignored;
    return fs::exists(sys_ / "module/nvidia_peermem", ignored) ||
           fs::exists(sys_ / "kernel/mm/memory_peers/nv_mem/version", ignored) ||
           fs::exists(sys_ / "kernel/mm/memory_peers/nv_mem_nc/version", ignored);
  }

  /// True if the kernel modules that export GPU memory as DMA-BUF are loaded.
  bool open_kernel_module() const {
    return line_of(fs::path(options_.proc) / "driver/nvidia/version").find("Open Kernel Module") !=
           std::string::npos;
  }

  void add_net(const fs::path& device, Element net) {
    std::error_code missing;
    const fs::path real = fs::canonical(device, missing);
    Element* parent = &root_.children.front();
    // virtio and similar devices are one level below their PCI function.
    fs::path function = missing ? fs::path() : real;
    while (!function.empty() && function != function.root_path() && !is_bdf(function.filename())) {
      function = function.parent_path();
    }
    if (is_bdf(function.filename())) parent = &place(function);
    for (Element& nic : parent->children) {
      if (nic.name == "nic") {
        nic.children.push_back(std::move(net));
        return;
      }
    }
    Element nic;
    nic.name = "nic";
    nic.children.push_back(std::move(net));
    parent->children.push_back(std::move(nic));
  }

  fs::path rdma_folder(const std::string& device) const {
    return sys_ / "class/infiniband" / device;
  }

  /// PCI path of the card without the function; empty for software devices.
  std::string card_of(const DiscoveredNic& nic) const {
    std::error_code missing;
    const fs::path real = fs::canonical(rdma_folder(nic.name) / "device", missing);
    if (missing || !is_bdf(real.filename())) return {};
    return real.string().substr(0, real.string().rfind('.'));
  }

  /// RDMA ports in the order of cards, which is that of the bus. Names order the devices of one
  /// card.
  Result<std::vector<DiscoveredNic>> rdma_ports() const {
    std::vector<DiscoveredNic> ports;
    if (options_.nics) {
      ports = *options_.nics;
    } else {
      CCL_TRY(DiscoveredNics seen, verbs_nics());
      ports = seen.asked ? std::move(seen.nics) : ports_by_files();
    }
    std::stable_sort(ports.begin(), ports.end(),
                     [&](const DiscoveredNic& a, const DiscoveredNic& b) {
                       return std::tuple(card_of(a), a.name.size(), a.name, a.port) <
                              std::tuple(card_of(b), b.name.size(), b.name, b.port);
                     });
    return ports;
  }

  std::vector<DiscoveredNic> ports_by_files() const {
    std::vector<DiscoveredNic> ports;
    for (const fs::path& device : entries(sys_ / "class/infiniband")) {
      for (const fs::path& port : entries(device / "ports")) {
        if (line_of(port / "state").find("ACTIVE") == std::string::npos) continue;
        DiscoveredNic nic;
        nic.name = device.filename();
        nic.port = std::atoi(port.filename().c_str());
        ports.push_back(std::move(nic));
      }
    }
    return ports;
  }

  void add_rdma_port(const DiscoveredNic& nic) {
    const fs::path device = rdma_folder(nic.name);
    // Reads "200 Gb/sec (4X HDR)", which is correct also for speeds newer than libibverbs.
    const std::string rate = line_of(device / "ports" / std::to_string(nic.port) / "rate");
    const int mbps = std::max(nic.mbps, static_cast<int>(leading_number(rate).value * 1e3));
    std::uint64_t guid = nic.guid;
    for (const char* file : {"sys_image_guid", "node_guid"}) {
      std::string text = line_of(device / file);  // "0c42:a103:0012:3456"
      text.erase(std::remove(text.begin(), text.end(), ':'), text.end());
      if (guid == 0) guid = std::strtoull(text.c_str(), nullptr, 16);
    }
    // Functions of a card share its guid: the port of a second function counts as a further port.
    std::set<int>& used = ports_[card_of(nic)];
    int port = nic.port;
    while (!card_of(nic).empty() && !used.insert(port).second) ++port;
    Element net;
    net.name = "net";
    net.set("name", nic.name);
    net.set("dev", std::to_string(nets_++));
    net.set("speed", std::to_string(mbps));
    net.set("port", std::to_string(port));
    net.set("latency", "0.000000");
    net.set("guid", fmt::format("{:#x}", guid));
    net.set("maxconn", std::to_string(nic.max_connections > 0 ? nic.max_connections : 131072));
    net.set("gdr", gdr_with(nic) ? "1" : "0");
    add_net(device / "device", std::move(net));
  }

  /// True if the module that lends GPU memory to all devices is loaded, or if driver and NIC
  /// support DMA-BUF.
  bool gdr_with(const DiscoveredNic& nic) const {
    return peer_memory() || (open_kernel_module() && (nic.dma_buf || nic.mbps == 0));
  }

  /// Names of interfaces that sockets may use; nothing if this machine does not report them.
  Result<std::optional<std::set<std::string>>> usable_interfaces() const {
    std::optional<std::set<std::string>> names;
    if (options_.sockets) {
      names.emplace(options_.sockets->begin(), options_.sockets->end());
    } else if (options_.sys == "/sys") {
      CCL_TRY(const std::string wanted, ccl::detail::setting_text("SOCKET_IFNAME"));
      names.emplace();
      for (const ccl::detail::net::Interface& fit :
           ccl::detail::net::choose_interfaces(ccl::detail::net::list_interfaces(), wanted, 0)) {
        names->insert(fit.name);
      }
    }
    return names;
  }

  Result<void> add_interfaces() {
    CCL_TRY(const auto usable, usable_interfaces());
    for (const fs::path& interface : entries(sys_ / "class/net")) {
      const std::string name = interface.filename();
      if (name == "lo" || name.rfind("docker", 0) == 0) continue;
      if (usable && usable->count(name) == 0) continue;
      const std::string state = line_of(interface / "operstate");
      if (state != "up" && state != "unknown") continue;
      int mbps = std::atoi(line_of(interface / "speed").c_str());
      if (mbps <= 0) mbps = 10000;  // virtual ones report -1
      Element net;
      net.name = "net";
      net.set("name", name);
      net.set("dev", std::to_string(nets_++));
      net.set("speed", std::to_string(mbps));
      net.set("port", "0");
      net.set("latency", "0.000000");
      net.set("guid", "0x0");
      net.set("maxconn", "65536");
      net.set("gdr", "0");
      add_net(interface / "device", std::move(net));
    }
    return {};
  }

  const DiscoverOptions& options_;
  fs::path sys_;
  Element root_;
  std::set<std::string> gpu_ids_;
  std::map<std::string, std::set<int>> ports_;  // of each card
  int gpus_ = 0, nets_ = 0;
};

}  // namespace

Result<XmlFile> discover(const DiscoverOptions& options) {
  XmlFile file;
  file.name = "this machine";
  CCL_TRY(file.root, Detector(options).run());
  return file;
}

}  // namespace ccl::topo
