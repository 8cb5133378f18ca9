#pragma once

#include <ccl/topo/arrange.hpp>

#include <vector>

namespace ccl::topo {

/// Joins the hosts of each NVLink domain (`Machine::fabric`) to one machine, in place of its first
/// host. Channels go through its hosts one after the other and begin at different ones: a channel
/// enters the domain by a NIC of its first host and leaves it by one of the last. Device numbers of
/// NICs stay those of the host. `nets` and `rails` of a domain are empty.
std::vector<Machine> join_domains(const std::vector<Machine>& hosts);

}  // namespace ccl::topo
