#pragma once

#include <cstdint>
#include <string>

namespace ccl::detail {

/// Name of this host, for messages.
std::string host_name();
/// Hash that is equal on processes of one host, as the topology sees it. It is made from
/// CCL_HOSTID, or from the host's name, the boot id and the network namespace.
std::uint64_t host_hash();
/// Hash that is equal on processes that reach each other's Unix sockets, by which memory is given.
/// It is made from the boot id and the network namespace.
std::uint64_t memory_domain();
/// Hash that is equal within one address space. It is made from `host_hash`, pid namespace and pid.
std::uint64_t pid_hash();

}  // namespace ccl::detail
