#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

namespace ccl::detail {

/// Returns the devices of a plug-in that `nic`, a name of `EdgeNics`, contains. Ports of a card can
/// be devices of one name, so the port counts, too. The topology numbers the ports of a card, whose
/// functions may each number their own from 1: of a port that no device has, the name alone counts.
template <class Device>
std::vector<int> devices_of_nic(std::string_view nic, const std::vector<Device>& devices) {
  std::vector<int> found;
  while (!nic.empty()) {
    const std::string_view part = nic.substr(0, nic.find('+'));
    const std::string_view name = part.substr(0, part.find(':'));
    std::vector<int> of_name, of_port;
    const int port = name.size() < part.size()
                         ? std::atoi(std::string{part.substr(name.size() + 1)}.c_str())
                         : -1;
    for (std::size_t n = 0; n < devices.size(); ++n) {
      if (devices[n].name != name) continue;
      of_name.push_back(int(n));
      if (devices[n].port == port) of_port.push_back(int(n));
    }
    const std::vector<int>& of_part = of_port.empty() ? of_name : of_port;
    found.insert(found.end(), of_part.begin(), of_part.end());
    nic.remove_prefix(std::min(part.size() + 1, nic.size()));
  }
  return found;
}

}  // namespace ccl::detail
