#pragma once

#include <ccl/types/peer_info.hpp>
#include <ccl/types/result.hpp>

#include <cstdint>
#include <vector>

#include "transport/p2p/check.hpp"

namespace ccl::detail {

/// One rank's report on its path to the GPU of another rank of its host, in one byte.
struct PathReport {
  PathFault fault = PathFault::none;
  bool nvlink = false;  // or the same GPU
  bool relays = false;  // it may keep memory on that GPU for others
  bool untried = false;
  bool on_loan = false;  // that rank must lend the memory, as the process does not see the GPU

  std::uint8_t byte() const;
  static PathReport of(std::uint8_t byte);
};

/// Reports of all ranks of a host on each other, by their index among these ranks.
class PathTable {
 public:
  explicit PathTable(int places)
      : places_{places}, said_(std::size_t(places) * std::size_t(places)) {}
  int places() const { return places_; }
  PathReport& at(int from, int to) { return said_[std::size_t(from * places_ + to)]; }
  const PathReport& at(int from, int to) const { return said_[std::size_t(from * places_ + to)]; }
  /// Fault of a path, by the reports of both ends.
  PathFault fault(int a, int b) const;
  /// True if the path must be tried: neither end excludes it, and one does not know it.
  bool to_try(int a, int b) const;
  /// Rank whose GPU relays between those of `a` and `b`, with NVLink to both, if they have no
  /// working NVLink to each other; -1: none. Several relays share the pairs.
  int relay(int a, int b) const;
  /// True if rank `m` lends memory to one that relays over its GPU.
  bool lends(int m) const;

 private:
  int places_;
  std::vector<PathReport> said_;
};

/// True if CCL_P2P_EXCLUDE names this pair, by ranks or by the bus ids of their GPUs.
Result<bool> p2p_excludes(const PeerInfo& a, const PeerInfo& b);

}  // namespace ccl::detail
