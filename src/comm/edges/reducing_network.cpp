#include "comm/edges/reducing_network.hpp"

#include <ccl/comm/log.hpp>
#include <ccl/detail/runtime/settings.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <string_view>
#include <utility>

#include "base/field_check.hpp"
#include "comm/host_shape.hpp"
#include "comm/part_rules.hpp"
#include "comm/rank_results.hpp"
#include "transport/nic_devices.hpp"

namespace ccl::detail {
namespace {

constexpr const char* what = "a network that reduces";
constexpr int max_heads = 8;  // of a host, as in NCCL

/// Returns the plug-in's device that is the NIC nearest to this rank, or -1.
int nearest_device(const CommState& state, const std::vector<collnet::Device>& devices) {
  const auto& nics = state.identity.nics();
  for (const int net : state.identity.arrangement().nets_of(state.identity.rank())) {
    for (const topo::HostNic& nic : nics) {
      if (nic.device != net) continue;
      const std::vector<int> found = devices_of_nic(nic.name, devices);
      if (!found.empty()) return found.front();
    }
  }
  return -1;
}

std::string wrong_network_inputs(const NetworkInputs& inputs) {
  return FieldCheck{}
      .in_range("number of devices", inputs.devices, 1, INT_MAX)
      .in_range("nearest device", inputs.nearest, -1, inputs.devices - 1)
      .in_range("operations", inputs.moves, 0, 7)
      .text("name of the plug-in", inputs.name)
      .why();
}

Result<void> same_plug_ins(CommState& state, const std::vector<NetworkInputs>& all) {
  const auto& mine = all[std::size_t(state.identity.rank())];
  for (int r = 0; r < int(all.size()); ++r) {
    const auto& theirs = all[std::size_t(r)];
    if (std::string_view{theirs.name} == mine.name && theirs.version == mine.version) continue;
    Error error{Errc::mismatch,
                fmt::format("rank {} has the CollNet plug-in {} of version {} where rank {} has {} "
                            "of version {}; give CCL_NET_PLUGIN alike on all ranks",
                            r, theirs.name, theirs.version, state.identity.rank(), mine.name,
                            mine.version)};
    error.peer = r;
    (void)state.rendezvous.bootstrap()->barrier();  // a rank leaves only after all have the error
    return fail(state.annotate(std::move(error)));
  }
  return {};
}

Result<std::shared_ptr<const ReducingNetwork>> join(CommState& state) {
  auto network = std::make_shared<ReducingNetwork>();
  std::vector<NetworkInputs> all(std::size_t(state.identity.ranks()));
  NetworkInputs& mine = all[std::size_t(state.identity.rank())];
  const auto prepare = [&]() -> Result<void> {
    CCL_TRY(const std::string why, no_network(state));
    if (!why.empty()) return fail(Errc::not_supported, why);
    CCL_TRY(network->context,
            collnet::Context::open(state.identity.id(), state.limits.init_timeout_s / 2));
    const auto& devices = network->context->devices();
    mine.devices = int(devices.size());
    mine.nearest = nearest_device(state, devices);
    mine.version = network->context->plug_in().version();
    mine.support = network->context->support();
    for (const auto move :
         {NetworkMove::all_reduce, NetworkMove::all_gather, NetworkMove::reduce_scatter}) {
      if (network->context->plug_in().contains(move)) mine.moves |= 1u << int(move);
    }
    const std::string_view name = network->context->plug_in().name();
    name.copy(mine.name, sizeof mine.name - 1);
    return {};
  };
  auto prepared = prepare();
  if (!prepared && prepared.error().transport.empty()) prepared.error().transport = "collnet";
  CCL_CHECK(all_agree(state, what, prepared));
  CCL_CHECK(state.rendezvous.after_creation(state.rendezvous.bootstrap()->all_gather(
      all.data(), Index{sizeof(NetworkInputs)}, {}, {"the creation of", what})));
  CCL_CHECK(check_gathered(state, all,
                           [](const NetworkInputs& of, int) { return wrong_network_inputs(of); }));
  CCL_CHECK(same_plug_ins(state, all));
  choose_heads(*network, ranks_by_host(state), all);
  log_info(LogPart::init, "CollNet: {} hosts, {} heads on each, plug-in {}", network->hosts.size(),
           network->heads, network->context->plug_in().text());
  return network;
}

}  // namespace

int ReducingNetwork::host_of(int rank) const {
  for (std::size_t h = 0; h < hosts.size(); ++h) {
    if (std::find(hosts[h].begin(), hosts[h].end(), rank) != hosts[h].end()) return int(h);
  }
  return -1;
}

int ReducingNetwork::max_ranks() const {
  std::size_t most = 0;
  for (const auto& host : hosts) most = std::max(most, host.size());
  return int(most);
}

void choose_heads(ReducingNetwork& network, std::vector<std::vector<int>> hosts,
                  const std::vector<NetworkInputs>& all) {
  int heads = max_heads;
  network.support = all.front().support;
  network.moves = all.front().moves;
  for (const NetworkInputs& of : all) {
    heads = std::min(heads, of.devices);
    network.moves &= of.moves;
    for (std::size_t op = 0; op < of.support.size(); ++op) network.support[op] &= of.support[op];
  }
  for (const auto& host : hosts) heads = std::min(heads, int(host.size()));
  for (auto& host : hosts) {
    // The first rank next to a device heads its rail, or else the first rank that heads none.
    for (int n = 0; n < heads; ++n) {
      const auto begin = host.begin() + n;
      auto head = std::find_if(begin, host.end(),
                               [&](int rank) { return all[std::size_t(rank)].nearest == n; });
      if (head == host.end()) {
        head = std::find_if(begin, host.end(), [&](int rank) {
          const int own = all[std::size_t(rank)].nearest;
          return own < n || own >= heads;
        });
      }
      if (head == host.end()) head = begin;
      std::rotate(begin, head, head + 1);
    }
  }
  network.heads = heads;
  network.hosts = std::move(hosts);
}

Result<std::string> no_network(const CommState& state) {
  CCL_TRY(const bool enabled, setting_flag("COLLNET_ENABLE"));
  if (!enabled) return std::string{"CollNet is off (CCL_COLLNET_ENABLE is not 1)"};
  CCL_TRY(const Index least, setting_integer("COLLNET_NODE_THRESHOLD"));
  const int hosts = state.identity.hosts();
  if (hosts >= least) return std::string{};
  return fmt::format(
      "CollNet reduces between hosts (there are {}, and CCL_COLLNET_NODE_THRESHOLD "
      "is {}); use Ring or Tree",
      hosts, least);
}

Result<std::shared_ptr<const ReducingNetwork>> join_network(CommState& state) {
  const auto lock = state.rendezvous.lock();
  if (state.network == nullptr) {
    CCL_TRY(state.network, join(state));
    state.has_network = true;
  }
  return state.network;
}

}  // namespace ccl::detail
