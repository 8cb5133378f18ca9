#pragma once

#include <string>

namespace ccl::perf {

/// Parts of a call's time in us, and what the link between two ranks allows.
struct Explained {
  double launch_us = 0;      // from the call to the first lane
  double before_us = 0;      // until the wires are open
  double first_hop_us = 0;   // until the first slice that came is used
  double steady_us = 0;      // until the last slice that came is used
  double tail_us = 0;        // until the lanes end
  double link_first_us = 0;  // a message of a slice between two ranks; 0: not measured
  double link_gbs = 0;       // bandwidth of a large message between two ranks; 0: not measured
  double steady_gbs = 0;     // what came in the steady state; 0: it has one slice

  double total_us() const { return launch_us + before_us + first_hop_us + steady_us + tail_us; }
  /// Returns one line: each part, its share, and its distance from the limit of the link.
  std::string text() const;
};

}  // namespace ccl::perf
