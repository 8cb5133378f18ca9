#include "transport/ib/link_ports.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
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

/// The card of the first port that `nic` contains; -1: it contains none.
int card_of(std::string_view nic, const std::vector<IbPort>& found) {
  for (const IbPort& port : found) {
    if (contains(nic, port)) return port.nic;
  }
  return -1;
}

}  // namespace

IbLinkPorts ports_of_link(const std::vector<IbPort>& found, const EdgeNics& nics, int wires) {
  IbLinkPorts chosen;
  std::vector<int> cards;  // in order of preference
  const auto prefer = [&](int card) {
    if (card >= 0 && std::find(cards.begin(), cards.end(), card) == cards.end()) {
      cards.push_back(card);
    }
  };
  for (const int index : nics.of_wire) {
    const int card = index < 0 ? -1 : card_of(nics.names[std::size_t(index)], found);
    chosen.nic_of_wire.push_back(card);
    prefer(card);
  }
  chosen.nic_of_wire.resize(std::size_t(wires), -1);
  for (const std::string& name : nics.names) prefer(card_of(name, found));
  if (cards.empty()) {
    for (const IbPort& port : found) prefer(port.nic);
  }
  for (const int card : cards) {
    for (const IbPort& port : found) {
      if (port.nic == card && chosen.ports.size() < max_ib_ports) chosen.ports.push_back(port);
    }
  }
  // A wire whose NIC found no place takes its turn among the others.
  for (int& card : chosen.nic_of_wire) {
    const bool there = std::any_of(chosen.ports.begin(), chosen.ports.end(),
                                   [&](const IbPort& port) { return port.nic == card; });
    if (!there) card = -1;
  }
  return chosen;
}

}  // namespace ccl::detail
