#pragma once

#include <ccl/types/word.hpp>

namespace ccl {

/// Numbers that determine how a composition runs. Equal on all ranks of a communicator.
struct Plan {
  int channels = 1;      ///< independent parts of the message, each with its own wires
  int slot_count = 8;    ///< slots of a wire, a power of two; NCCL_STEPS
  Index slot_bytes = 0;  ///< bytes of one step, a multiple of 128; 0: default of the protocol
  int slice_steps = 1;   ///< slots that are filled, posted and returned together
  int chunk_steps = 1;   ///< slots of a chunk: whole slices, at most half of slot_count
  /// Minimum message bytes for each channel on a GPU. The larger of this and the kernels' own
  /// default applies. Set where each channel costs calls of a proxy.
  Index channel_bytes = 0;
  friend bool operator==(const Plan&, const Plan&) = default;
};

}  // namespace ccl
