#pragma once

#include <atomic>
#include <cstdint>

namespace ccl::detail {

/// Events of the networks of this process, for its metrics.
struct NetworkEvents {
  std::atomic<std::uint64_t> retries{0};    // connections that were made anew after a failure
  std::atomic<std::uint64_t> failovers{0};  // failures after which data goes on over other ports
};
inline NetworkEvents network_events;

}  // namespace ccl::detail
