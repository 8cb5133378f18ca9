#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "transport/ib/link_ports.hpp"
#include "transport/ib/verbs/queue_pair.hpp"

namespace ccl::detail {

/// Names of two ports between which a queue pair has failed.
struct IbBadPath {
  char sender[44], receiver[44];
  bool operator==(const IbBadPath&) const = default;
};

/// A port of the sender and one of the receiver, as indexes.
using IbPath = std::pair<std::uint32_t, std::uint32_t>;

/// NICs of a channel's two ends, as in `IbLinkPorts::nic_of_wire`.
struct IbNicPair {
  std::int32_t sender = nic_in_turn, receiver = nic_in_turn;
};

/// Chooses the port pairs for the queue pairs of a channel: those of its NIC at each end, several
/// ports of a NIC in parallel. In place of a NIC that is lost, its end takes all NICs that are
/// nearest to its slots, in parallel. If all of these paths are bad, the channel takes the good
/// ones between the nearest NICs, in parallel, and bad ones only if there are no others. Empty if
/// no ports of the two ends are of one kind.
std::vector<IbPath> choose_paths(std::size_t channel, IbNicPair nics,
                                 const std::vector<IbPortCard>& sender,
                                 const std::vector<IbPort>& receiver,
                                 const std::vector<IbBadPath>& bad);

}  // namespace ccl::detail
