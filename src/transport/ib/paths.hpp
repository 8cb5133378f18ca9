#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "transport/ib/queue_pair.hpp"

namespace ccl::detail {

/// Ports between which a queue pair has failed, by what they are called.
struct IbBadPath {
  char sender[44], receiver[44];
  bool operator==(const IbBadPath&) const = default;
};

/// A port of the sender and one of the receiver, as indexes.
using IbPath = std::pair<std::uint32_t, std::uint32_t>;

/// Between which ports the queue pairs of a channel go: one NIC of each end, by the channel's turn;
/// several ports of a NIC side by side. Paths that are bad only where there are no others. Empty if
/// no port of the sender is of the kind of one of the receiver's.
std::vector<IbPath> choose_paths(std::size_t channel, const std::vector<IbPortCard>& sender,
                                 const std::vector<IbPort>& receiver,
                                 const std::vector<IbBadPath>& bad);

}  // namespace ccl::detail
