#pragma once

#include <ccl/detail/runtime/bootstrap.hpp>

#include "net/engine.hpp"

namespace ccl::detail {

/// Connections between the ranks that stay when others have departed. A departed rank forwards
/// nothing, so the ring falls apart: a rank would learn of no further departure, loss or failure of
/// the ranks behind it. Each rank therefore connects to the next one that stays.
class StayingRanks {
 public:
  explicit StayingRanks(Bootstrap::Core& core) : core_{core} {}

  /// Connects to the next staying rank in a thread of its own, unless it is connected. A rank that
  /// does not listen any more counts as departed. The network thread calls it from time to time,
  /// also after a failure, which the next rank then receives.
  void join(const net::Lock&) noexcept;

 private:
  /// Returns the next rank of the ring that has not departed; this rank itself if it is alone.
  int next(const net::Lock&) const;
  bool is_connected(const net::Lock&, int peer) const;
  /// Connects to `peer`, or records that it has departed. Returns false if no further rank is to be
  /// tried. Releases the lock meanwhile.
  bool connect(net::Lock&, int peer);

  Bootstrap::Core& core_;
  bool connecting_ = false;
};

}  // namespace ccl::detail
