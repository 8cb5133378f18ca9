#include <ccl/peer_info.hpp>
#include <ccl/settings.hpp>

#include <fmt/format.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include "ib/presence.hpp"
#include "numa.hpp"
#include "os_error.hpp"
#include <sys/stat.h>
#include <unistd.h>

namespace ccl {
namespace {

/// FNV-1a, then a finaliser, since the inputs differ in few bits.
cuda::std::uint64_t hash(const std::string& text) {
  cuda::std::uint64_t h = 0xcbf2'9ce4'8422'2325u;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x0000'0100'0000'01b3u;
  h = (h ^ h >> 33) * 0xff51'afd7'ed55'8ccdu;
  h = (h ^ h >> 33) * 0xc4ce'b9fe'1a85'ec53u;
  return h ^ h >> 33;
}

/// "pid:[4026531836]" for "/proc/self/ns/pid"; empty where there is no /proc.
std::string link_text(const char* path) {
  char text[256];
  const ssize_t length = ::readlink(path, text, sizeof text);
  return length > 0 ? std::string(text, std::size_t(length)) : std::string();
}

std::string first_line(const char* path) {
  std::string line;
  std::ifstream{path} >> line;
  return line;
}

}  // namespace

Result<PeerInfo> local_peer_info(int rank, int device) {
  PeerInfo info;
  info.rank = rank;
  info.device = device;
  if (::gethostname(info.host, sizeof info.host - 1) != 0 && errno != ENAMETOOLONG) {
    const int os_code = errno;
    Error error = detail::os_error(
        Errc::system, fmt::format("this host has no name ({}); set one", std::strerror(os_code)),
        os_code);
    error.rank = rank;
    return fail(std::move(error));
  }
  info.host[sizeof info.host - 1] = '\0';
  const char* id = std::getenv("CCL_HOSTID");
  if (id == nullptr || *id == '\0') id = std::getenv("NCCL_HOSTID");
  const std::string host = id != nullptr && *id != '\0'
                               ? std::string(id)
                               : first_line("/proc/sys/kernel/random/boot_id") + ' ' + info.host +
                                     ' ' + link_text("/proc/self/ns/net");
  info.host_hash = hash(host);
  info.pid = int(::getpid());
  info.pid_hash = hash(fmt::format("{} {} {}", host, info.pid, link_text("/proc/self/ns/pid")));
  if (device < 0) info.numa = detail::bound_numa_node();
  for (const char* file : {"TOPO_FILE", "TOPO_DUMP_FILE", "GRAPH_FILE", "GRAPH_DUMP_FILE"}) {
    info.looks_closely |= setting_given(file) ? 1 : 0;
  }
  struct stat shm {};
  if (::stat("/dev/shm", &shm) == 0) info.shm_device = cuda::std::uint64_t(shm.st_dev);
  CCL_TRY(const detail::IbPresence ib, detail::ib_presence());
  info.ib_kinds = ib.kinds;
  info.ib_absence = int(ib.absence);
  return info;
}

}  // namespace ccl
