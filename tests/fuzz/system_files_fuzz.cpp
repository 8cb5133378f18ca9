// Files of the kernel and replies of NVML, as a machine's description is made of them.
#include <ccl/topo/lint.hpp>
#include <ccl/topo/path.hpp>

#include "fuzz/fuzz.hpp"
#include "support/fake_machine.hpp"

namespace ccl::fuzz {

namespace {

const std::string deep = "pci0000:10/0000:10:01.0/0000:11:00.0/";
constexpr int gpus = 2;

/// Files whose contents an input replaces.
const std::vector<std::string>& files() {
  static const std::vector<std::string> all = [] {
    std::vector<std::string> out{"proc/cpuinfo",
                                 "sys/devices/system/node/node0/cpumap",
                                 "sys/devices/system/node/node1/cpumap",
                                 "sys/class/infiniband/mlx5_0/node_guid",
                                 "sys/class/infiniband/mlx5_0/ports/1/rate",
                                 "sys/class/infiniband/mlx5_0/ports/1/state",
                                 "sys/class/infiniband/mlx5_0/ports/1/link_layer",
                                 "sys/class/net/eth0/speed"};
    for (const char* device :
         {"", "0000:12:00.0/", "0000:12:00.0/0000:13:00.0/", "0000:12:01.0/0000:14:00.0/"}) {
      for (const char* file : {"class", "vendor", "device", "numa_node", "max_link_speed",
                               "max_link_width", "subsystem_vendor"}) {
        out.push_back("sys/devices/" + deep + device + file);
      }
    }
    return out;
  }();
  return all;
}

test::FakeMachine& machine() {
  static test::FakeMachine* const one = [] {
    auto* made = new test::FakeMachine;
    made->numa(0, "00ff");
    made->numa(1, "ff00");
    made->pci("pci0000:10/0000:10:01.0", "0x060400", 0);
    made->pci("pci0000:10/0000:10:01.0/0000:11:00.0", "0x060400", 0);
    made->pci(deep + "0000:12:00.0", "0x060400", 0);
    made->pci(deep + "0000:12:01.0", "0x060400", 0);
    made->pci(deep + "0000:12:00.0/0000:13:00.0", "0x030200", 0);
    const std::string nic = made->pci(deep + "0000:12:01.0/0000:14:00.0", "0x020700", 0);
    made->pci("pci0000:80/0000:81:00.0", "0x030200", 1);
    made->device("sys/class/infiniband/mlx5_0/device", nic);
    made->device("sys/class/net/eth0/device", nic);
    std::atexit([] { std::filesystem::remove_all(machine().path("")); });
    return made;
  }();
  return *one;
}

std::string line(Source& source) {
  const Input bytes = source.take_bytes(source.take<std::uint8_t>() % 64);
  return std::string{text_of(bytes)};
}

}  // namespace

void prepare() {
  (void)machine();
}

void read(Input input) {
  Source source{input};
  auto options = machine().options();
  for (int n = 0; n < gpus && source.take<std::uint8_t>() % 4 != 0; ++n) {
    topo::DiscoveredGpu gpu;
    gpu.bus_id = source.take<std::uint8_t>() % 4 == 0 ? line(source)
                 : n == 0                             ? "0000:13:00.0"
                                                      : "0000:81:00.0";
    gpu.dev = source.take<std::int16_t>();
    gpu.sm = source.take<std::int16_t>();
    gpu.c2c_links = source.take<std::int8_t>();
    gpu.links.push_back({line(source), source.take<std::int8_t>()});
    options.gpus->push_back(std::move(gpu));
  }
  std::vector<std::string> changed;
  for (int n = 0; n < 8 && !source.empty(); ++n) {
    changed.push_back(files()[source.take<std::uint8_t>() % files().size()]);
    machine().file(changed.back(), line(source));
  }
  options.nics.reset();
  ::setenv("CCL_IB_DISABLE", "1", 1);
  const auto file = topo::discover(options);
  for (const std::string& path : changed) std::filesystem::remove(machine().path(path));
  if (!file) return;
  const auto loaded = topo::to_graph(*file);
  if (!loaded) return;
  (void)topo::compute_paths(loaded->graph);
  (void)topo::lint(*loaded);
}

std::vector<std::string> seeds() {
  const auto change = [](int file, const std::string& text) {
    return std::string{char(file), char(text.size())} + text;
  };
  const std::string none(1, '\0');
  std::string gpu{"\1\1\0\0\132\0\1\0\0", 8};
  return {none + change(0, "vendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 1\n\n"),
          none + change(1, "ffff,00000000") + change(3, "0c42:a103:0012:3456"),
          none + change(4, "400 Gb/sec (4X NDR)") + change(7, "100000"),
          gpu + change(12, "32.0 GT/s PCIe") + change(13, "16")};
}

}  // namespace ccl::fuzz
