#include <ccl/comm/log.hpp>
#include <ccl/detail/numeric/network_step.hpp>
#include <ccl/detail/runtime/connections.hpp>
#include <ccl/transport/collnet.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/edges/edge_handshake.hpp"
#include "comm/edges/reducing_network.hpp"
#include "comm/rank_results.hpp"
#include "comm/state.hpp"
#include "connect/agreement.hpp"
#include "connect/device_state.hpp"
#include "transport/collnet/rail.hpp"

namespace ccl::detail {

using collnet::RailHandle;
using collnet::Rails;

Result<void> Connections::join_network(const Result<void>& so_far) {
  CommState& state = *Access::state(comm_);
  CCL_CHECK(agree_on_result(*this, so_far));
  CCL_TRY(network_, detail::join_network(state));
  if (const int most = needs_.max_host_ranks, ranks = network_->max_ranks();
      most > 0 && ranks > most) {
    // On all ranks, of which none leaves before the others have it.
    return agree_on_result(
        *this,
        fail(Errc::not_supported,
             fmt::format("{} connects all ranks of a host to its heads (at most {} ranks, and a "
                         "host has {}); use CollNetChain",
                         name_, most, ranks)));
  }
  if (const auto may = check_network_move(); !may) {
    return agree_on_result(*this, may);  // on all ranks, too
  }
  positions_.set_hosts(comm_, *network_, needs_.network_heads);
  tables_.hosts = positions_.hosts.data();
  return {};
}

Result<void> Connections::check_network_move() const {
  if (needs_.network_move == NetworkMove::all_reduce) return {};
  if (!network_->contains(needs_.network_move)) {
    return fail(Errc::not_supported,
                fmt::format("{} needs {} of the network (the CollNet plug-in {} of some rank lacks "
                            "it); use another version of it, Auto or Ring",
                            name_, collnet::function_of(needs_.network_move),
                            network_->context->plug_in().text()));
  }
  for (const auto& host : network_->hosts) {
    if (int(host.size()) == network_->heads) continue;
    return fail(
        Errc::not_supported,
        fmt::format("{} wants a head for each rank (a host has {}, and that of rank {} has {} "
                    "ranks); give each rank a device of the CollNet plug-in {}, "
                    "or use Auto or Ring",
                    name_, network_->heads, host.front(), host.size(),
                    network_->context->plug_in().text()));
  }
  if (int(network_->hosts.size()) <= NetworkStep::max_hosts) return {};
  return fail(Errc::not_supported,
              fmt::format("{} runs on at most {} hosts (there are {}); use Auto or Ring", name_,
                          NetworkStep::max_hosts, network_->hosts.size()));
}

Result<void> Connections::connect_network() {
  CommState& state = *Access::state(comm_);
  const int me = comm_.rank();
  const auto& hosts = network_->hosts;
  const int host = network_->host_of(me);
  const auto& here = hosts[std::size_t(host)];
  const auto rail = std::size_t(std::find(here.begin(), here.end(), me) - here.begin());
  std::vector<int> channels;  // on which this rank is a head
  for (int c = 0; c < plan_.channels; ++c) {
    if (positions_.hosts[std::size_t(c)].is_head()) channels.push_back(c);
  }

  const auto lock = state.rendezvous.lock();
  Rails rails;
  const auto listen = [&]() -> Result<void> {
    TransportContext context = transport_context(state, device_ ? &device_->arena : nullptr);
    context.deadline_s /= 2;  // within the time for which the other ranks wait
    CCL_TRY(rails, Rails::listen({network_->context,
                                  context,
                                  me,
                                  int(rail),
                                  comm_.peer(me).host,
                                  {1, plan_.slot_count, plan_.slot_bytes}},
                                 channels));
    return {};
  };
  CCL_CHECK(all_agree(state, name_, listen()));
  const auto width = std::size_t(plan_.channels);
  std::vector<RailHandle> all(std::size_t(comm_.ranks()) * width);
  for (std::size_t n = 0; n < channels.size(); ++n) {
    all[std::size_t(me) * width + std::size_t(channels[n])] = rails.all()[n]->handle;
  }
  CCL_CHECK(state.rendezvous.after_creation(state.rendezvous.bootstrap()->all_gather(
      all.data(), Index(width * sizeof(RailHandle)), {}, {"the creation of", name_})));
  std::vector<std::vector<RailHandle>> handles;
  for (const int c : channels) {
    handles.emplace_back();
    for (const auto& ranks : hosts) {
      handles.back().push_back(all[std::size_t(ranks[rail]) * width + std::size_t(c)]);
    }
  }
  CCL_CHECK(all_agree(state, name_, rails.connect(handles, host)));
  const auto start = [&]() -> Result<void> {
    CCL_TRY(auto wires, rails.start());
    for (std::size_t n = 0; n < channels.size(); ++n) {
      own_network(channels[n], wires[n].up, wires[n].down, std::move(wires[n].owner));
    }
    return device_ ? upload() : Result<void>{};
  };
  return all_agree(state, name_, start());
}

void Connections::own_network(int channel, const Wire& up, const Wire& down,
                              std::shared_ptr<void> owner) {
  const int me = comm_.rank();
  {
    const std::lock_guard wires{wires_mutex_};
    // A rank's wires to itself lead through the network.
    const bool moved_up = rows_.put(true, channel, me, up);
    const bool moved_down = rows_.put(false, channel, me, down);
    if ((moved_up || moved_down) && !device_) point_to_rows();
  }
  if (!reserved_) charge(2 * plan_.slot_bytes * plan_.slot_count);
  tables_.proxied = true;
  log_info(LogPart::init, "{}: rank {} heads its host on channel {}, by CollNet plug-in {}", name_,
           me, channel, network_->context->plug_in().text());
  Connection connection;
  connection.owner = std::move(owner);
  connection.transport = CollNetTransport::name;
  owners_.push_back(std::move(connection));
}

Result<void> Connections::check_network(Word tag) const {
  if (network_ == nullptr) return {};
  const NetworkStep step = NetworkStep::of(tag);
  if ((network_->support[std::size_t(step.op)] >> step.type & 1) != 0) return {};
  constexpr std::array<std::string_view, network_op_count> ops{"sums", "products", "maxima",
                                                               "minima"};
  return fail(Access::state(comm_)->annotate(
      {Errc::not_supported,
       fmt::format("{} cannot reduce this (the CollNet plug-in {} of some rank makes no {} of {}); "
                   "use Auto, which chooses another algorithm, or Ring or Tree",
                   name_, network_->context->plug_in().text(), ops[std::size_t(step.op)],
                   ccl::name(network_types[std::size_t(step.type)])),
       -1,
       -1,
       0,
       {},
       CollNetTransport::name}));
}

}  // namespace ccl::detail
