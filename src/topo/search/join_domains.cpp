#include "topo/search/join_domains.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace ccl::topo {
namespace {

using Hosts = std::vector<const Machine*>;

/// Number of channels of a domain: enough to fill the NVLinks of a GPU, which all of them cross, at
/// least those of a host. If a host's channels come in pairs (`JoinOptions::cross_nic`), so do
/// these.
std::size_t channel_count(std::size_t of_host, std::size_t hosts, float gpu_bw, float bw_inter) {
  std::size_t count = of_host;
  if (gpu_bw > 0 && bw_inter > 0) {
    count = std::max(count, std::size_t(std::ceil(gpu_bw / bw_inter)));
  }
  if (of_host % 2 == 0) count += count % 2;
  return std::min({count, of_host * hosts, std::size_t{MachineShare::max_channels}});
}

/// One channel of a domain: that of number `channel` of each host, from the host `first` on. A ring
/// leaves by the last host. The `net_out` of a tree is the NIC of the second rank of its chain.
ChannelOrder through(const Hosts& hosts, ChannelGraph Machine::*graph, std::size_t channel,
                     std::size_t first) {
  const auto of_host = [&](std::size_t n) -> const ChannelOrder& {
    return (hosts[(first + n) % hosts.size()]->*graph).channels[channel];
  };
  ChannelOrder order;
  for (std::size_t n = 0; n < hosts.size(); ++n) {
    const std::vector<int>& ranks = of_host(n).ranks;
    order.ranks.insert(order.ranks.end(), ranks.begin(), ranks.end());
  }
  order.net_in = of_host(0).net_in;
  order.net_out = of_host(hosts.size() - 1).net_out;
  if (graph == &Machine::tree) {
    order.net_out = of_host(0).ranks.size() > 1 ? of_host(0).net_out : of_host(1).net_in;
  }
  return order;
}

/// Makes the channels of a domain. For hosts with equal channels, a channel of one number has the
/// same channel of a host in all domains, so that it stays on its rail.
void join_channels(Machine& domain, const Hosts& hosts, ChannelGraph Machine::*graph) {
  ChannelGraph& all = domain.*graph;
  std::size_t of_host = MachineShare::max_channels;
  all = hosts[0]->*graph;
  all.channels.clear();
  for (const Machine* const host : hosts) {
    const ChannelGraph& own = host->*graph;
    of_host = std::min(of_host, own.channels.size());
    all.bw_intra = std::min(all.bw_intra, own.bw_intra);
    all.bw_inter = std::min(all.bw_inter, own.bw_inter);
    all.type_intra = std::max(all.type_intra, own.type_intra);
    all.type_inter = std::max(all.type_inter, own.type_inter);
    all.pattern = std::max(all.pattern, own.pattern);
    all.cross_nic = std::max(all.cross_nic, own.cross_nic);
  }
  const std::size_t count = channel_count(of_host, hosts.size(), domain.gpu_bw, all.bw_inter);
  const std::size_t pair = of_host % 2 == 0 ? 2 : 1, pairs = of_host / pair;
  const std::size_t apart = std::max<std::size_t>(hosts.size() / pairs, 1);
  for (std::size_t n = 0; n < count; ++n) {
    const std::size_t own = n / pair % pairs, round = n / pair / pairs;
    const std::size_t first = (round + own * apart) % hosts.size();
    all.channels.push_back(through(hosts, graph, own * pair + n % pair, first));
  }
}

Machine joined(const Hosts& hosts) {
  Machine domain;
  domain.fabric = hosts[0]->fabric;
  domain.nvlink = true;
  for (const Machine* const host : hosts) {
    domain.ranks.insert(domain.ranks.end(), host->ranks.begin(), host->ranks.end());
    domain.even = domain.even && host->even;
    domain.nvlink = domain.nvlink && (host->nvlink || host->ranks.size() < 2);
    const bool slower = host->gpu_bw > 0 && (domain.gpu_bw == 0 || host->gpu_bw < domain.gpu_bw);
    if (slower) domain.gpu_bw = host->gpu_bw;
  }
  std::sort(domain.ranks.begin(), domain.ranks.end());
  join_channels(domain, hosts, &Machine::ring);
  join_channels(domain, hosts, &Machine::tree);
  return domain;
}

}  // namespace

std::vector<Machine> join_domains(const std::vector<Machine>& hosts) {
  std::vector<Machine> machines;
  for (std::size_t h = 0; h < hosts.size(); ++h) {
    const auto same = [&](const Machine& other) {
      return hosts[h].fabric != 0 && other.fabric == hosts[h].fabric;
    };
    const auto begin = hosts.begin() + std::ptrdiff_t(h);
    if (std::any_of(hosts.begin(), begin, same)) continue;
    Hosts of_domain{&hosts[h]};
    for (auto other = begin + 1; other != hosts.end(); ++other) {
      if (same(*other)) of_domain.push_back(&*other);
    }
    machines.push_back(of_domain.size() > 1 ? joined(of_domain) : hosts[h]);
  }
  return machines;
}

}  // namespace ccl::topo
