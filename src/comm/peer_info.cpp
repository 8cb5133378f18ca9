#include <ccl/detail/runtime/host_id.hpp>
#include <ccl/detail/runtime/settings.hpp>
#include <ccl/types/peer_info.hpp>

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <type_traits>
#include <utility>

#include "base/io/os_error.hpp"
#include "base/numa.hpp"
#include "transport/ib/verbs/presence.hpp"
#include "transport/plug_in/presence.hpp"
#include <unistd.h>

namespace ccl {

static_assert(std::has_unique_object_representations_v<PeerInfo>, "padding would be sent");

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
  info.host_hash = detail::host_hash();
  info.memory_domain = detail::memory_domain();
  info.pid = int(::getpid());
  info.pid_hash = detail::pid_hash();
  if (device < 0) info.numa = detail::bound_numa_node();
  for (const char* file : {"TOPO_FILE", "TOPO_DUMP_FILE", "GRAPH_FILE", "GRAPH_DUMP_FILE"}) {
    info.looks_closely |= detail::setting_given(file) ? 1 : 0;
  }
  CCL_TRY(const detail::IbPresence ib, detail::ib_presence());
  info.ib_kinds = ib.kinds;
  info.ib_absence = int(ib.absence);
  CCL_TRY(const detail::NetPlugInPresence net, detail::net_plug_in_presence());
  info.net_plug_in = net.id;
  info.net_plug_in_only = net.only ? 1 : 0;
  info.net_absence = int(net.absence);
  return info;
}

}  // namespace ccl
