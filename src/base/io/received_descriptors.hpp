#pragma once

#include <vector>

#include "base/io/fd.hpp"
#include <sys/socket.h>

namespace ccl::detail {

/// Takes all descriptors beside a received message. The kernel has opened as many as the room for
/// them holds, which may be more than are expected: `CMSG_SPACE` of one has room for two.
std::vector<Fd> received_descriptors(msghdr& message);

}  // namespace ccl::detail
