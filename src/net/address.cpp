#include "net/address.hpp"

#include <ccl/comm/log.hpp>
#include <ccl/detail/runtime/settings.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "base/io/fd.hpp"
#include "base/io/file.hpp"
#include "base/io/os_error.hpp"
#include "net/name_lookup.hpp"
#include "settings/report.hpp"
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/un.h>

namespace ccl::detail::net {
namespace {

sockaddr_in& v4(sockaddr_storage& s) {
  return reinterpret_cast<sockaddr_in&>(s);
}
sockaddr_in6& v6(sockaddr_storage& s) {
  return reinterpret_cast<sockaddr_in6&>(s);
}
const sockaddr_in& v4(const sockaddr_storage& s) {
  return reinterpret_cast<const sockaddr_in&>(s);
}
const sockaddr_in6& v6(const sockaddr_storage& s) {
  return reinterpret_cast<const sockaddr_in6&>(s);
}

}  // namespace

Result<int> wanted_family() {
  CCL_TRY(const std::string family, setting_text("SOCKET_FAMILY"));
  return family == "AF_INET" ? AF_INET : family == "AF_INET6" ? AF_INET6 : 0;
}

Address::Address(const sockaddr* from, socklen_t bytes) : bytes_(bytes) {
  std::memcpy(&storage_, from, std::min<size_t>(bytes, sizeof storage_));
}

Address::Address(const WireAddress& from) {
  if (from.family == AF_INET) {
    v4(storage_).sin_family = AF_INET;
    v4(storage_).sin_port = htons(from.port);
    std::memcpy(&v4(storage_).sin_addr, from.ip, 4);
    bytes_ = sizeof(sockaddr_in);
  } else if (from.family == AF_INET6) {
    v6(storage_).sin6_family = AF_INET6;
    v6(storage_).sin6_port = htons(from.port);
    v6(storage_).sin6_scope_id = from.scope;
    std::memcpy(&v6(storage_).sin6_addr, from.ip, 16);
    bytes_ = sizeof(sockaddr_in6);
  } else if (from.family == AF_UNIX) {
    const auto* name = reinterpret_cast<const char*>(from.ip);
    *this = unix_name({name, strnlen(name, sizeof from.ip)});
  }
}

Address Address::unix_name(std::string_view name) {
  Address a;
  auto& un = reinterpret_cast<sockaddr_un&>(a.storage_);
  un.sun_family = AF_UNIX;
  name = name.substr(0, sizeof WireAddress{}.ip);
  std::memcpy(un.sun_path + 1, name.data(), name.size());
  a.bytes_ = socklen_t(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return a;
}

namespace {

cuda::std::unexpected<Error> no_address(std::string_view text, std::string_view why) {
  return fail(Errc::invalid_argument,
              fmt::format("\"{}\" is no address ({}); write host:port, or [address]:port for IPv6",
                          text, why));
}

}  // namespace

Result<HostAndPort> split_address(std::string_view text) {
  const auto colon = text.rfind(':');
  if (colon == text.npos) return no_address(text, "it has no port");
  HostAndPort out{std::string{text.substr(0, colon)}, 0};
  const std::string_view port = text.substr(colon + 1);
  const auto [end, ec] = std::from_chars(port.data(), port.data() + port.size(), out.port);
  if (ec != std::errc{} || end != port.data() + port.size() || out.port < 0 || out.port > 65535) {
    return no_address(text, "its port is not a number from 0 to 65535");
  }
  if (out.host.size() > 1 && out.host.front() == '[' && out.host.back() == ']') {
    out.host = out.host.substr(1, out.host.size() - 2);
  }
  if (out.host.empty()) return no_address(text, "it has no host");
  return out;
}

Result<Address> Address::parse(std::string_view text, int family, double limit_s) {
  if (text.starts_with("unix:")) return unix_name(text.substr(5));
  CCL_TRY(const HostAndPort given, split_address(text));
  CCL_TRY(Address out, look_up(given.host, family, limit_s));
  if (out.link_local() && v6(out.storage_).sin6_scope_id == 0) {
    return no_address(text,
                      "it is link-local and does not say of which interface; as in fe80::1%eth0");
  }
  out.set_port(given.port);
  return out;
}

int Address::port() const {
  if (family() == AF_INET) return ntohs(v4(storage_).sin_port);
  if (family() == AF_INET6) return ntohs(v6(storage_).sin6_port);
  return 0;
}

void Address::set_port(int port) {
  if (family() == AF_INET) v4(storage_).sin_port = htons(std::uint16_t(port));
  if (family() == AF_INET6) v6(storage_).sin6_port = htons(std::uint16_t(port));
}

bool Address::loopback() const {
  if (family() == AF_INET) return (ntohl(v4(storage_).sin_addr.s_addr) >> 24) == 127;
  if (family() == AF_INET6) return IN6_IS_ADDR_LOOPBACK(&v6(storage_).sin6_addr) != 0;
  return true;
}

bool Address::link_local() const {
  return family() == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&v6(storage_).sin6_addr);
}

WireAddress Address::wire() const {
  WireAddress out;
  out.family = std::uint16_t(family());
  out.port = std::uint16_t(port());
  if (family() == AF_INET) std::memcpy(out.ip, &v4(storage_).sin_addr, 4);
  if (family() == AF_INET6) {
    std::memcpy(out.ip, &v6(storage_).sin6_addr, 16);
    out.scope = v6(storage_).sin6_scope_id;
  }
  if (family() == AF_UNIX) {
    const auto* path = reinterpret_cast<const sockaddr_un&>(storage_).sun_path;
    const size_t head = offsetof(sockaddr_un, sun_path) + 1;
    if (bytes_ > head) std::memcpy(out.ip, path + 1, std::min(bytes_ - head, sizeof out.ip));
  }
  return out;
}

std::string Address::to_string() const {
  char text[INET6_ADDRSTRLEN] = {};
  if (family() == AF_INET) {
    ::inet_ntop(AF_INET, &v4(storage_).sin_addr, text, sizeof text);
    return fmt::format("{}:{}", text, port());
  }
  if (family() == AF_INET6) {
    ::inet_ntop(AF_INET6, &v6(storage_).sin6_addr, text, sizeof text);
    return fmt::format("[{}]:{}", text, port());
  }
  if (family() == AF_UNIX) {
    const WireAddress w = wire();
    const auto* name = reinterpret_cast<const char*>(w.ip);
    return fmt::format("unix:{}", std::string_view{name, strnlen(name, sizeof w.ip)});
  }
  return "nowhere";
}

namespace {

/// Lists the interfaces with IPv4 addresses, for a process without a netlink socket.
std::vector<Interface> list_by_ioctl() {
  std::vector<Interface> out;
  const Fd probe{::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
  ifreq all[64];
  ifconf conf{};
  conf.ifc_len = sizeof all;
  conf.ifc_req = all;
  if (!probe || ::ioctl(probe.get(), SIOCGIFCONF, &conf) != 0) return out;
  for (std::size_t n = 0; n < std::size_t(conf.ifc_len) / sizeof all[0]; ++n) {
    ifreq flags = all[n];  // name and address
    if (::ioctl(probe.get(), SIOCGIFFLAGS, &flags) != 0) continue;
    if ((flags.ifr_flags & IFF_UP) == 0 || all[n].ifr_addr.sa_family != AF_INET) continue;
    out.push_back({std::string{all[n].ifr_name, strnlen(all[n].ifr_name, IFNAMSIZ)},
                   Address{&all[n].ifr_addr, sizeof(sockaddr_in)},
                   (flags.ifr_flags & IFF_RUNNING) != 0});
  }
  return out;
}

}  // namespace

std::vector<Interface> list_interfaces() {
  std::vector<Interface> out;
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) {
    const int os_code = errno;
    static_cast<void>(ccl::detail::descriptor_hint(os_code));
    static std::atomic<bool> reported{false};
    if (out = list_by_ioctl(); !out.empty() && !reported.exchange(true)) {
      log_info(LogPart::net, "cannot list interfaces by netlink ({}); took those with IPv4",
               std::strerror(os_code));
    }
    return out;
  }
  for (const ifaddrs* at = all; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr || (at->ifa_flags & IFF_UP) == 0) continue;
    const bool runs = (at->ifa_flags & IFF_RUNNING) != 0;
    const int family = at->ifa_addr->sa_family;
    if (family == AF_INET) {
      out.push_back({at->ifa_name, Address{at->ifa_addr, sizeof(sockaddr_in)}, runs});
    } else if (family == AF_INET6 && runs) {  // an idle interface may have no usable address yet
      const Address address{at->ifa_addr, sizeof(sockaddr_in6)};
      if (address.link_local()) continue;  // other hosts have other scope numbers
      out.push_back({at->ifa_name, address});
    }
  }
  ::freeifaddrs(all);
  return out;
}

std::vector<Interface> choose_interfaces(const std::vector<Interface>& all, std::string_view names,
                                         int family) {
  const bool exclude = names.starts_with('^');
  if (exclude) names.remove_prefix(1);
  const bool exact = names.starts_with('=');
  if (exact) names.remove_prefix(1);
  const auto listed = [&](std::string_view name) {
    for (std::string_view rest = names; !rest.empty();) {
      const auto comma = rest.find(',');
      const auto one = rest.substr(0, comma);
      if (!one.empty() && (exact ? name == one : name.starts_with(one))) return true;
      rest = comma == rest.npos ? std::string_view{} : rest.substr(comma + 1);
    }
    return false;
  };
  constexpr int docker = 2, idle = 3, loopback = 4, ranks = 5;
  const auto rank = [](const Interface& i) {
    if (i.name == "lo") return loopback;
    if (i.name.starts_with("docker"))
      return i.runs ? docker : ranks;  // without a carrier if no container runs
    return !i.runs ? idle : i.name.starts_with("ib") ? 0 : 1;
  };
  std::vector<Interface> out;
  for (int want = 0; want < ranks; ++want) {
    for (const int f : {AF_INET, AF_INET6}) {
      for (const Interface& i : all) {
        if (i.address.family() != f || (family != 0 && f != family) || rank(i) != want) continue;
        if (want == idle && !out.empty()) continue;
        if (names.empty() ? want >= docker && !out.empty() : listed(i.name) == exclude) continue;
        out.push_back(i);
      }
    }
  }
  return out;
}

namespace {

/// Mb/s of an interface; 0: the kernel does not know.
long speed_of(const std::string& name, const std::string& sysfs) {
  const std::string text =
      ccl::detail::first_line(fmt::format("{}/class/net/{}/speed", sysfs, name));
  return std::max(0L, std::strtol(text.c_str(), nullptr, 10));
}

}  // namespace

const Interface* faster_interface(const Interface& chosen, const std::vector<Interface>& all,
                                  const std::string& sysfs) {
  if (chosen.address.loopback()) return nullptr;  // memory of the host
  const Interface* best = nullptr;
  long most = speed_of(chosen.name, sysfs);
  for (const Interface& one : all) {
    if (!one.runs || one.address.family() != chosen.address.family()) continue;
    const long speed = speed_of(one.name, sysfs);
    if (speed <= most) continue;
    most = speed;
    best = &one;
  }
  return best;
}

namespace {

/// Logs once in a process that data does not take the fastest interface.
void say_what_is_faster(const Interface& chosen, const std::vector<Interface>& all) {
  static std::atomic<bool> said{false};
  if (said.exchange(true)) return;  // every edge asks, and the kernel's files are slow
  const Interface* const faster = faster_interface(chosen, all);
  if (faster == nullptr) return;
  log_info(
      LogPart::net,
      "data goes by {} ({}), which has reached the root; {} ({}) is faster, and {}={} takes it "
      "if the hosts reach each other by it",
      chosen.name, chosen.address.to_string(), faster->name, faster->address.to_string(),
      variable_of("SOCKET_IFNAME"), faster->name);
}

/// Returns the interface with this address.
std::optional<Interface> interface_at(const std::string& address, int family) {
  if (address.empty()) return {};
  const auto all = list_interfaces();
  for (const Interface& one : all) {
    const bool fits = family == 0 || one.address.family() == family;
    if (!fits || one.address.to_string() != address) continue;
    say_what_is_faster(one, all);
    return one;
  }
  return {};
}

}  // namespace

Result<std::vector<Interface>> data_interfaces(std::size_t most, const std::string& reached_at) {
  CCL_TRY(const int family, wanted_family());
  if (!setting_given("SOCKET_IFNAME")) {
    if (auto known = interface_at(reached_at, family)) return std::vector{*std::move(known)};
  }
  CCL_TRY(Interface first, local_interface());
  std::vector<Interface> out{std::move(first)};
  if (!setting_given("SOCKET_IFNAME")) return out;
  CCL_TRY(const std::string names, setting_text("SOCKET_IFNAME"));
  for (const Interface& i : choose_interfaces(list_interfaces(), names, family)) {
    const bool same_family = i.address.family() == out.front().address.family();
    const bool known = std::any_of(out.begin(), out.end(),
                                   [&](const Interface& has) { return has.name == i.name; });
    if (out.size() < most && same_family && !known) out.push_back(i);
  }
  return out;
}

Result<Interface> local_interface() {
  CCL_TRY(const int family, wanted_family());
  CCL_TRY(const std::string names, setting_text("SOCKET_IFNAME"));
  const auto all = list_interfaces();
  const auto fit = choose_interfaces(all, names, family);
  if (!fit.empty()) return fit.front();
  std::string have;
  for (const auto& i : all) have += fmt::format(" {}={}", i.name, i.address.to_string());
  Error error;
  error.code = Errc::network;
  error.what = fmt::format(
      "no network interface fits ({}=\"{}\", {}={}); those that are up:{}",
      variable_of("SOCKET_IFNAME"), names, variable_of("SOCKET_FAMILY"),
      family == AF_INET ? "AF_INET"
      : family != 0     ? "AF_INET6"
                        : "any",
      have.empty() ? " none; for ranks of one host `ip link set lo up` is enough" : have);
  return fail(ccl::detail::with_shortage(std::move(error)));
}

Result<Address> local_address() {
  CCL_TRY(const Interface mine, local_interface());
  return mine.address;
}

namespace {

/// Returns a global address of this host. `mine` is the link-local end of the route to `peer`, and
/// its scope number is not valid on other hosts.
Result<Address> global_address(const Address& mine, const Address& peer) {
  CCL_TRY(const Interface best, local_interface());
  const bool same_host = std::memcmp(mine.wire().ip, peer.wire().ip, sizeof WireAddress{}.ip) == 0;
  if (same_host || !best.address.loopback()) return best.address;
  return fail(Errc::network,
              fmt::format("this host reaches {} by a link-local address and has no other (it would "
                          "mean nothing on other hosts); give its interface a unique-local one, of "
                          "fd00::/8, or IPv4",
                          peer.to_string()));
}

}  // namespace

Result<Address> local_address_towards(const Address& peer) {
  if (setting_given("SOCKET_IFNAME")) return local_address();
  // A connect of a datagram socket sends nothing. It only looks up the route.
  const Fd probe{::socket(peer.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0)};
  sockaddr_storage mine{};
  socklen_t bytes = sizeof mine;
  if (!probe || ::connect(probe.get(), peer.data(), peer.bytes()) != 0 ||
      ::getsockname(probe.get(), reinterpret_cast<sockaddr*>(&mine), &bytes) != 0) {
    return local_address();
  }
  Address out{reinterpret_cast<const sockaddr*>(&mine), bytes};
  if (out.link_local()) return global_address(out, peer);
  out.set_port(0);
  return out;
}

}  // namespace ccl::detail::net
