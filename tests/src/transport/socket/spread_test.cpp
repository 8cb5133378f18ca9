#include "transport/socket/spread.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "support/catch.hpp"
#include <unistd.h>

using ccl::detail::socket_spread;
using ccl::detail::SocketSpread;
namespace fs = std::filesystem;

namespace {

/// Tree like /sys during the object's lifetime, without settings.
struct Machine {
  const fs::path root = fs::temp_directory_path() / ("ccl-spread-" + std::to_string(::getpid()));
  Machine() { unset(); }
  ~Machine() {
    fs::remove_all(root);
    unset();
  }
  static void unset() {
    for (const char* name : {"CCL_SOCKET_NTHREADS", "CCL_NSOCKS_PERTHREAD", "NCCL_SOCKET_NTHREADS",
                             "NCCL_NSOCKS_PERTHREAD"}) {
      ::unsetenv(name);
    }
  }
  /// Adds a device as the kernel does: a link to a folder of the PCI bus.
  void add(const std::string& interface, const std::string& vendor) const {
    const fs::path device = root / "devices/pci0000:00" / interface;
    fs::create_directories(device);
    fs::create_directories(root / "class/net" / interface);
    fs::create_directory_symlink(device, root / "class/net" / interface / "device");
    std::ofstream{device / "vendor"} << vendor << "\n";
  }
  SocketSpread spread(const std::string& interface) const {
    const auto found = socket_spread(interface, root.string());
    REQUIRE(found);
    return *found;
  }
};

}  // namespace

TEST_CASE("the vendor of the NIC says over how many sockets and threads") {
  const Machine machine;
  machine.add("ens5", "0x1d0f");
  machine.add("ens4", "0x1ae0");
  machine.add("eth0", "0x15b3");
  CHECK(machine.spread("ens5") == SocketSpread{2, 8});
  CHECK(machine.spread("ens4") == SocketSpread{4, 1});
  CHECK(machine.spread("eth0") == SocketSpread{0, 1});
  CHECK(machine.spread("lo") == SocketSpread{0, 1});  // no device at all
}

TEST_CASE("each of the two settings goes before the vendor") {
  const Machine machine;
  machine.add("ens5", "0x1d0f");
  ::setenv("CCL_SOCKET_NTHREADS", "1", 1);
  CHECK(machine.spread("ens5") == SocketSpread{1, 8});
  ::setenv("CCL_NSOCKS_PERTHREAD", "3", 1);
  CHECK(machine.spread("ens5") == SocketSpread{1, 3});
  ::setenv("CCL_SOCKET_NTHREADS", "-2", 1);
  CHECK(machine.spread("ens5") == SocketSpread{2, 3});
  ::setenv("CCL_SOCKET_NTHREADS", "0", 1);
  CHECK(machine.spread("lo") == SocketSpread{0, 3});
  Machine::unset();
  ::setenv("NCCL_NSOCKS_PERTHREAD", "2", 1);
  CHECK(machine.spread("ens5") == SocketSpread{2, 2});
}

TEST_CASE("a channel has 64 sockets at most") {
  const Machine machine;
  ::setenv("CCL_SOCKET_NTHREADS", "15", 1);
  ::setenv("CCL_NSOCKS_PERTHREAD", "64", 1);
  CHECK(machine.spread("lo") == SocketSpread{15, 4});
  CHECK(machine.spread("lo").sockets() == SocketSpread::max_sockets);
}

TEST_CASE("a GPU's steps have a thread for two CPUs of the rank's, and four at most") {
  using ccl::detail::movers_by_default;
  CHECK(movers_by_default(2, 2, 2) == 1);
  CHECK(movers_by_default(32, 32, 2) == 4);
  CHECK(movers_by_default(112, 112, 8) == 4);
  CHECK(movers_by_default(32, 32, 8) == 2);
  CHECK(movers_by_default(6, 112, 8) == 3);   // bound to CPUs of its own
  CHECK(movers_by_default(56, 112, 8) == 4);  // of a socket, which three others have, too
  CHECK(movers_by_default(8, 64, 16) == 2);   // two ranks on each eighth
  CHECK(movers_by_default(1, 112, 1) == 1);
}

TEST_CASE("the setting goes before the number of CPUs") {
  ::setenv("CCL_SOCKET_GPU_NTHREADS", "7", 1);
  CHECK(ccl::detail::socket_movers(64) == 7);
  ::setenv("CCL_SOCKET_GPU_NTHREADS", "17", 1);
  CHECK_FALSE(ccl::detail::socket_movers(1));
  ::unsetenv("CCL_SOCKET_GPU_NTHREADS");
  const auto found = ccl::detail::socket_movers(1);
  REQUIRE(found);
  CHECK(*found >= 1);
  CHECK(*found <= 4);
}

TEST_CASE("a bad number is an error, not the vendor's") {
  const Machine machine;
  ::setenv("CCL_SOCKET_NTHREADS", "many", 1);
  const auto found = socket_spread("lo", machine.root.string());
  REQUIRE_FALSE(found);
  CHECK(found.error().code == ccl::Errc::bad_setting);
}
