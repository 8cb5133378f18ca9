#include "transport/ib/link_ports.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <string>
#include <string_view>

namespace ccl::detail {
namespace {

/// True if `nic`, a name of `EdgeNics`, contains the port. The topology numbers the ports of a
/// card, whose functions may each number their own from 1: a port that the device has not is its
/// first.
bool contains(std::string_view nic, const IbPort& port) {
  const std::string_view device = port.device->name();
  if (nic.starts_with(device) && nic.substr(device.size()).starts_with(':')) {
    const int number = std::atoi(std::string{nic.substr(device.size() + 1)}.c_str());
    return port.number == (number <= port.of_ports ? number : 1);
  }
  while (!nic.empty()) {
    const std::size_t plus = std::min(nic.find('+'), nic.size());
    if (nic.substr(0, plus) == port.device->name()) return true;
    nic.remove_prefix(std::min(plus + 1, nic.size()));
  }
  return false;
}

/// The NIC of the first port that `nic` contains; -1: it contains none.
int nic_of(std::string_view nic, const std::vector<IbPort>& found) {
  for (const IbPort& port : found) {
    if (contains(nic, port)) return port.nic;
  }
  return -1;
}

/// Gives the ports of all cards that a name holds the number of the first.
void join_cards(std::vector<IbPort>& found, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const int first = nic_of(name, found);
    for (std::size_t n = 0; first >= 0 && n < found.size(); ++n) {
      const int card = found[n].nic;
      if (card == first || !contains(name, found[n])) continue;
      for (IbPort& port : found) port.nic = port.nic == card ? first : port.nic;
    }
  }
}

/// Indexes of the names, those of the nearest NICs first.
std::vector<std::size_t> nearest_first(const EdgeNics& nics) {
  std::vector<std::size_t> order(nics.names.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (nics.distances.size() != order.size()) return order;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return nics.distances[a] < nics.distances[b];
  });
  return order;
}

void set_distances(std::vector<IbPort>& found, const EdgeNics& nics) {
  if (nics.distances.size() != nics.names.size()) return;
  for (IbPort& port : found) {
    for (std::size_t n = 0; n < nics.names.size(); ++n) {
      if (contains(nics.names[n], port)) port.distance = nics.distances[n];
    }
  }
}

}  // namespace

IbLinkPorts ports_of_link(std::vector<IbPort> found, const EdgeNics& nics, int wires) {
  IbLinkPorts chosen;
  join_cards(found, nics.names);
  std::vector<int> order;  // NICs, in order of preference
  const auto prefer = [&](int nic) {
    if (nic >= 0 && std::find(order.begin(), order.end(), nic) == order.end()) {
      order.push_back(nic);
    }
  };
  set_distances(found, nics);
  for (const int index : nics.of_wire) {
    const int nic = index < 0 ? nic_in_turn : nic_of(nics.names[std::size_t(index)], found);
    chosen.nic_of_wire.push_back(index >= 0 && nic < 0 ? lost_nic : nic);
    prefer(nic);
  }
  chosen.nic_of_wire.resize(std::size_t(wires), nic_in_turn);
  for (const std::size_t n : nearest_first(nics)) prefer(nic_of(nics.names[n], found));
  if (order.empty()) {
    for (const IbPort& port : found) prefer(port.nic);
    std::fill(chosen.nic_of_wire.begin(), chosen.nic_of_wire.end(), nic_in_turn);
  }
  for (const int nic : order) {
    for (const IbPort& port : found) {
      if (port.nic == nic && chosen.ports.size() < max_ib_ports) chosen.ports.push_back(port);
    }
  }
  // A wire whose NIC found no place takes its turn among the others.
  for (int& nic : chosen.nic_of_wire) {
    const bool there = std::any_of(chosen.ports.begin(), chosen.ports.end(),
                                   [&](const IbPort& port) { return port.nic == nic; });
    if (!there && nic >= 0) nic = nic_in_turn;
  }
  const auto asks_for = [&chosen](int nic) {
    return std::find(chosen.nic_of_wire.begin(), chosen.nic_of_wire.end(), nic) !=
           chosen.nic_of_wire.end();
  };
  const auto nearest =
      std::min_element(chosen.ports.begin(), chosen.ports.end(),
                       [](const IbPort& a, const IbPort& b) { return a.distance < b.distance; });
  const auto serves = [&](const IbPort& port) {
    return asks_for(nic_in_turn) || asks_for(port.nic) ||
           (asks_for(lost_nic) && port.distance == nearest->distance);
  };
  while (chosen.used < chosen.ports.size() && serves(chosen.ports[chosen.used])) ++chosen.used;
  return chosen;
}

}  // namespace ccl::detail
