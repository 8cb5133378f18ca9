#include "transport/collnet/rail.hpp"

#include <ccl/comm/log.hpp>
#include <ccl/detail/runtime/proxy_engine.hpp>
#include <ccl/transport/collnet.hpp>

#include <fmt/format.h>

#include <utility>

#include "base/detached_call.hpp"
#include "base/numa.hpp"
#include "gpu/memory.hpp"
#include "transport/proxied/cause.hpp"
#include "transport/unprotected.hpp"
#include "transport/wire_layout.hpp"

namespace ccl::detail::collnet {
namespace {

/// Owner of the lanes' end: when it is destroyed, the task ends by itself.
struct LanesEnd {
  explicit LanesEnd(std::shared_ptr<Rail> of) : rail{std::move(of)} {}
  LanesEnd(const LanesEnd&) = delete;
  LanesEnd& operator=(const LanesEnd&) = delete;
  ~LanesEnd() {
    rail->closing.store(true, std::memory_order_release);
    rail->context.wake();
  }
  const std::shared_ptr<Rail> rail;
  HostPin pin;  // only lanes need it, so it may end before the rail
};

/// Objects of the plug-in that a rail has, for the thread that gives them back.
struct Held {
  PlugIn plug_in;
  void *listener, *group, *up_memory, *down_memory;
  Mapping memory;

  void give_back() const {
    const GroupFunctions& of = plug_in.group();
    const auto call = [&](const char* function, int code) {
      if (code == 0) return;
      log_warn(LogPart::net, "the CollNet plug-in {} failed in {} with {}", plug_in.text(),
               function, code_text(code));
    };
    for (void* const one : {up_memory, down_memory}) {
      if (one != nullptr) call("deregMr", of.deregister_memory(group, one));
    }
    if (group != nullptr) call("closeColl", of.close_group(group));
    if (listener != nullptr) call("closeListen", of.close_listener(listener));
  }
};

Result<std::shared_ptr<LanesEnd>> make_memory(Rail& rail, const std::shared_ptr<Rail>& shared,
                                              WireShape shape, RailWires& lanes) {
  shape.channels = 2;  // up and down
  CCL_TRY(const auto layout, WireLayout::of(shape));
  CCL_TRY(rail.memory, Mapping::anonymous(layout.bytes()));
  std::byte* const base = rail.memory.base();
  prefer_node(base, layout.bytes(), rail.context.numa);
  rail.up = layout.wires(base, EdgeSide::sender, true)[0];
  rail.down = layout.wires(base, EdgeSide::receiver, true)[1];
  lanes.up = rail.up;
  lanes.down = rail.down;
  auto end = std::make_shared<LanesEnd>(shared);
  if (rail.context.arena != nullptr) {
    rail.polled = true;
    CCL_TRY(end->pin, HostPin::make(rail.context.arena->gpu(), base, layout.bytes()));
    lanes.up = layout.wires(end->pin.on_device(), EdgeSide::sender, true)[0];
    lanes.down = layout.wires(end->pin.on_device(), EdgeSide::receiver, true)[1];
  }
  return end;
}

}  // namespace

Rail::~Rail() {
  if (network == nullptr || network->is_stuck()) {
    // A call that has not returned may still use the memory.
    if (network != nullptr && memory.base() != nullptr) (void)new Mapping{std::move(memory)};
    return;
  }
  if (listener == nullptr && group == nullptr) return;
  auto held = std::make_shared<Held>(
      Held{network->plug_in(), listener, group, up_memory, down_memory, std::move(memory)});
  const auto closed = start_detached("a CollNet plug-in", [held, network = network] {
    held->give_back();
    return 0;
  });
  if (!closed || returns_within(*closed, close_limit_s)) return;
  log_warn(LogPart::net, "the CollNet plug-in {} has not closed a group for {} s",
           network->plug_in().text(), close_limit_s);
}

Error Rail::annotated(Error error) const {
  error.rank = rank;
  error.host = host;
  error.transport = CollNetTransport::name;
  return error;
}

void Rail::fail_with(const char* function, int code) const {
  constexpr int remote_error = 6;
  // Another head may have told why.
  const auto leaving = [this] { return closing.load(); };
  if (code == remote_error && !await_cause(context.status, -1, leaving)) return;
  context.fail_communicator(annotated(network->failed(function, code)));
}

Error Rail::left_in_call(const char* function, double seconds) const {
  network->give_up();
  const double operation_limit_s = context.proxy->operation_limit_s();
  const bool late = operation_limit_s > 0 && seconds >= operation_limit_s / 2;
  const Error error = annotated(
      {Errc::timed_out,
       fmt::format(
           "the CollNet plug-in {} has not returned from {} for {:.2g} s ({}), on {} for "
           "channel {}; look there, or unset CCL_COLLNET_ENABLE",
           network->plug_in().text(), function, seconds,
           late ? "half of CCL_TIMEOUT" : "after the failure or the end of its communicator",
           network->devices()[std::size_t(device)].name, channel)});
  log_warn(LogPart::net, "{}; its thread and the memory that it uses are left to it", error.what);
  if (!closing.load()) context.fail_communicator(error);
  return error;
}

Result<Rails> Rails::listen(const Request& request, std::span<const int> channels) {
  Rails made;
  made.limit_s_ = request.context.deadline_s;
  if (channels.empty()) return made;  // a rank that is no head has no device
  warn_if_unprotected("the CollNet plug-in " + request.network->plug_in().text());
  const int most = request.network->devices()[std::size_t(request.device)].max_groups;
  if (most > 0 && int(channels.size()) > most) {
    return fail(
        Errc::not_supported,
        fmt::format("the CollNet plug-in {} has at most {} groups on a device (a head has {} "
                    "channels); set Config::channels or the plan's to fewer",
                    request.network->plug_in().text(), most, channels.size()));
  }
  for (const int channel : channels) {
    auto rail = std::make_shared<Rail>();
    rail->network = request.network;
    rail->context = request.context;
    rail->rank = request.rank;
    rail->host = request.host;
    rail->device = request.device;
    rail->channel = channel;
    RailWires lanes;
    CCL_TRY(lanes.owner, make_memory(*rail, rail, request.shape, lanes));
    made.lanes_.push_back(std::move(lanes));
    made.rails_.push_back(std::move(rail));
  }
  if (made.rails_.empty()) return made;
  auto listened = request.network->within(
      made.limit_s_, [rails = made.rails_](Context::Calls& calls) -> Result<void> {
        for (const auto& rail : rails) {
          CCL_CHECK(calls.run("listen", [&] {
            return rail->network->plug_in().listen(rail->network->handle(), rail->device,
                                                   rail->handle.data(), &rail->listener);
          }));
        }
        return {};
      });
  if (!listened) return fail(made.rails_[0]->annotated(std::move(listened).error()));
  return made;
}

Result<void> Rails::connect(const std::vector<std::vector<RailHandle>>& handles, int host) {
  if (rails_.empty()) return {};
  const auto connect_all = [rails = rails_, handles = handles,
                            host](Context::Calls& calls) mutable -> Result<void> {
    for (std::size_t n = 0; n < rails.size(); ++n) {
      Rail& rail = *rails[n];
      rail.host_index = host;
      const GroupFunctions& of = rail.network->plug_in().group();
      std::vector<void*> all;
      for (RailHandle& one : handles[n]) all.push_back(one.data());
      CCL_CHECK(calls.run("connect", [&] {
        return of.connect(all.data(), int(all.size()), host, rail.listener, &rail.group);
      }));
      const auto bytes =
          std::size_t(rail.up.slot_count) * std::size_t(rail.up.slot_packets) * sizeof(Packet);
      CCL_CHECK(calls.run("regMr", [&] {
        return of.register_memory(rail.group, rail.up.slots, bytes, host_memory, &rail.up_memory);
      }));
      CCL_CHECK(calls.run("regMr", [&] {
        return of.register_memory(rail.group, rail.down.slots, bytes, host_memory,
                                  &rail.down_memory);
      }));
    }
    return {};
  };
  auto connected = rails_[0]->network->within(limit_s_, connect_all);
  if (!connected) return fail(rails_[0]->annotated(std::move(connected).error()));
  return {};
}

Result<std::vector<RailWires>> Rails::start() {
  for (const auto& rail : rails_) {
    CCL_TRY(rail->calls, rail->context.proxy->library_calls());
    CCL_CHECK(rail->context.add(make_rail_task(rail)));
  }
  return std::move(lanes_);
}

}  // namespace ccl::detail::collnet
