#pragma once

#include <atomic>
#include <cstdint>

namespace ccl::detail {

/// Events of the networks of this process, for its metrics.
struct NetworkEvents {
  std::atomic<std::uint64_t> retries{0};    // attempts to make an RDMA connection anew
  std::atomic<std::uint64_t> failovers{0};  // failed RDMA connections that go on
};
inline NetworkEvents network_events;

}  // namespace ccl::detail
