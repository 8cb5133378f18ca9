#include "net/address.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/io/fd.hpp"
#include "support/catch.hpp"
#include "support/error_matchers.hpp"
#include "support/skip.hpp"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace ccl;
using namespace ccl::detail::net;
using ccl::detail::Fd;
namespace fs = std::filesystem;

TEST_CASE("addresses are read and written") {
  for (const char* text : {"10.0.0.1:80", "[::1]:4711", "unix:ccl42", "[fd00::2]:1"}) {
    const auto a = Address::parse(text);
    REQUIRE(a);
    CHECK(a->to_string() == text);
    CHECK(Address{a->wire()} == *a);
  }
  CHECK(Address::parse("::1:4711").value().to_string() == "[::1]:4711");
  CHECK(Address::parse("localhost:1", AF_INET).value().to_string() == "127.0.0.1:1");
  const auto other = Address::parse("127.0.0.1:1", AF_INET6);
  CHECK(test::mentions(other.error().what, "not as IPv6, which CCL_SOCKET_FAMILY asks for"));
  const std::string no_name(70, 'x');  // longer than a name may be, so that no server is queried
  const auto unknown = Address::parse(no_name + ":1");
  CHECK(unknown.error().code == Errc::network);
  CHECK(test::mentions(unknown.error().what, ("knows no address of \"" + no_name).c_str()));
  CHECK(Address::parse("127.0.0.9:1").value().loopback());
  CHECK_FALSE(Address::parse("10.0.0.1:1").value().loopback());
  for (const char* text : {"", "10.0.0.1", "10.0.0.1:", "10.0.0.1:x", "10.0.0.1:70000", ":80"}) {
    INFO(text);
    CHECK(Address::parse(text).error().code == Errc::invalid_argument);
  }
}

TEST_CASE("interfaces are chosen as CCL_SOCKET_IFNAME says") {
  std::vector<Interface> all;
  for (const char* name : {"lo", "docker0", "eth0", "eth1", "ib0", "eth10"}) {
    all.push_back({name, Address::parse("10.0.0." + std::to_string(all.size()) + ":0").value()});
  }
  all.push_back({"eth0", Address::parse("[fd00::1]:0").value()});
  const auto chosen = [&](const char* names, int family) {
    std::string out;
    for (const auto& i : choose_interfaces(all, names, family)) {
      out += i.name + (i.address.family() == AF_INET6 ? "/6 " : " ");
    }
    return out;
  };
  CHECK(chosen("", 0) == "ib0 eth0 eth1 eth10 eth0/6 ");
  CHECK(chosen("eth", AF_INET) == "eth0 eth1 eth10 ");
  CHECK(chosen("eth", AF_INET6) == "eth0/6 ");
  CHECK(chosen("eth1", 0) == "eth1 eth10 ");
  CHECK(chosen("=eth1", 0) == "eth1 ");
  CHECK(chosen("=eth1,lo", 0) == "eth1 lo ");
  CHECK(chosen("lo,docker", 0) == "docker0 lo ");
  CHECK(chosen("^eth,ib", 0) == "docker0 lo ");
  CHECK(chosen("^=eth1,docker0,lo,ib0", AF_INET) == "eth0 eth10 ");
  CHECK(chosen("wlan", 0) == "");
  all[2].runs = all[5].runs = all[6].runs = false;  // eth0 and eth10
  CHECK(chosen("", 0) == "ib0 eth1 ");
  CHECK(chosen("=eth0,eth1", 0) == "eth1 ");
  CHECK(chosen("=eth0,eth10", 0) == "eth0 ");
  CHECK(chosen("^eth1,ib,docker", 0) == "eth0 lo ");
  all = {all[0], all[1], all[2]};
  CHECK(chosen("", 0) == "docker0 ");
  all[1].runs = false;
  CHECK(chosen("", 0) == "eth0 ");
  all.pop_back();
  CHECK(chosen("", 0) == "lo ");
  all = {all[0]};
  CHECK(chosen("", 0) == "lo ");
}

TEST_CASE("an interface that is not there is an error that lists those that are") {
  ::setenv("CCL_SOCKET_IFNAME", "nosuch", 1);
  const auto none = local_address();
  ::setenv("CCL_SOCKET_IFNAME", "=lo", 1);
  const auto lo = local_address();
  ::unsetenv("CCL_SOCKET_IFNAME");
  REQUIRE_FALSE(none);
  CHECK(none.error().what.find("lo=127.0.0.1") != std::string::npos);
  CHECK(lo.value().loopback());
  CHECK(local_address_towards(Address::parse("127.0.0.1:1").value()).value().loopback());
}

TEST_CASE("a process that may have no netlink socket finds the interfaces with IPv4") {
  std::string with;
  const auto names = [](std::string& to) {
    for (const Interface& i : list_interfaces()) {
      if (i.address.family() == AF_INET) to += i.name + "=" + i.address.to_string() + " ";
    }
  };
  names(with);
  const pid_t pid = ::fork();
  if (pid == 0) {
    const sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_socket, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[0])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_NETLINK, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAFNOSUPPORT),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog filter{6, const_cast<sock_filter*>(program)};
    if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) {
      ::_exit(77);
    }
    std::string without;
    names(without);
    ::_exit(without == with ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(pid, &status, 0) == pid);
  REQUIRE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) return ccl::test::skip("no seccomp filter here");
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("the fastest interface is the one whose speed the kernel says to be higher") {
  const fs::path root = fs::temp_directory_path() / fmt::format("ccl-speeds-{}", ::getpid());
  const auto add = [&](const std::string& name, const std::string& speed) {
    fs::create_directories(root / "class/net" / name);
    std::ofstream{root / "class/net" / name / "speed"} << speed << "\n";
  };
  add("eth0", "10000");
  add("eth1", "25000");
  add("ib0", "200000");
  add("down0", "400000");
  add("veth0", "-1");
  std::vector<Interface> all;
  for (const char* name : {"eth0", "eth1", "ib0", "down0", "veth0", "lo"}) {
    const bool own = std::string_view{name} == "lo";
    all.push_back({name,
                   *Address::parse(fmt::format("{}.0.0.{}:0", own ? 127 : 10, all.size() + 1)),
                   std::string_view{name} != "down0"});
  }
  all.push_back({"ib6", *Address::parse("[fd00::1]:0"), true});
  add("ib6", "800000");
  const auto faster = [&](std::size_t chosen) {
    const Interface* const found = faster_interface(all[chosen], all, root.string());
    return found == nullptr ? std::string{} : found->name;
  };
  CHECK(faster(0) == "ib0");
  CHECK(faster(1) == "ib0");
  CHECK(faster(2) == "");
  CHECK(faster(4) == "ib0");  // its own speed is unknown
  CHECK(faster(5) == "");     // memory of the host
  fs::remove_all(root);
}
