#include "transport/proxied/end.hpp"

#include <ccl/comm/log.hpp>
#include <ccl/detail/runtime/settings.hpp>
#include <ccl/transport/plugin.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/detached_call.hpp"
#include "gpu/devices.hpp"
#include "transport/net_choice.hpp"
#include "transport/plug_in/link.hpp"
#include "transport/plug_in/presence.hpp"
#include "transport/unprotected.hpp"

namespace ccl {
namespace detail {
namespace {

/// A step is one message, whose size a plug-in reports as an int.
constexpr Index max_slot_bytes = Index{1} << 30;
/// Drivers export whole pages of any host.
constexpr std::size_t dma_buf_grain = 64 << 10;

/// Place of the rank's GPU below /sys; empty for a CPU rank.
std::string path_of_gpu(const PeerInfo& rank) {
  if (rank.bus_id < 0) return {};
  std::error_code missing;
  return std::filesystem::canonical("/sys/bus/pci/devices/" + bus_id_text(rank.bus_id), missing)
      .string();
}

const char* text(NetPlugInAbsence absence) {
  switch (absence) {
    case NetPlugInAbsence::not_asked:
      return "neither CCL_NET nor CCL_NET_PLUGIN names one";
    case NetPlugInAbsence::not_chosen:
      return "its CCL_NET is IB or Socket";
    case NetPlugInAbsence::not_found:
      return "no library of its CCL_NET_PLUGIN has one that works; see its log";
    case NetPlugInAbsence::none:
      break;
  }
  return "it said nothing of one";
}

}  // namespace

Result<void> PlugInLink::choose_devices(const NetContext& net) {
  const auto chosen = choose_net_devices(net.devices(), edge.nics, edge.shape.channels,
                                         path_of_gpu(edge.self), edge.self.rank);
  Index most = max_slot_bytes;
  for (std::size_t c = 0; c < chosen.size(); ++c) {
    channels->each[c].device = chosen[c];
    most = std::min(most, net.devices()[std::size_t(chosen[c])].max_bytes);
  }
  if (edge.shape.slot_bytes <= most) return {};
  return fail(Errc::invalid_argument,
              fmt::format("slots of {} bytes are too large for the {} (at most {}); use smaller "
                          "ones, by CCL_BUFFSIZE",
                          edge.shape.slot_bytes, net.plug_in().text(), most));
}

Result<std::string> PlugInLink::bars_gpu_memory(const NetContext& net) const {
  CCL_TRY(const Index wanted, setting_integer("IB_GPU_MEMORY"));
  if (wanted == 0) return std::string{"CCL_IB_GPU_MEMORY is 0"};
  for (const NetChannel& channel : channels->each) {
    const NetDevice& device = net.devices()[std::size_t(channel.device)];
    if ((device.memory & net_abi::gpu_memory) == 0) return device.name + " takes no GPU memory";
  }
  if (wanted > 0) return std::string{};
  if (edge.nics.names.empty()) return std::string{"the topology knows no NIC"};
  return edge.nics.no_gpu_access;
}

Result<void> PlugInLink::place_on_gpu(const NetContext& net) {
  if (!may_use_gpu_memory(context.arena)) return {};
  const WireShape& shape = edge.shape;
  const char* const direction = edge.side == EdgeSide::sender ? "to" : "from";
  CCL_TRY(std::string why, bars_gpu_memory(net));
  if (why.empty()) {
    const auto bytes =
        std::size_t(shape.channels) * std::size_t(shape.slot_count) * std::size_t(shape.slot_bytes);
    auto piece = gpu_calls().allocate(context.arena, edge.nics.relay,
                                      (bytes + dma_buf_grain - 1) / dma_buf_grain * dma_buf_grain);
    if (piece) gpu_slots = *std::move(piece);
    if (!piece) why = piece.error().what;  // such as a GPU that is almost full
  }
  if (!why.empty()) {
    log_info(LogPart::net, "slots {} rank {} are staged in host memory ({})", direction,
             edge.peer.rank, why);
    return {};
  }
  CCL_TRY(bool by_dma_buf, setting_flag("DMABUF_ENABLE"));
  for (const NetChannel& channel : channels->each) {
    const int memory = net.devices()[std::size_t(channel.device)].memory;
    by_dma_buf = by_dma_buf && (memory & net_abi::dma_buf) != 0;
  }
  if (by_dma_buf) {
    auto exported = gpu_calls().export_dma_buf(context.arena, gpu_slots);
    if (exported) dma_buf = std::move(*exported);
    if (!exported) why = exported.error().what;
  } else {
    why = "no DMA-BUF by CCL_DMABUF_ENABLE or the plug-in's devices";
  }
  if (gpu_slots.on_loan && !dma_buf) {  // memory that was imported is registered by a DMA-BUF alone
    log_info(LogPart::net,
             "slots {} rank {} are staged in host memory (GPU memory on loan from another process: "
             "{})",
             direction, edge.peer.rank, why);
    gpu_slots = {};
    return {};
  }
  slots_elsewhere = gpu_slots.base;
  CCL_TRY(const bool unflushed, setting_flag("GDR_FLUSH_DISABLE"));
  flushes = edge.side == EdgeSide::receiver && !unflushed;
  log_info(LogPart::net, "slots {} rank {} lie in GPU memory, for the {}{}", direction,
           edge.peer.rank, net.plug_in().text(), dma_buf ? ", by DMA-BUF" : "");
  return {};
}

Result<void> PlugInLink::listen(const std::shared_ptr<NetContext>& net) {
  // A thread that is given up keeps what it has made.
  struct Made {
    std::vector<NetHandle> handles;
    std::vector<void*> listeners;
    int result = net_abi::success;
  };
  std::vector<int> devices;
  for (const NetChannel& channel : channels->each) devices.push_back(channel.device);
  CCL_TRY(const auto listening, start_detached("listen of a network plug-in", [net, devices] {
            Made made;
            for (const int device : devices) {
              void* listener = nullptr;
              made.result =
                  net->plug_in().listen(net->get(), device, made.handles.emplace_back(), &listener);
              if (made.result != net_abi::success) break;
              made.listeners.push_back(listener);
            }
            return made;
          }));
  const double limit_s = context.deadline_s / 2;
  if (!returns_within(listening, limit_s)) return fail(channels->overdue("listen", limit_s));
  const Made& made = listening.get();
  handles = made.handles;
  for (std::size_t c = 0; c < made.listeners.size(); ++c) {
    channels->each[c].listener = made.listeners[c];
  }
  if (made.result == net_abi::success) return {};
  return fail(
      net->plug_in().error("listen", made.result,
                           fmt::format("for channel {}, from rank {} on {}", made.listeners.size(),
                                       edge.peer.rank, edge.peer.host)));
}

Result<void> PlugInLink::prepare() {
  CCL_TRY(auto net, NetContext::of(context));
  warn_if_unprotected("the " + net->plug_in().text());
  CCL_TRY(auto calls, context.proxy->library_calls());
  channels = std::make_shared<NetChannels>(net, edge, std::move(calls), context.deadline_s,
                                           context.proxy->operation_limit_s());
  CCL_CHECK(choose_devices(*net));
  CCL_CHECK(place_on_gpu(*net));
  return edge.side == EdgeSide::sender ? Result<void>{} : listen(net);
}

Error PlugInLink::late() const {
  return {
      Errc::timed_out,
      fmt::format("{}rank {} on {} has made no connection within {:.3g} s; start all ranks, "
                  "check the network, or raise CCL_INIT_TIMEOUT",
                  has_handles.load() ? "connect of the " + channels->plug_in().text() + " to " : "",
                  edge.peer.rank, edge.peer.host, context.deadline_s)};
}

Result<void> PlugInLink::wait_connected(const net::Deadline& deadline) {
  auto done = ConnectingLink::wait_connected(deadline);
  // The task comes first, unless its thread got no core.
  const bool is_late = !done && done.error().code == Errc::timed_out;
  return is_late && state() == State::connecting && has_handles ? fail(late()) : done;
}

void PlugInLink::prepare_wires() {
  if (polled) return;  // lanes of a GPU lend nothing
  for (Wire& wire : wires) {
    wire.zero_copy = &zero_copies.emplace_back(edge.shape.slot_count, ZeroCopy::Memory::registered);
    wire.zero_copy->set_accesses(*this);
  }
}

PlugInLink::~PlugInLink() {
  if (channels == nullptr) return;
  channels->begin_close();
  channels->await_close();
  channels->keep(std::move(memory), std::move(gpu_slots.owner));
}

Result<void> PlugInLink::receive(const std::shared_ptr<PlugInLink>& link) {
  return link->context.proxy->add(make_plug_in_receiver(link));
}

Result<void> PlugInLink::send(const std::shared_ptr<PlugInLink>& link, std::size_t,
                              net::SecureSocket socket) {
  return link->context.proxy->add(make_plug_in_sender(link, std::move(socket)));
}

template class ProxiedEnd<PlugInLink>;

}  // namespace detail

Result<void> PluginTransport::can_connect(const PeerInfo& from, const PeerInfo& to) {
  const auto refuse = [&](const std::string& why) {
    return fail(Errc::no_transport, fmt::format("plugin does not connect rank {} to rank {} ({})",
                                                from.rank, to.rank, why));
  };
  for (const PeerInfo* rank : {&from, &to}) {
    if (rank->net_plug_in != 0) continue;
    return refuse(fmt::format("rank {} on {} has no network plug-in: {}", rank->rank, rank->host,
                              detail::text(detail::NetPlugInAbsence(rank->net_absence))));
  }
  if (from.net_plug_in != to.net_plug_in) {
    return refuse("their network plug-ins have different names; give both the same CCL_NET");
  }
  return {};
}

Result<PluginTransport::End> PluginTransport::setup(TransportContext& context, const Edge& edge) {
  return End::make(context, edge);
}

}  // namespace ccl
