#pragma once

#include <string>

#include "transport/ib/gpu/memory.hpp"
#include "transport/ib/verbs/queue_pair.hpp"

namespace ccl::detail {

/// Tries whether the device of `port` reaches `slots`: it writes a pattern there, reads it back and
/// compares, over a queue pair to itself. `remotely`: with the rights that the other end of a
/// connection has, as at a receiver, where the read is also a flush; else with those of this end.
/// The slots are zero afterwards. Returns why the device does not reach them, or an empty text.
/// Gives up after `limit_s` seconds.
std::string prove_gpu_slots(IbGpuSlots& slots, const IbPort& port, bool remotely,
                            const IbTuning& tuning, double limit_s);

}  // namespace ccl::detail
