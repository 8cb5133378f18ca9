#include "transport/ib/paths.hpp"

#include <algorithm>
#include <string_view>

namespace ccl::detail {
namespace {

/// Indexes of the ports of `wanted` or, if that is none of the NICs, of the one whose turn it is.
template <class Ports>
std::vector<std::uint32_t> of_one_nic(const Ports& ports, std::size_t channel,
                                      std::int32_t wanted) {
  std::vector<std::int32_t> nics;
  for (const auto& port : ports) {
    if (std::find(nics.begin(), nics.end(), port.nic) == nics.end()) nics.push_back(port.nic);
  }
  const bool there = std::find(nics.begin(), nics.end(), wanted) != nics.end();
  const std::int32_t nic = there ? wanted : nics[channel % nics.size()];
  std::vector<std::uint32_t> taken;
  for (std::uint32_t n = 0; n < ports.size(); ++n) {
    if (ports[n].nic == nic) taken.push_back(n);
  }
  return taken;
}

}  // namespace

std::vector<IbPath> choose_paths(std::size_t channel, IbNicPair nics,
                                 const std::vector<IbPortCard>& sender,
                                 const std::vector<IbPort>& receiver,
                                 const std::vector<IbBadPath>& bad) {
  if (sender.empty() || receiver.empty()) return {};
  const auto from = of_one_nic(sender, channel, nics.sender);
  const auto to = of_one_nic(receiver, channel, nics.receiver);
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
  for (std::uint32_t shift = 0; shift < receiver.size(); ++shift) {
    for (std::uint32_t s = 0; s < sender.size(); ++s) {
      every.emplace_back(s, (s + shift) % std::uint32_t(receiver.size()));
    }
  }
  side_by_side = only(side_by_side, fits);
  every = only(every, fits);
  if (auto some = only(side_by_side, is_well); !some.empty()) return some;
  if (auto some = only(every, is_well); !some.empty()) return {some[channel % some.size()]};
  if (side_by_side.empty() && !every.empty()) return {every.front()};
  return side_by_side;
}

}  // namespace ccl::detail
