#include <ccl/topo/discover.hpp>
#include <ccl/topo/path.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "topo/sys_files.hpp"
#include <sys/utsname.h>

namespace ccl::topo {
namespace fs = std::filesystem;
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

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

double gigatransfers(const std::string& speed) {
  return std::strtod(speed.c_str(), nullptr);
}

class Detector {
 public:
  explicit Detector(const DiscoverOptions& options) : options_(options), sys_(options.sys) {
    root_.name = "system";
    root_.set("version", "1");
  }

  Element run() {
    add_cpus();
    std::string why;
    const std::vector<SeenGpu> gpus = options_.gpus ? *options_.gpus : nvml_gpus(why);
    for (const SeenGpu& gpu : gpus) gpu_ids_.insert(lower(gpu.bus_id));
    for (const SeenGpu& gpu : gpus) add_gpu(gpu);
    if (options_.network && !add_infiniband()) add_interfaces();
    return std::move(root_);
  }

 private:
  void add_cpus() {
    std::string vendor, family, model;
    std::ifstream in(options_.proc + "/cpuinfo");
    std::string line;
    while (std::getline(in, line)) {
      const auto colon = line.find(": ");
      if (colon == std::string::npos) {
        if (!vendor.empty()) break;  // the first processor says it all
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
      // Nodes of memory alone are no place for ranks.
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
    return root_.children.front();  // VMs and single sockets say -1
  }

  /// Element of the device at `path` below all switches above it. Valid until the next call.
  Element& place(const fs::path& path) {
    const std::string name = lower(path.filename());
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
    // The slower of both ends is what the link can do.
    std::string speed = line_of(path / "max_link_speed");
    const std::string port_speed = line_of(path.parent_path() / "max_link_speed");
    if (!port_speed.empty() &&
        (speed.empty() || gigatransfers(port_speed) < gigatransfers(speed))) {
      speed = port_speed;
    }
    int width = std::atoi(line_of(path / "max_link_width").c_str());
    const int port_width = std::atoi(line_of(path.parent_path() / "max_link_width").c_str());
    if (port_width > 0 && (width == 0 || port_width < width)) width = port_width;
    if (width < 0 || width > 64) width = 0;  // 255 where a VM knows nothing
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

  void add_gpu(const SeenGpu& seen) {
    const fs::path path = device_path(seen.bus_id);
    Element alone;
    alone.name = "pci";
    alone.set("busid", lower(seen.bus_id));
    alone.set("class", "0x030200");
    // In containers without /sys a GPU hangs on the first CPU.
    Element& pci = path.empty() ? (root_.children.front().children.push_back(alone),
                                   root_.children.front().children.back())
                                : place(path);
    Element gpu;
    gpu.name = "gpu";
    gpu.set("dev", std::to_string(seen.dev));
    gpu.set("sm", std::to_string(seen.sm));
    gpu.set("rank", std::to_string(seen.dev));
    gpu.set("gdr", gdr() ? "1" : "0");
    // An NVSwitch has many bus ids; what is no GPU is one fabric.
    int fabric = 0;
    const auto add_link = [&](const std::string& target, const std::string& kind, int count) {
      Element nvlink;
      nvlink.name = "nvlink";
      nvlink.set("target", target);
      nvlink.set("count", std::to_string(count));
      nvlink.set("tclass", kind);
      gpu.children.push_back(std::move(nvlink));
    };
    for (const SeenLink& link : seen.links) {
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

  /// Peer memory by module, or DMA-BUF, which the open kernel modules export.
  bool gdr() const {
    std::error_code ignored;
    return fs::exists(sys_ / "module/nvidia_peermem", ignored) ||
           fs::exists(sys_ / "kernel/mm/memory_peers/nv_mem/version", ignored) ||
           line_of(fs::path(options_.proc) / "driver/nvidia/version").find("Open Kernel Module") !=
               std::string::npos;
  }

  void add_net(const fs::path& device, Element net) {
    std::error_code missing;
    const fs::path real = fs::canonical(device, missing);
    Element* parent = &root_.children.front();
    // virtio and the like sit one below their PCI function.
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

  bool add_infiniband() {
    for (const fs::path& device : entries(sys_ / "class/infiniband")) {
      for (const fs::path& port : entries(device / "ports")) {
        if (line_of(port / "state").find("ACTIVE") == std::string::npos) continue;
        std::string guid = line_of(device / "node_guid");
        guid.erase(std::remove(guid.begin(), guid.end(), ':'), guid.end());
        Element net;
        net.name = "net";
        net.set("name", device.filename());
        net.set("dev", std::to_string(nets_++));
        // "200 Gb/sec (4X HDR)"
        net.set("speed",
                fmt::format("{:.0f}", std::strtod(line_of(port / "rate").c_str(), nullptr) * 1000));
        net.set("port", port.filename());
        net.set("latency", "0.000000");
        net.set("guid", guid.empty() ? "0x0" : "0x" + guid);
        net.set("maxconn", "131072");
        net.set("gdr", gdr() ? "1" : "0");
        add_net(device / "device", std::move(net));
      }
    }
    return nets_ > 0;
  }

  void add_interfaces() {
    for (const fs::path& interface : entries(sys_ / "class/net")) {
      const std::string name = interface.filename();
      if (name == "lo" || name.rfind("docker", 0) == 0) continue;
      const std::string state = line_of(interface / "operstate");
      if (state != "up" && state != "unknown") continue;
      int mbps = std::atoi(line_of(interface / "speed").c_str());
      if (mbps <= 0) mbps = 10000;  // virtual ones say -1
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
  }

  const DiscoverOptions& options_;
  fs::path sys_;
  Element root_;
  std::set<std::string> gpu_ids_;
  int nets_ = 0;
};

}  // namespace

Result<XmlFile> discover(const DiscoverOptions& options) {
  XmlFile file;
  file.name = "this machine";
  file.root = Detector(options).run();
  return file;
}

}  // namespace ccl::topo
