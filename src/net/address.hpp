#pragma once

#include <ccl/types/result.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <sys/socket.h>

namespace ccl::detail::net {

/// Returns AF_INET or AF_INET6 as CCL_SOCKET_FAMILY sets, or 0 (any) without it.
Result<int> wanted_family();

/// Address inside ids and messages. Trivially copyable.
struct WireAddress {
  std::uint16_t family = 0;  // AF_INET, AF_INET6, AF_UNIX
  std::uint16_t port = 0;    // host byte order
  std::uint32_t scope = 0;   // scope of a link-local IPv6 address
  std::uint8_t ip[16] = {};  // network order; AF_UNIX: the abstract name
};

/// Address of a socket: IPv4, IPv6, or an abstract Unix name of at most 16 bytes.
class Address {
 public:
  Address() = default;
  Address(const sockaddr* from, socklen_t bytes);
  explicit Address(const WireAddress& from);
  /// Parses "10.0.0.1:80", "[::1]:80", "node7:80" (resolved) or "unix:name". `family` restricts
  /// resolved names; 0 allows any. Fails with `Errc::network` if the name cannot be resolved, and
  /// with `Errc::timed_out` if the name service does not answer within `limit_s` seconds.
  static Result<Address> parse(std::string_view text, int family = 0, double limit_s = 60);
  static Address unix_name(std::string_view name);  // abstract: no file, ends with its socket

  int family() const { return storage_.ss_family; }
  int port() const;
  void set_port(int port);
  bool loopback() const;
  /// True for a link-local IPv6 address. Its scope is the index of an interface of this host.
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

struct HostAndPort {
  std::string host;  // without the brackets of an IPv6 address
  int port = 0;
};
/// Splits "node7:80", "10.0.0.1:80" or "[::1]:80". Looks no name up. Fails with
/// `Errc::invalid_argument`.
Result<HostAndPort> split_address(std::string_view text);

/// Network interface with one of its addresses (port 0).
struct Interface {
  std::string name;
  Address address;
  bool runs = true;  // false: it is up without a carrier, or the kernel has not detected one yet
};

/// Returns the interface of `all` that is faster than `chosen` and of its family, the fastest
/// first, or null. The kernel's files below `sysfs` have the speeds; those that have none do not
/// count.
const Interface* faster_interface(const Interface& chosen, const std::vector<Interface>& all,
                                  const std::string& sysfs = "/sys");

/// Returns the interfaces that match, best first. `names` has the form of CCL_SOCKET_IFNAME;
/// `family` 0 allows any. The order is:
/// - InfiniBand;
/// - other interfaces;
/// - if there is none of these: Docker's, then one without a carrier, then loopback.
///
/// The interface of a container that has just started has no carrier for a moment.
std::vector<Interface> choose_interfaces(const std::vector<Interface>& all, std::string_view names,
                                         int family);
std::vector<Interface> list_interfaces();
/// Returns the interface to listen on, by CCL_SOCKET_IFNAME and CCL_SOCKET_FAMILY.
Result<Interface> local_interface();
/// Returns the interfaces for data: at most `most` that CCL_SOCKET_IFNAME names, each with its best
/// address. Without that setting it returns one, because others may not lead to the peers: that of
/// the address `reached_at` ("10.0.0.1:0"), if there is one, else `local_interface`.
Result<std::vector<Interface>> data_interfaces(std::size_t most, const std::string& reached_at);
/// Returns the address of `local_interface` with port 0.
Result<Address> local_address();
/// Returns the local address of the route to `peer`. With CCL_SOCKET_IFNAME it returns
/// `local_address`. A link-local address is replaced by a global one.
Result<Address> local_address_towards(const Address& peer);

}  // namespace ccl::detail::net
