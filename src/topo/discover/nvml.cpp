#include <ccl/topo/discover.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <type_traits>

#include "base/fork_mutex.hpp"
#include "base/made_once.hpp"
#include "base/text.hpp"
#include <dlfcn.h>
#include <unistd.h>

namespace ccl::topo {
namespace {

/// NVML, loaded by name. Layouts and numbers are those of nvml.h, which are stable by contract.
struct Nvml {
  struct PciInfo {
    char legacy[16];
    unsigned domain, bus, device, pci_device, pci_subsystem;
    char bus_id[32];
  };
  struct FieldValue {
    unsigned field, scope;
    long long timestamp, latency_us;
    unsigned value_type;
    int result;
    union {
      double real;
      unsigned small;
      unsigned long long large;
    } value;
  };
  struct FabricInfo {
    unsigned char cluster[16];
    int status;
    unsigned clique;
    unsigned char state;  // 3: the GPU has joined
  };
  static constexpr unsigned c2c_link_count = 170, c2c_link_status = 171, c2c_link_max_bw = 172;
  static constexpr unsigned max_links = 36;  // above that of any GPU
  using Device = void*;

  int (*init)() = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*by_index)(unsigned, Device*) = nullptr;
  int (*by_bus_id)(const char*, Device*) = nullptr;
  int (*index_of)(Device, unsigned*) = nullptr;
  int (*pci)(Device, PciInfo*) = nullptr;
  int (*capability)(Device, int*, int*) = nullptr;
  int (*link_state)(Device, unsigned, int*) = nullptr;
  int (*link_remote)(Device, unsigned, PciInfo*) = nullptr;
  int (*mig_mode)(Device, unsigned*, unsigned*) = nullptr;
  int (*fields)(Device, int, FieldValue*) = nullptr;
  int (*fabric)(Device, FabricInfo*) = nullptr;
  std::string why;  // reason why it is unusable, or empty
};

/// Opened once in a process, since opening and starting it takes the most time by far.
const Nvml& nvml() {
  struct Opened {
    Nvml nvml;
    ::pid_t by = 0;
    ccl::detail::ForkMutex mutex{[this] {
      ccl::detail::renew(nvml);
      by = 0;
    }};
  };
  static constinit ccl::detail::MadeOnce<Opened> opened;
  auto& [made, made_by, mutex] = opened.get();
  const std::lock_guard lock{mutex};
  if (made_by == ::getpid()) return made;
  made_by = ::getpid();  // a fork starts its own
  made = {};
  void* const library = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    made.why = "libnvidia-ml.so.1 cannot be opened (no NVIDIA driver here)";
    return made;
  }
  const auto find = [library](const char* symbol, auto& function) {
    function =
        reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, symbol));
    return function != nullptr;
  };
  const bool complete =
      find("nvmlInit_v2", made.init) && find("nvmlDeviceGetCount_v2", made.count) &&
      find("nvmlDeviceGetHandleByIndex_v2", made.by_index) &&
      find("nvmlDeviceGetHandleByPciBusId_v2", made.by_bus_id) &&
      find("nvmlDeviceGetIndex", made.index_of) && find("nvmlDeviceGetPciInfo_v3", made.pci) &&
      find("nvmlDeviceGetCudaComputeCapability", made.capability);
  find("nvmlDeviceGetNvLinkState", made.link_state);
  find("nvmlDeviceGetNvLinkRemotePciInfo_v2", made.link_remote);
  find("nvmlDeviceGetMigMode", made.mig_mode);
  find("nvmlDeviceGetFieldValues", made.fields);
  find("nvmlDeviceGetGpuFabricInfo", made.fabric);
  if (!complete) {
    made.why = "NVML is too old";
  } else if (made.init() != 0) {
    made.why = "NVML does not start (driver not loaded?)";
  }
  return made;
}

std::string short_bus_id(const char* text) {
  std::string id = text;
  for (char& c : id) c = ccl::detail::lower(c);
  // NVML writes eight digits of domain, sysfs four.
  if (id.size() > 12 && id.rfind("0000", 0) == 0) id = id.substr(id.size() - 12);
  return id;
}

/// Reads the links to the CPU's own chip. All active ones are of one kind.
void look_at_c2c(const Nvml& by, Nvml::Device device, DiscoveredGpu& gpu) {
  if (by.fields == nullptr) return;
  const auto ask = [&](unsigned field, unsigned scope) -> long long {
    Nvml::FieldValue value{};
    value.field = field;
    value.scope = scope;
    if (by.fields(device, 1, &value) != 0 || value.result != 0) return -1;
    return value.value.small;
  };
  const long long count = ask(Nvml::c2c_link_count, 0);
  for (long long link = 0; link < count && link < Nvml::max_links; ++link) {
    if (ask(Nvml::c2c_link_status, static_cast<unsigned>(link)) != 1) continue;
    const long long mbps = ask(Nvml::c2c_link_max_bw, static_cast<unsigned>(link));
    if (mbps <= 0) continue;
    gpu.c2c_mbps = static_cast<int>(mbps);
    ++gpu.c2c_links;
  }
}

/// Fabric over several hosts that the GPU has joined; with one host's NVSwitches, the cluster is
/// all zero.
std::string fabric_of(const Nvml& by, Nvml::Device device) {
  Nvml::FabricInfo info{};
  if (by.fabric == nullptr || by.fabric(device, &info) != 0) return {};
  const auto* const cluster = info.cluster;
  if (info.state != 3 || info.status != 0 ||
      std::all_of(cluster, cluster + 16, [](unsigned char byte) { return byte == 0; })) {
    return {};
  }
  std::string text;
  for (int byte = 0; byte < 16; ++byte) text += fmt::format("{:02x}", cluster[byte]);
  return fmt::format("{}:{}", text, info.clique);
}

bool look_at(const Nvml& by, Nvml::Device device, DiscoveredGpu& gpu) {
  Nvml::PciInfo pci{};
  int major = 0, minor = 0;
  unsigned index = 0;
  if (by.pci(device, &pci) != 0 || by.capability(device, &major, &minor) != 0) return false;
  gpu.bus_id = short_bus_id(pci.bus_id);
  gpu.sm = major * 10 + minor;
  if (by.index_of(device, &index) == 0) gpu.dev = static_cast<int>(index);
  unsigned mig = 0, pending = 0;
  gpu.mig = by.mig_mode != nullptr && by.mig_mode(device, &mig, &pending) == 0 && mig != 0;
  look_at_c2c(by, device, gpu);
  gpu.fabric = fabric_of(by, device);
  if (gpu.mig) return true;  // its parts reach neither each other nor other GPUs by NVLink
  std::map<std::string, int> links;
  for (unsigned link = 0; by.link_state != nullptr && link < Nvml::max_links; ++link) {
    int active = 0;
    if (by.link_state(device, link, &active) != 0) continue;  // inactive links may be in between
    if (active == 0) continue;
    Nvml::PciInfo remote{};
    const bool known = by.link_remote != nullptr && by.link_remote(device, link, &remote) == 0;
    links[known ? short_bus_id(remote.bus_id) : std::string()]++;
  }
  for (const auto& [remote, number] : links) gpu.links.push_back({remote, number});
  return true;
}

}  // namespace

std::optional<DiscoveredGpu> nvml_gpu(const std::string& bus_id) {
  const Nvml& by = nvml();
  Nvml::Device device = nullptr;
  DiscoveredGpu gpu;
  if (!by.why.empty() || by.by_bus_id(bus_id.c_str(), &device) != 0) return {};
  if (!look_at(by, device, gpu)) return {};
  return gpu;
}

std::string nvml_fabric(const std::string& bus_id) {
  const Nvml& by = nvml();
  Nvml::Device device = nullptr;
  if (!by.why.empty() || by.by_bus_id(bus_id.c_str(), &device) != 0) return {};
  return fabric_of(by, device);
}

std::vector<DiscoveredGpu> nvml_gpus(std::string& why) {
  std::vector<DiscoveredGpu> gpus;
  const Nvml& by = nvml();
  why = by.why;
  if (!why.empty()) return gpus;
  unsigned count = 0;
  by.count(&count);
  for (unsigned index = 0; index < count; ++index) {
    Nvml::Device device = nullptr;
    DiscoveredGpu gpu;
    if (by.by_index(index, &device) != 0 || !look_at(by, device, gpu)) {
      why = fmt::format("GPU {} does not answer", index);
      continue;
    }
    gpu.dev = static_cast<int>(gpus.size());
    gpus.push_back(std::move(gpu));
  }
  return gpus;
}

}  // namespace ccl::topo
