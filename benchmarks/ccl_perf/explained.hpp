#pragma once

#include <array>
#include <span>
#include <string>

namespace ccl::perf {

constexpr int explained_calls = 15;  // of each case, whose median counts
constexpr int part_count = 5;
/// Parts of a call's time in us: launch, until the wires are open, first hop, steady state, tail.
using PartTimes = std::array<double, part_count>;

/// Measurements of one rank on its GPU. Trivially copyable, because ranks send it to the parent.
struct RankPhases {
  PartTimes us{};            // medians over the calls
  bool receives = false;     // false: no data came to the rank
  double link_first_us = 0;  // as in `Explained`
  double link_gbs = 0;
  double steady_bytes = 0;  // that came in the steady state; 0: not known, or none
  double data_bytes = 0;    // that came in the first hop and the steady state; 0: by `steady_bytes`
};

/// Parts of a call's time in us, and what the link between two ranks allows.
struct Explained {
  double launch_us = 0;         // from the call to the first lane
  double before_us = 0;         // until the wires are open; GPUs: and the launch before has ended
  double first_hop_us = 0;      // until the first slice that came is used
  double steady_us = 0;         // until the last slice that came is used
  double tail_us = 0;           // until the lanes end
  double link_first_us = 0;     // a message of a slice between two ranks; 0: not measured
  double link_gbs = 0;          // bandwidth of a large message between two ranks; 0: not measured
  double steady_gbs = 0;        // what came in the steady state; 0: it has one slice, or not known
  double data_gbs = 0;          // what came in the first hop and the steady state; 0: not known
  bool on_gpus = false;         // true: kernels noted the phases
  bool plain_launches = false;  // true: the row is of a graph, the phases are of calls without one

  double total_us() const { return launch_us + before_us + first_hop_us + steady_us + tail_us; }
  /// Returns one line: each part, its share, and its distance from the limit of the link.
  std::string text() const;
};

/// Returns the medians over the ranks that receive data, or over all if none does. There is at
/// least one rank. `plain_launches` is false.
Explained explained_of(std::span<const RankPhases> ranks);

}  // namespace ccl::perf
