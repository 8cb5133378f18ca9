#include "transport/proxied/end.hpp"

#include <ccl/comm/log.hpp>
#include <ccl/detail/runtime/settings.hpp>
#include <ccl/transport/ib.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>

#include "base/fork_mutex.hpp"
#include "base/made_once.hpp"
#include "base/numa.hpp"
#include "gpu/devices.hpp"
#include "transport/ib/gpu/proof.hpp"
#include "transport/ib/link.hpp"
#include "transport/ib/link_ports.hpp"
#include "transport/registered_memory.hpp"
#include "transport/unprotected.hpp"

namespace ccl {
namespace detail {
namespace {
// A step is one message; devices take 1 GiB (max_msg_sz; the specification allows 2 GiB).
constexpr Index max_slot_bytes = Index{1} << 30;

/// Trials of GPU memory, so that each device makes one for each GPU and not one for each
/// connection: one that fails takes seconds. They count as long as the device is open.
class GpuMemoryProofs {
 public:
  static GpuMemoryProofs& get() {
    static constinit MadeOnce<GpuMemoryProofs> one;
    return one.get();
  }
  /// Returns the reason for which a trial failed, empty if it passed, or nothing if none was made.
  std::optional<std::string> find(const std::shared_ptr<IbDevice>& device, std::int64_t gpu,
                                  bool remotely) {
    const std::lock_guard lock{mutex_};
    const auto found = made_.find({device->name(), gpu, remotely});
    if (found == made_.end() || found->second.device.lock() != device) return {};
    return found->second.why;
  }
  void add(const std::shared_ptr<IbDevice>& device, std::int64_t gpu, bool remotely,
           std::string why) {
    const std::lock_guard lock{mutex_};
    made_[{device->name(), gpu, remotely}] = {device, std::move(why)};
  }

 private:
  struct Trial {
    std::weak_ptr<IbDevice> device;
    std::string why;
  };
  std::map<std::tuple<std::string, std::int64_t, bool>, Trial> made_;
  ForkMutex mutex_{[this] { renew(made_); }};
};
}  // namespace

Result<void> IbLink::prepare() {
  warn_if_unprotected("RDMA");
  const WireShape& shape = edge.shape;
  if (shape.slot_bytes > max_slot_bytes) {
    return fail(Errc::invalid_argument, fmt::format("slots of {} bytes are too large for ib (at "
                                                    "most {}); use smaller ones",
                                                    shape.slot_bytes, max_slot_bytes));
  }
  CCL_TRY(tuning, IbTuning::from_settings());
  CCL_TRY(completions, IbCompletions::of(context.proxy));
  if (context.traffic_class >= 0) tuning.traffic_class = context.traffic_class;
  const std::size_t slots = std::size_t(shape.channels) * std::size_t(shape.slot_count);
  CCL_TRY(slot_table, Mapping::anonymous((slots + 1) * sizeof(IbSlot)));
  prefer_node(slot_table.base(), slot_table.bytes(), context.numa);
  freed.resize(std::size_t(shape.channels));
  enter();
  CCL_TRY(const Index wanted, setting_integer("IB_GPU_MEMORY"));
  if (wanted == 0 || !may_use_gpu_memory(context.arena)) return {};
  const bool near = !edge.nics.names.empty() && edge.nics.no_gpu_access.empty();
  if (wanted > 0 || near) return place_on_gpu();
  stage(edge.nics.names.empty() ? "the topology knows no NIC" : edge.nics.no_gpu_access);
  return {};
}

void IbLink::prepare_wires() {
  if (polled) return;  // lanes of a GPU lend nothing
  for (Wire& wire : wires) {
    wire.zero_copy = &zero_copies.emplace_back(edge.shape.slot_count, ZeroCopy::Memory::registered);
    wire.zero_copy->set_accesses(*this);
  }
}

std::shared_ptr<IbMemory> IbLink::user_memory(RegisteredMemory& memory, const IbPort& port) const {
  std::string why;
  auto made = memory.with<IbMemory>(port.device.get(), [&]() -> std::shared_ptr<IbMemory> {
    if (!memory.fit()) return nullptr;
    auto registered =
        port.device->user_memory(memory.base(), std::size_t(memory.bytes()), buffer_access());
    if (registered) return *std::move(registered);
    why = registered.error().what;
    return nullptr;
  });
  if (made == nullptr && memory.give_up()) {
    log_warn(LogPart::net, "the registered buffer of {} bytes at {} goes through slots ({})",
             memory.bytes(), static_cast<const void*>(memory.base()), why);
  }
  return made;
}

bool IbLink::open_to_peer(std::vector<IbQp*> pairs) {
  const std::lock_guard lock{pairs_mutex_};
  pairs_ = std::move(pairs);
  return !closed_;
}

void IbLink::close_to_peer() {
  {
    const std::lock_guard lock{pairs_mutex_};
    if (closed_.exchange(true)) return;
    for (IbQp* const pair : pairs_) pair->stop();
  }
  wake();
}

void IbLink::stage(const std::string& why) const {
  log_info(LogPart::net, "slots {} rank {} are staged in host memory ({})",
           edge.side == EdgeSide::sender ? "to" : "from", edge.peer.rank, why);
}

std::string IbLink::trial(const IbPort& port, double& left_s) {
  const bool remotely = edge.side == EdgeSide::receiver && tuning.flush;
  const std::int64_t gpu = edge.nics.relay >= 0 ? edge.nics.relay : edge.self.bus_id;
  if (auto known = GpuMemoryProofs::get().find(port.device, gpu, remotely)) return *known;
  if (left_s <= 0) return "the trials of others took all of the time";
  const bool whole = left_s >= trial_limit_s();
  const auto began = std::chrono::steady_clock::now();
  std::string why = prove_gpu_slots(*gpu_slots, port, remotely, tuning, left_s);
  left_s -= std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  // One that was cut short by the trials before it says nothing of the device.
  if (why.empty() || whole) GpuMemoryProofs::get().add(port.device, gpu, remotely, why);
  return why;
}

Result<void> IbLink::place_on_gpu() {
  CCL_TRY(const IbPorts found, find_ib_ports());
  const WireShape& shape = edge.shape;
  const auto bytes =
      std::size_t(shape.channels) * std::size_t(shape.slot_count) * std::size_t(shape.slot_bytes);
  std::string why;
  const IbLinkPorts chosen = ports_of_link(found.ports, edge.nics, shape.channels);
  const auto standby = chosen.ports.begin() + std::ptrdiff_t(chosen.used);
  CCL_TRY(gpu_slots, IbGpuSlots::make({context.proxy, context.arena, edge.nics.relay}, bytes,
                                      {chosen.ports.begin(), standby}, slot_access(true), why));
  for (auto port = chosen.ports.begin(); gpu_slots && port != standby; ++port) {
    double left_s = trial_limit_s();
    why = trial(*port, left_s);
    if (why.empty()) continue;
    gpu_slots.reset();
    tried.push_back(port->device);
  }
  if (!gpu_slots) {
    stage(why);
    return {};
  }
  try_standby({standby, chosen.ports.end()});
  slots_elsewhere = gpu_slots->base();
  log_info(LogPart::net, "slots {} rank {} lie in memory of GPU {}, by {}; GDRCopy is {}",
           edge.side == EdgeSide::sender ? "to" : "from", edge.peer.rank,
           bus_id_text(edge.nics.relay >= 0 ? edge.nics.relay : edge.self.bus_id),
           gpu_slots->scope() == GpuReach::dma_buf ? "DMA-BUF" : "nvidia-peermem",
           gpu_calls().has_gdrcopy() ? "there, and not used" : "not there");
  return {};
}

void IbLink::try_standby(std::span<const IbPort> ports) {
  double left_s = trial_limit_s();
  for (const IbPort& port : ports) {
    const auto registered = gpu_slots->with(port.device);
    const std::string why = registered ? trial(port, left_s) : registered.error().what;
    if (why.empty()) continue;
    tried.push_back(port.device);
    unfit.push_back(port.device);
    log_info(LogPart::net, "{} does not stand by for rank {} ({})", port.text(), edge.peer.rank,
             why);
  }
}

unsigned IbLink::slot_access(bool of_gpu) const {
  if (edge.side == EdgeSide::sender) return IBV_ACCESS_LOCAL_WRITE;
  // Only data: a table's lines are complete with their last word, without a completion.
  return unsigned(IBV_ACCESS_LOCAL_WRITE) | unsigned(IBV_ACCESS_REMOTE_WRITE) |
         (of_gpu && tuning.flush ? unsigned(IBV_ACCESS_REMOTE_READ) : 0u) |  // see IbFlush
         (tuning.relaxed ? unsigned(IBV_ACCESS_RELAXED_ORDERING) : 0u);
}

Result<void> IbLink::receive(const std::shared_ptr<IbLink>& link) {
  return link->context.proxy->add(make_ib_receiver(link));
}

Result<void> IbLink::send(const std::shared_ptr<IbLink>& link, std::size_t,
                          net::SecureSocket socket) {
  return link->context.proxy->add(make_ib_sender(link, std::move(socket)));
}

template class ProxiedEnd<IbLink>;

}  // namespace detail

Result<IbTransport::End> IbTransport::setup(TransportContext& context, const Edge& edge) {
  return End::make(context, edge);
}

}  // namespace ccl
