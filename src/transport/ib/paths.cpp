#include "transport/ib/paths.hpp"

#include <algorithm>
#include <string_view>

namespace ccl::detail {
namespace {

/// Indexes of the ports of `wanted`; of the nearest NICs, if that is lost; or of the NIC whose turn
/// it is.
template <class Ports>
std::vector<std::uint32_t> ports_for(const Ports& ports, std::size_t channel, std::int32_t wanted) {
  std::vector<std::int32_t> nics;
  std::int32_t nearest = ports.front().distance;
  for (const auto& port : ports) {
    if (std::find(nics.begin(), nics.end(), port.nic) == nics.end()) nics.push_back(port.nic);
    nearest = std::min(nearest, std::int32_t(port.distance));
  }
  const bool there = std::find(nics.begin(), nics.end(), wanted) != nics.end();
  const std::int32_t nic = there ? wanted : nics[channel % nics.size()];
  std::vector<std::uint32_t> taken;
  for (std::uint32_t n = 0; n < ports.size(); ++n) {
    if (wanted == lost_nic ? ports[n].distance == nearest : ports[n].nic == nic) taken.push_back(n);
  }
  return taken;
}

/// Returns enough of some paths that each of their ports is used, and no port more often than that
/// needs.
std::vector<IbPath> one_for_each_port(const std::vector<IbPath>& some) {
  std::vector<IbPath> taken;
  const auto is_used = [&taken](auto end, const IbPath& path) {
    return std::any_of(taken.begin(), taken.end(),
                       [&](const IbPath& other) { return other.*end == path.*end; });
  };
  const auto take = [&](const auto& wanted) {
    for (const IbPath& path : some) {
      if (wanted(is_used(&IbPath::first, path), is_used(&IbPath::second, path))) {
        taken.push_back(path);
      }
    }
  };
  take([](bool sender, bool receiver) { return !sender && !receiver; });
  take([](bool sender, bool receiver) { return !sender || !receiver; });
  return taken;
}

}  // namespace

std::vector<IbPath> choose_paths(std::size_t channel, IbNicPair nics,
                                 const std::vector<IbPortCard>& sender,
                                 const std::vector<IbPort>& receiver,
                                 const std::vector<IbBadPath>& bad) {
  if (sender.empty() || receiver.empty()) return {};
  const auto from = ports_for(sender, channel, nics.sender);
  const auto to = ports_for(receiver, channel, nics.receiver);
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
  if (const auto some = only(every, is_well); !some.empty()) {
    // A port with a bad path may be the fault of it. Among the others, the nearest are best.
    const auto cost = [&](const IbPath& path) {
      const IbPortCard& from_port = sender[path.first];
      const IbPort& to_port = receiver[path.second];
      const std::string mine = to_port.text();
      const auto is_suspect = [&](const IbBadPath& b) {
        return mine == b.receiver || std::string_view{from_port.where} == b.sender;
      };
      return std::pair{std::any_of(bad.begin(), bad.end(), is_suspect),
                       std::int64_t{from_port.distance} + to_port.distance};
    };
    const auto least =
        cost(*std::min_element(some.begin(), some.end(), [&](const IbPath& a, const IbPath& b) {
          return cost(a) < cost(b);
        }));
    return one_for_each_port(only(some, [&](const IbPath& path) { return cost(path) == least; }));
  }
  if (side_by_side.empty() && !every.empty()) return {every.front()};
  return side_by_side;
}

}  // namespace ccl::detail
