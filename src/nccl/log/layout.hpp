#pragma once

#include <ccl/comm/communicator.hpp>

namespace ccl::detail::nccl {

/// Logs the networks of this process once (NET), and the channels, rings and trees of a
/// communicator that has been created (INIT, GRAPH), in NCCL's lines.
void log_layout(const Communicator& comm);

}  // namespace ccl::detail::nccl
