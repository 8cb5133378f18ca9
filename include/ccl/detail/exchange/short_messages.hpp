#pragma once

#include <ccl/algo/pairwise.hpp>
#include <ccl/detail/exchange/message_list.hpp>
#include <ccl/detail/runtime/connections.hpp>
#include <ccl/proto/simple.hpp>

#include <type_traits>

namespace ccl::detail {

/// Compositions whose messages `move_short_messages` moves in the steps of their wires.
template <class Algo, class Proto>
inline constexpr bool moves_short_messages =
    std::is_same_v<Algo, Pairwise> && std::is_same_v<Proto, Simple>;

/// Moves the messages of an exchange on the calling thread, as `Pairwise` over `Simple` does: a
/// peer may use either. Returns false, and has moved nothing, unless all their wires are connected
/// in memory that both ends share, and each peer has at most one message of one slice each way.
/// The caller holds the lock of the composition. A failed wait leaves its `LaneFailure`.
bool move_short_messages(Connections& connections, MessageTable& table);

}  // namespace ccl::detail
