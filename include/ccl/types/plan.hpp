#pragma once

#include <ccl/types/word.hpp>

namespace ccl {

/// How one composition runs: numbers, all of them values. Equal on all ranks of a communicator.
struct Plan {
  int channels = 1;      // independent parts of the message, each with wires of its own
  int slot_count = 8;    // NCCL_STEPS
  Index slot_bytes = 0;  // of one step, a multiple of 128; 0: the protocol's default
  int slice_steps = 1;   // slots filled, posted and given back together
  int chunk_steps = 1;   // slots of a chunk: whole slices, at most half of slot_count
  /// On a GPU, of a message, that make one more channel worth it: more than the kernels' own idea
  /// of that where each channel costs calls of a proxy.
  Index channel_bytes = 0;
  friend bool operator==(const Plan&, const Plan&) = default;
};

}  // namespace ccl
