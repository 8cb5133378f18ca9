#pragma once

#include <ccl/topo/discover.hpp>

#include <filesystem>
#include <fstream>
#include <string>

#include <unistd.h>

namespace ccl::test {
namespace fs = std::filesystem;

/// Emulated /sys and /proc, removed by the destructor.
class FakeMachine {
 public:
  FakeMachine() : root_(fs::temp_directory_path() / ("ccl_discover_" + std::to_string(getpid()))) {
    fs::remove_all(root_);
    file("proc/cpuinfo",
         "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\nmodel "
         "name\t: x\n\n");
  }
  ~FakeMachine() {
    std::error_code ignored;
    fs::remove_all(root_, ignored);
  }
  void file(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path, std::ios::binary) << text;
  }
  void numa(int node, const std::string& map) {
    file("sys/devices/system/node/node" + std::to_string(node) + "/cpumap", map + "\n");
  }
  std::string pci(const std::string& path, const std::string& device_class, int node,
                  const std::string& speed = "16.0 GT/s PCIe", const std::string& width = "16") {
    const std::string full = "sys/devices/" + path;
    file(full + "/class", device_class + "\n");
    file(full + "/vendor", "0x10de\n");
    file(full + "/numa_node", std::to_string(node) + "\n");
    file(full + "/max_link_speed", speed + "\n");
    file(full + "/max_link_width", width + "\n");
    const std::string id = fs::path(path).filename();
    fs::create_directories(root_ / "sys/bus/pci/devices");
    fs::create_directory_symlink(root_ / full, root_ / "sys/bus/pci/devices" / id);
    return full;
  }
  void device(const std::string& from, const std::string& to) {
    fs::create_directories((root_ / from).parent_path());
    fs::create_directory_symlink(root_ / to, root_ / from);
  }
  topo::DiscoverOptions options() const {
    topo::DiscoverOptions options;
    options.sys = (root_ / "sys").string();
    options.proc = (root_ / "proc").string();
    options.gpus.emplace();
    options.nics.emplace();
    return options;
  }

  std::string path(const std::string& below) const { return (root_ / below).string(); }

 private:
  fs::path root_;
};

}  // namespace ccl::test
