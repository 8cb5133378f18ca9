#pragma once

#include <ccl/types/peer_info.hpp>
#include <ccl/types/result.hpp>

#include <cstdint>
#include <vector>

#include "transport/p2p/check.hpp"

namespace ccl::detail {

/// What one rank says of its way to the GPU of another rank of its host, in one byte.
struct PathReport {
  PathFault fault = PathFault::none;
  bool nvlink = false;  // or the same GPU
  bool relays = false;  // it may keep memory on that GPU, for others to read
  bool untried = false;

  std::uint8_t byte() const;
  static PathReport of(std::uint8_t byte);
};

/// What all ranks of a host have said of each other, by their places among these ranks.
class PathTable {
 public:
  explicit PathTable(int places)
      : places_{places}, said_(std::size_t(places) * std::size_t(places)) {}
  int places() const { return places_; }
  PathReport& at(int from, int to) { return said_[std::size_t(from * places_ + to)]; }
  const PathReport& at(int from, int to) const { return said_[std::size_t(from * places_ + to)]; }
  /// Both ends must say so.
  PathFault fault(int a, int b) const;
  /// Whether their path must be tried: neither is against it, and one does not know it.
  bool to_try(int a, int b) const;
  /// Whose GPU is between those of `a` and `b`, on NVLink to both, where they have none to each
  /// other that works; -1: nobody's. Several share the pairs.
  int relay(int a, int b) const;

 private:
  int places_;
  std::vector<PathReport> said_;
};

/// Whether CCL_P2P_EXCLUDE names this pair: by ranks, or by the bus ids of their GPUs.
Result<bool> p2p_excludes(const PeerInfo& a, const PeerInfo& b);

}  // namespace ccl::detail
