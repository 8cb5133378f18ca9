#pragma once

#include <ccl/algo/ring.hpp>
#include <ccl/detail/base/bytes.hpp>
#include <ccl/detail/launch/call_arguments.hpp>
#include <ccl/detail/runtime/connections.hpp>
#include <ccl/proto/simple.hpp>
#include <ccl/types/operations.hpp>

#include <type_traits>

namespace ccl::detail {

/// Compositions whose calls of one slice `broadcast_short` runs.
template <class Op, class Algo, class Proto>
inline constexpr bool broadcasts_short =
    std::is_same_v<Op, Broadcast> && std::is_same_v<Algo, Ring> && std::is_same_v<Proto, Simple>;

/// Runs a broadcast of one slice on the calling thread, as `Ring` over `Simple` does: other ranks
/// may use either. Returns false, and has moved nothing, unless the wires of this rank are in
/// memory that both ends share. A failed wait leaves its `LaneFailure`.
bool broadcast_short(const Connections& connections, const CallArguments<Bytes>& given);

}  // namespace ccl::detail
