#pragma once

#include <ccl/detail/runtime/bootstrap.hpp>

#include <vector>

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
  /// Returns the next ranks of the ring that have not departed, in order, up to the first that is
  /// connected. Empty if the next one is, or if this rank is alone.
  std::vector<int> not_connected(const net::Lock&) const;
  bool is_connected(const net::Lock&, int peer) const;
  /// Records which of the next ranks have departed, or connects to the next one. Returns false if
  /// no further rank is to be tried. Releases the lock meanwhile.
  bool connect_next(net::Lock&);
  bool connect(net::Lock&, int peer);
  void record_departure(const net::Lock&, int peer);

  Bootstrap::Core& core_;
  bool connecting_ = false;
};

}  // namespace ccl::detail
