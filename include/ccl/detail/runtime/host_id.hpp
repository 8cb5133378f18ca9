#pragma once

#include <cstdint>
#include <string>

namespace ccl::detail {

/// This host's name, for messages.
std::string host_name();
/// Equal where two processes may share memory and talk over Unix sockets: of CCL_HOSTID, else of
/// boot id and network namespace.
std::uint64_t host_hash();
/// Equal within one address space: of host_hash, pid namespace and pid.
std::uint64_t pid_hash();

}  // namespace ccl::detail
