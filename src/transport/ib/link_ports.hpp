#pragma once

#include <ccl/types/connection.hpp>

#include <vector>

#include "transport/ib/verbs/device.hpp"

namespace ccl::detail {

/// Ports that a connection may use, and the NIC of each of its wires.
struct IbLinkPorts {
  std::vector<IbPort> ports;     // at most `max_ib_ports`
  std::vector<int> nic_of_wire;  // an `IbPort::nic`; -1: wires take NICs in turn
  std::size_t used = 0;          // the first of `ports`; the others stand by for their failure
};

/// Chooses among the ports of the machine: those of the NICs that the wires use, then the others
/// that the topology names, for the failure of the first. If the topology names none of the ports,
/// the first in PCI order. Cards that the topology counts as one NIC have one `IbPort::nic`.
IbLinkPorts ports_of_link(std::vector<IbPort> found, const EdgeNics& nics, int wires);

}  // namespace ccl::detail
