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

#include <dlfcn.h>
#include <sys/resource.h>
#include <sys/utsname.h>

namespace ccl::topo {
namespace fs = std::filesystem;
namespace {

/// First line without the end; empty if it cannot be read.
std::string line_of(const fs::path& path) {
  std::ifstream in(path);
  std::string text;
  std::getline(in, text);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0) {
    text.pop_back();
  }
  return text;
}

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

/// Entries in an order that does not depend on the file system.
std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code ignored;
  for (auto it = fs::directory_iterator(folder, ignored); it != fs::directory_iterator();
       it.increment(ignored)) {
    found.push_back(it->path());
    if (ignored) break;
  }
  std::sort(found.begin(), found.end());
  return found;
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
    for (const SeenGpu& gpu : options_.gpus ? *options_.gpus : nvml_gpus(why)) add_gpu(gpu);
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
    for (const SeenLink& link : seen.links) {
      Element nvlink;
      nvlink.name = "nvlink";
      const fs::path remote =
          link.remote_bus_id.empty() ? fs::path() : device_path(link.remote_bus_id);
      const std::string remote_class = remote.empty() ? "" : line_of(remote / "class");
      const bool to_gpu = remote_class.rfind("0x03", 0) == 0;
      nvlink.set("target", to_gpu ? lower(link.remote_bus_id) : "fffffff:ff:ff.0");
      nvlink.set("count", std::to_string(link.count));
      nvlink.set("tclass", to_gpu ? remote_class : "0x068000");
      gpu.children.push_back(std::move(nvlink));
    }
    pci.children.push_back(std::move(gpu));
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
  int nets_ = 0;
};

/// NVML by name. Layouts are those of nvml.h, which are stable by contract.
struct Nvml {
  struct PciInfo {
    char legacy[16];
    unsigned domain, bus, device, pci_device, pci_subsystem;
    char bus_id[32];
  };
  using Device = void*;
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*by_index)(unsigned, Device*) = nullptr;
  int (*pci)(Device, PciInfo*) = nullptr;
  int (*capability)(Device, int*, int*) = nullptr;
  int (*link_state)(Device, unsigned, int*) = nullptr;
  int (*link_remote)(Device, unsigned, PciInfo*) = nullptr;
};

std::string short_bus_id(const char* text) {
  std::string id = lower(text);
  // NVML writes eight digits of domain, sysfs four.
  if (id.size() > 12 && id.rfind("0000", 0) == 0) id = id.substr(id.size() - 12);
  return id;
}

}  // namespace

std::vector<SeenGpu> nvml_gpus(std::string& why) {
  std::vector<SeenGpu> gpus;
  void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    why = "libnvidia-ml.so.1 cannot be opened (no NVIDIA driver here)";
    return gpus;
  }
  Nvml nvml;
  const auto find = [library](const char* symbol, auto& function) {
    function =
        reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, symbol));
    return function != nullptr;
  };
  const bool complete = find("nvmlInit_v2", nvml.init) && find("nvmlShutdown", nvml.shutdown) &&
                        find("nvmlDeviceGetCount_v2", nvml.count) &&
                        find("nvmlDeviceGetHandleByIndex_v2", nvml.by_index) &&
                        find("nvmlDeviceGetPciInfo_v3", nvml.pci) &&
                        find("nvmlDeviceGetCudaComputeCapability", nvml.capability);
  find("nvmlDeviceGetNvLinkState", nvml.link_state);
  find("nvmlDeviceGetNvLinkRemotePciInfo_v2", nvml.link_remote);
  if (!complete || nvml.init() != 0) {
    why = complete ? "NVML does not start (driver not loaded?)" : "NVML is too old";
    dlclose(library);
    return gpus;
  }
  unsigned count = 0;
  nvml.count(&count);
  for (unsigned index = 0; index < count; ++index) {
    Nvml::Device device = nullptr;
    Nvml::PciInfo pci{};
    int major = 0, minor = 0;
    if (nvml.by_index(index, &device) != 0 || nvml.pci(device, &pci) != 0 ||
        nvml.capability(device, &major, &minor) != 0) {
      why = fmt::format("GPU {} does not answer", index);
      continue;
    }
    SeenGpu gpu;
    gpu.bus_id = short_bus_id(pci.bus_id);
    gpu.dev = static_cast<int>(gpus.size());
    gpu.sm = major * 10 + minor;
    std::map<std::string, int> links;
    for (unsigned link = 0; nvml.link_state != nullptr && link < 36; ++link) {
      int active = 0;
      if (nvml.link_state(device, link, &active) != 0) continue;  // inactive links stand between
      if (active == 0) continue;
      Nvml::PciInfo remote{};
      const bool known =
          nvml.link_remote != nullptr && nvml.link_remote(device, link, &remote) == 0;
      links[known ? short_bus_id(remote.bus_id) : std::string()]++;
    }
    // An NVSwitch has many bus ids; what is no GPU is one fabric.
    for (const auto& [remote, number] : links) gpu.links.push_back({remote, number});
    gpus.push_back(std::move(gpu));
  }
  nvml.shutdown();
  dlclose(library);
  std::set<std::string> ids;
  for (const SeenGpu& gpu : gpus) ids.insert(gpu.bus_id);
  for (SeenGpu& gpu : gpus) {
    std::vector<SeenLink> direct;
    SeenLink fabric;
    for (const SeenLink& link : gpu.links) {
      if (ids.count(link.remote_bus_id) != 0) {
        direct.push_back(link);
      } else {
        fabric.count += link.count;
      }
    }
    if (fabric.count > 0) direct.push_back(fabric);
    gpu.links = std::move(direct);
  }
  return gpus;
}

Result<XmlFile> discover(const DiscoverOptions& options) {
  XmlFile file;
  file.name = "this machine";
  file.root = Detector(options).run();
  return file;
}

namespace {

void lint_graph(const LoadedGraph& machine, std::vector<Remark>& remarks) {
  const Graph& graph = machine.graph;
  for (const Repair& repair : machine.repairs) {
    remarks.push_back(
        {repair.line > 0 ? fmt::format("line {}: {}", repair.line, repair.what) : repair.what,
         "correct the file, or give one with CCL_TOPO_FILE"});
  }
  const std::vector<int> gpus = graph.of(NodeType::gpu);
  float widest = 0;
  const auto uplink = [&](int gpu) {
    float bw = 0;
    for (const int l : graph.nodes[gpu].out) {
      if (graph.links[l].type == LinkType::pci) bw = std::max(bw, graph.links[l].bw);
    }
    return bw;
  };
  for (const int gpu : gpus) widest = std::max(widest, uplink(gpu));
  const Paths paths = compute_paths(graph);
  const std::vector<int> nets = graph.of(NodeType::net);
  std::map<std::pair<int, std::string>, std::vector<std::string>> without_gdr;
  for (const int gpu : gpus) {
    const float bw = uplink(gpu);
    if (bw > 0 && bw < widest) {
      remarks.push_back(
          {fmt::format("{} has {:g} GB/s of PCIe, others have {:g}", graph.label(gpu), bw, widest),
           "reseat the card, check the slot's width and the BIOS's lane split"});
    }
    float fabric = 0;
    for (const int l : graph.nodes[gpu].out) {
      if (graph.links[l].type == LinkType::nvl) fabric += graph.links[l].bw;
    }
    for (const int other : gpus) {
      float there = 0;
      for (const int l : graph.nodes[other].out) {
        if (graph.links[l].type == LinkType::nvl) there += graph.links[l].bw;
      }
      if (other < gpu && std::abs(fabric - there) > 0.1F) {
        remarks.push_back({fmt::format("{} has {:g} GB/s of NVLink, {} has {:g}", graph.label(gpu),
                                       fabric, graph.label(other), there),
                           "look for inactive links with nvidia-smi nvlink --status"});
        break;
      }
    }
    if (nets.empty() || graph.nodes[gpu].gpu.on_cpu) continue;
    const int net = local_net(graph, paths, gpu, 0);
    if (net < 0) {
      remarks.push_back({fmt::format("{} reaches no NIC", graph.label(gpu)),
                         "check the PCI part of the topology file"});
      continue;
    }
    const PathType type = paths.at(gpu, net).type;
    if (type == PathType::sys) {
      remarks.push_back({fmt::format("{} and its NIC {} are on different sockets", graph.label(gpu),
                                     graph.nodes[net].net.name),
                         "move the NIC, or add one on the GPU's socket"});
    }
    const GdrAnswer gdr = check_gdr(graph, paths, {}, gpu, net, false);
    if (!gdr.allowed) without_gdr[{net, gdr.why}].push_back(graph.label(gpu));
  }
  for (const auto& [where, labels] : without_gdr) {
    const Node::Net& net = graph.nodes[where.first].net;
    remarks.push_back({fmt::format("no GPU direct RDMA between {} and {} ({})", net.name,
                                   fmt::join(labels, ", "), where.second),
                       net.gdr ? "load nvidia-peermem or use a driver with DMA-BUF, and put both "
                                 "below one switch"
                               : "use a NIC with RDMA, and load nvidia-peermem or use a driver "
                                 "with DMA-BUF"});
  }
  for (const int node : graph.of(NodeType::pci)) {
    for (const int l : graph.nodes[node].out) {
      const Link& link = graph.links[l];
      if (link.to == graph.nodes[node].parent && link.bw < 4) {
        remarks.push_back({fmt::format("switch {} has {:g} GB/s to {}", graph.label(node), link.bw,
                                       graph.label(link.to)),
                           "many bridges report 2.5 GT/s x1 falsely; set link_speed in a topology "
                           "file if so"});
      }
    }
  }
}

void lint_system(std::vector<Remark>& remarks) {
  const auto check_limit = [&](int resource, rlim_t wanted, const char* what, const char* flag) {
    rlimit limit{};
    if (getrlimit(static_cast<__rlimit_resource>(resource), &limit) == 0 &&
        limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < wanted) {
      remarks.push_back({fmt::format("{} is limited to {}", what, limit.rlim_cur),
                         fmt::format("raise it: ulimit {}", flag)});
    }
  };
  check_limit(RLIMIT_NOFILE, 4096, "the number of open files", "-n 65536");
  check_limit(RLIMIT_MEMLOCK, rlim_t{1} << 30, "locked memory", "-l unlimited");
  std::error_code ignored;
  const std::string command = line_of("/proc/cmdline");
  const bool pass_through = command.find("iommu=pt") != std::string::npos;
  if (!entries("/sys/class/iommu").empty() && !pass_through) {
    remarks.push_back({"the IOMMU is on and translates (PCIe P2P goes through the CPU)",
                       "boot with iommu=pt, or switch it off in the BIOS"});
  }
  for (const fs::path& device : entries("/sys/bus/pci/devices")) {
    if (line_of(device / "class").rfind("0x0604", 0) != 0) continue;
    std::ifstream in(device / "config", std::ios::binary);
    std::string config((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    const auto word = [&](std::size_t at) {
      unsigned value = 0;
      if (at + 4 <= config.size()) std::memcpy(&value, config.data() + at, 4);
      return value;
    };
    // Extended capabilities start at 0x100; ACS is number 0xd, its control at +6.
    for (std::size_t at = 0x100, hops = 0; at >= 0x100 && at + 8 <= config.size() && hops < 48;
         ++hops) {
      const unsigned header = word(at);
      if (header == 0 || header == ~0U) break;
      if ((header & 0xffffU) == 0xdU && ((word(at + 4) >> 16) & 0x1dU) != 0) {
        remarks.push_back(
            {fmt::format("ACS redirects on bridge {} (P2P below it goes up to the CPU)",
                         device.filename().string()),
             fmt::format("setpci -s {} ECAP_ACS+0x6.w=0000, or switch ACS off in the BIOS",
                         device.filename().string())});
      }
      at = header >> 20;
    }
  }
}

}  // namespace

std::vector<Remark> lint(const LoadedGraph& machine, bool here) {
  std::vector<Remark> remarks;
  lint_graph(machine, remarks);
  if (here) lint_system(remarks);
  return remarks;
}

}  // namespace ccl::topo
