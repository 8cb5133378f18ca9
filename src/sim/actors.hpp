#pragma once

#include <ccl/detail/sim/program.hpp>

#include <cstddef>
#include <cstdint>

namespace ccl::detail {

/// One direction of a connection of one channel: a `Wire` with times in place of counts.
struct SimWire {
  int sender = -1, receiver = -1;  // ranks; -1: not known yet
  int route = 0;
  int route_there = -1;  // from the receiver's NIC or switch on; -1: both ends are on one node
  bool direct = true;    // the sender's lanes store to the other end; else a proxy moves it
  bool sender_waits = false, receiver_waits = false;
  float hop_us = 0, credit_us = 0;
  float cost = 1;                          // bytes of link time per byte of payload
  unsigned sent = 0, come = 0, taken = 0;  // slices; `come`: those whose arrival is known
  std::size_t slots = 0;                   // first index of its times
  double payload = 0;                      // bytes of all rounds
};

/// One channel of one rank.
struct SimRank {
  const SimStep* steps = nullptr;  // of its trace
  std::uint32_t step_count = 0, step = 0;
  Index done_bytes = 0;  // of the step
  int stage = 0, rank = 0, channel = 0;
  std::size_t in = 0, out = 0;  // first index of its wires in the table
  double free_us = 0;
  double quarter_us = -1, last_quarter_us = -1;  // begin and end of the middle half of its steps
};

}  // namespace ccl::detail
