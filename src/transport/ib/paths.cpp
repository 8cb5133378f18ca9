#include "transport/ib/paths.hpp"

#include <algorithm>
#include <string_view>

namespace ccl::detail {
namespace {

/// Indexes of the ports of the NIC whose turn it is.
template <class Ports>
std::vector<std::uint32_t> of_one_nic(const Ports& ports, std::size_t channel) {
  std::vector<std::int32_t> nics;
  for (const auto& port : ports) {
    if (std::find(nics.begin(), nics.end(), port.nic) == nics.end()) nics.push_back(port.nic);
  }
  std::vector<std::uint32_t> taken;
  for (std::uint32_t n = 0; n < ports.size(); ++n) {
    if (ports[n].nic == nics[channel % nics.size()]) taken.push_back(n);
  }
  return taken;
}

}  // namespace

std::vector<IbPath> choose_paths(std::size_t channel, const std::vector<IbPortCard>& sender,
                                 const std::vector<IbPort>& receiver,
                                 const std::vector<IbBadPath>& bad) {
  if (sender.empty() || receiver.empty()) return {};
  const auto from = of_one_nic(sender, channel), to = of_one_nic(receiver, channel);
  const auto fits = [&](const IbPath& path) {
    return (sender[path.first].infiniband != 0) == receiver[path.second].infiniband;
  };
  const auto is_well = [&](const IbPath& path) {
    const std::string mine = receiver[path.second].text();
    return std::none_of(bad.begin(), bad.end(), [&](const IbBadPath& b) {
      return mine == b.receiver && std::string_view{sender[path.first].where} == b.sender;
    });
  };
  const auto only = [](std::vector<IbPath> some, const auto& good) {
    std::erase_if(some, [&](const IbPath& path) { return !good(path); });
    return some;
  };
  std::vector<IbPath> side_by_side, every;
  for (std::size_t n = 0; n < std::max(from.size(), to.size()); ++n) {
    side_by_side.emplace_back(from[n % from.size()], to[n % to.size()]);
  }
  for (std::uint32_t s = 0; s < sender.size(); ++s) {
    for (std::uint32_t r = 0; r < receiver.size(); ++r) every.emplace_back(s, r);
  }
  side_by_side = only(side_by_side, fits);
  every = only(every, fits);
  if (auto some = only(side_by_side, is_well); !some.empty()) return some;
  if (auto some = only(every, is_well); !some.empty()) return {some.front()};
  if (side_by_side.empty() && !every.empty()) return {every.front()};
  return side_by_side;
}

}  // namespace ccl::detail
