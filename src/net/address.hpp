#pragma once

#include <ccl/types/result.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <sys/socket.h>

namespace ccl::detail::net {

/// By CCL_SOCKET_FAMILY: AF_INET, AF_INET6 or, unset, 0: any.
Result<int> wanted_family();

/// An address as it travels inside ids and messages. Trivially copyable.
struct WireAddress {
  std::uint16_t family = 0;  // AF_INET, AF_INET6, AF_UNIX
  std::uint16_t port = 0;    // host byte order
  std::uint32_t scope = 0;   // of link-local IPv6
  std::uint8_t ip[16] = {};  // network order; AF_UNIX: the abstract name
};

/// Where a socket listens: IPv4, IPv6, or an abstract Unix name (of 16 bytes at most).
class Address {
 public:
  Address() = default;
  Address(const sockaddr* from, socklen_t bytes);
  explicit Address(const WireAddress& from);
  /// "10.0.0.1:80", "[::1]:80", "node7:80" (resolved), "unix:name". `family` narrows names; 0: any.
  /// `Errc::network` where the name is not known, which it may be later.
  static Result<Address> parse(std::string_view text, int family = 0);
  static Address unix_name(std::string_view name);  // abstract: no file, gone with its socket

  int family() const { return storage_.ss_family; }
  int port() const;
  void set_port(int port);
  bool loopback() const;
  /// IPv6 of one link: its scope is the number of an interface of this host.
  bool link_local() const;
  WireAddress wire() const;
  std::string to_string() const;
  const sockaddr* data() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t bytes() const { return bytes_; }
  friend bool operator==(const Address& a, const Address& b) {
    return a.to_string() == b.to_string();
  }

 private:
  sockaddr_storage storage_{};
  socklen_t bytes_ = 0;
};

/// A network interface with one of its addresses (port 0).
struct Interface {
  std::string name;
  Address address;
  bool runs = true;  // false: it is up, but has no carrier, or the kernel has not noticed it yet
};

/// Interfaces that are up, best first: InfiniBand, then others, then docker's, then loopback; the
/// last two only when there is nothing else. Before loopback comes one that does not run: that of a
/// container that began a moment ago is the way to other hosts, and leads to this one anyway.
/// `names` as CCL_SOCKET_IFNAME; `family` 0: any.
std::vector<Interface> choose_interfaces(const std::vector<Interface>& all, std::string_view names,
                                         int family);
std::vector<Interface> list_interfaces();
/// The interface to listen on: by CCL_SOCKET_IFNAME and CCL_SOCKET_FAMILY.
Result<Interface> local_interface();
/// Those to spread data over: all that CCL_SOCKET_IFNAME names, each with its best address, at most
/// `most`. Without it one, as nobody says that the others lead to the peers.
Result<std::vector<Interface>> data_interfaces(std::size_t most);
/// The address of `local_interface`, port 0.
Result<Address> local_address();
/// As above; without CCL_SOCKET_IFNAME, the local end of the route to `peer`, unless link-local.
Result<Address> local_address_towards(const Address& peer);

}  // namespace ccl::detail::net
