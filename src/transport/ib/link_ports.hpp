#pragma once

#include <ccl/types/connection.hpp>

#include <cstdint>
#include <vector>

#include "transport/ib/verbs/device.hpp"

namespace ccl::detail {

/// In place of a NIC: wires take NICs in turn.
constexpr std::int32_t nic_in_turn = -1;
/// In place of a NIC that is not there, though others of the topology are: the nearest of them
/// share what it would carry.
constexpr std::int32_t lost_nic = -2;

/// Ports that a connection may use, and the NIC of each of its wires.
struct IbLinkPorts {
  std::vector<IbPort> ports;     // at most `max_ib_ports`
  std::vector<int> nic_of_wire;  // an `IbPort::nic`, `nic_in_turn` or `lost_nic`
  std::size_t used = 0;          // the first of `ports`; the others stand by for their failure
};

/// Chooses among the ports of the machine: those of the NICs that the wires use, then the others
/// that the topology names, the nearest first, for the failure of the first. If the topology names
/// none of the ports, the first in PCI order. Cards that the topology counts as one NIC have one
/// `IbPort::nic`.
IbLinkPorts ports_of_link(std::vector<IbPort> found, const EdgeNics& nics, int wires);

}  // namespace ccl::detail
