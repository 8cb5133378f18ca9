#pragma once

// Several hosts on one machine: network namespaces on a bridge. Needs root and iproute2.
#include <fmt/format.h>

#include <cstdlib>
#include <string>

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

namespace ccl::test {

inline bool sh(const std::string& command) {
  return std::system((command + " 2>/dev/null").c_str()) == 0;
}

/// Hosts 10.99.0.1, 10.99.0.2 and so on, and the switch between them.
class Lan {
 public:
  explicit Lan(int hosts = 3) : hosts_{hosts}, name_{fmt::format("ccl{}", ::getpid())} {
    good_ =
        sh(fmt::format("ip netns add {0} && ip -n {0} link add br0 type bridge && "
                       "ip -n {0} link set br0 up",
                       name_));
    for (int h = 0; good_ && h < hosts; ++h) {
      good_ = sh(
          fmt::format("ip netns add {0}h{1} && ip -n {0} link add port{1} type veth peer name eth0 "
                      "netns {0}h{1} && "
                      "ip -n {0} link set port{1} master br0 && ip -n {0} link set port{1} up && "
                      "ip -n {0}h{1} link set lo up && ip -n {0}h{1} link set eth0 up && "
                      "ip -n {0}h{1} addr add {2}/24 dev eth0",
                      name_, h, address(h)));
    }
  }
  ~Lan() {
    for (int h = 0; h < hosts_; ++h) sh(fmt::format("ip netns del {}h{}", name_, h));
    sh(fmt::format("ip netns del {}", name_));
  }
  Lan(const Lan&) = delete;
  Lan& operator=(const Lan&) = delete;

  bool good() const { return good_; }
  static std::string address(int host) { return fmt::format("10.99.0.{}", host + 1); }
  /// Moves this process to a host.
  void enter(int host) const {
    const int fd =
        ::open(fmt::format("/run/netns/{}h{}", name_, host).c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0 || ::setns(fd, CLONE_NEWNET) != 0) ::_exit(90);
    ::close(fd);
  }
  bool in(int host, const std::string& commands) const {
    return sh(fmt::format("ip netns exec {}h{} sh -ec '{}'", name_, host, commands));
  }
  void unplug(int host) const { sh(fmt::format("ip -n {} link set port{} down", name_, host)); }

 private:
  int hosts_;
  std::string name_;
  bool good_;
};

/// Why a case skips: `Lan::good` is false.
inline constexpr const char* no_lan = "network namespaces cannot be made here";

}  // namespace ccl::test
