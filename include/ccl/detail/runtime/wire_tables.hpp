#pragma once

#include <ccl/types/plan.hpp>
#include <ccl/types/position.hpp>
#include <ccl/types/wire.hpp>

namespace ccl::detail {

/// Progress of a channel through the messages of one peer and direction, during an exchange. Then
/// it is free, and a short exchange of CPU lanes leaves a count of the wire there.
struct Cursor {
  int message = 0;  // `seen`: no message
  Index done = 0;   // bytes of that message's part of the channel

  /// `done` is the latest count that this rank has read of the wire to the peer (`drained`), or of
  /// the one from it (`posted`, acquired). The true count is that or higher.
  static constexpr int seen = -1;
};

/// Tables that a launch over wires reads. Pointers are host addresses for CPU lanes and device
/// addresses on a GPU.
struct WireTables {
  const Wire* in = nullptr;        // wires from peers: `columns` for each channel
  const Wire* out = nullptr;       // wires to peers
  const int* column_of = nullptr;  // column of each rank; null: its number
  int columns = 0;
  const RingPosition* rings = nullptr;  // one for each channel
  const TreePosition* trees = nullptr;  // one for each channel; on a GPU, of all roots
  const HostPosition* hosts = nullptr;  // one for each channel; null without a network that reduces
  Cursor* cursors = nullptr;  // of exchanges: channels * ranks for sends, then for receives
  bool proxied = false;       // a proxy carries some wires
  bool unproxied = false;     // no proxy carries some wires
};

}  // namespace ccl::detail
