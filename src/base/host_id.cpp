#include <ccl/detail/runtime/host_id.hpp>
#include <ccl/detail/runtime/settings.hpp>

#include <fmt/format.h>

#include <string_view>

#include "base/io/file.hpp"
#include <unistd.h>

namespace ccl::detail {
namespace {

// FNV-1a, 64 bits, then a finaliser, since the inputs differ in few bits.
std::uint64_t hash(std::string_view s) {
  std::uint64_t h = 0xcbf2'9ce4'8422'2325u;
  for (const char c : s) h = (h ^ static_cast<unsigned char>(c)) * 0x0000'0100'0000'01b3u;
  h = (h ^ h >> 33) * 0xff51'afd7'ed55'8ccdu;
  h = (h ^ h >> 33) * 0xc4ce'b9fe'1a85'ec53u;
  return h ^ h >> 33;
}

std::string link(const char* path) {
  char target[128] = {};
  const auto n = ::readlink(path, target, sizeof target - 1);
  return n > 0 ? std::string(target, size_t(n)) : std::string{};
}

std::string boot_id() {
  return first_line("/proc/sys/kernel/random/boot_id");
}

}  // namespace

std::string host_name() {
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  return name[0] == 0 ? "localhost" : name;
}

std::uint64_t host_hash() {
  const auto given = setting_text("HOSTID");
  if (given && !given->empty()) return hash(*given);
  return hash(fmt::format("{} {} {}", host_name(), boot_id(), link("/proc/self/ns/net")));
}

std::uint64_t memory_domain() {
  return hash(fmt::format("{} {}", boot_id(), link("/proc/self/ns/net")));
}

std::uint64_t pid_hash() {
  return hash(fmt::format("{} {} {} {}", host_hash(), memory_domain(), link("/proc/self/ns/pid"),
                          ::getpid()));
}

}  // namespace ccl::detail
