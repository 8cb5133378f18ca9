#include "nccl/plug_in/profiler.hpp"

#include <ccl/comm/log.hpp>
#include <ccl/detail/lanes/host_memory.hpp>
#include <ccl/detail/runtime/settings.hpp>

#include <array>
#include <functional>
#include <mutex>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "base/exceptions.hpp"
#include "base/profiler_mask.hpp"
#include "base/text.hpp"
#include "comm/state.hpp"
#include "nccl/device/devices.hpp"
#include "nccl/plug_in/channel_times.hpp"
#include "nccl/plug_in/profile.hpp"
#include "nccl/plug_in/proxy_call.hpp"
#include "nccl/plug_in/proxy_events.hpp"
#include "plug_in/library.hpp"
#include "proxy/transfer_log.hpp"

namespace ccl::detail::nccl {

/// Communicator of the plug-in, with what follows its proxies.
struct CommProfile {
  Profile profile;
  Communicator comm;
  std::shared_ptr<ProxyEvents> proxies;  // null: no step is noted
  ~CommProfile() {
    if (proxies != nullptr) proxies->close();  // lines of proxies may live longer
  }
};

namespace {

// The members that ccl sets have the same places in these versions.
constexpr std::array<std::string_view, 3> symbols{"ncclProfiler_v7", "ncclProfiler_v6",
                                                  "ncclProfiler_v5"};
constexpr int kinds = int(Kind::recv) + 1;

int wanted_kinds = 0;  // see `profiler_wants`

/// The process's plug-in, or null. It is looked for once.
const ProfilerPlugIn* plug_in() {
  static const auto* const found = [] {
    const auto setting = setting_text("PROFILER_PLUGIN");
    return static_cast<const ProfilerPlugIn*>(
        find_plug_in("profiler", setting ? *setting : "none", symbols).object);
  }();
  return found;
}

const char* function_name(Kind kind) {
  constexpr std::array<const char*, kinds> names{
      "AllReduce", "ReduceScatter", "Reduce",  "AllGather", "Broadcast",
      "AlltoAll",  "Gather",        "Scatter", "Send",      "Recv"};
  return names[std::size_t(kind)];
}

const char* type_name(DataType type) {
  constexpr const char* names[data_type_count] = {
      "ncclInt8",    "ncclInt16",   "ncclInt32",      "ncclInt64",     "ncclUint8",
      "ncclUint16",  "ncclUint32",  "ncclUint64",     "ncclFloat16",   "ncclBfloat16",
      "ncclFloat32", "ncclFloat64", "ncclFloat8e4m3", "ncclFloat8e5m2"};
  return names[int(type)];
}

std::uint64_t tag_of(const Call& call) {
  return call.options == nullptr ? 0 : call.options->profiler_tag;
}

/// Text in capitals that lives as long as the process: the plug-in may keep it.
const char* kept(std::string_view text) {
  static auto& mutex = *new std::mutex;
  static auto& all = *new std::set<std::string, std::less<>>;
  const std::lock_guard lock{mutex};
  return all.insert(upper(text)).first->c_str();
}

using Event = Profile::Event;

// Kinds of events in the event of a collective or a message.
constexpr std::uint64_t of_proxies = event_proxy_op | event_proxy_step | event_net;
constexpr std::uint64_t within = event_kernel_ch | of_proxies;
constexpr std::uint64_t of_collectives = event_coll_api | event_coll | within | event_kernel_launch;
constexpr std::uint64_t of_messages = event_p2p_api | event_p2p | within | event_kernel_launch;

class Profiled final : public Operations {
 public:
  Profiled(std::unique_ptr<Operations> inner, CommProfilePtr with)
      : inner_{std::move(inner)},
        with_{std::move(with)},
        profile_{&with_->profile},
        on_cpu_{with_->comm.peer(with_->comm.rank()).device < 0} {}

  Result<void> run(const Call& call) override {
    if (call.is_message()) return exchange({&call, 1});
    if (!profiler_wants(of_collectives | event_group_api)) {
      ++calls_[std::size_t(call.kind)];  // the same numbers on all ranks, whatever each wants
      return inner_->run(call);
    }
    // First of all, because it may create what the call runs.
    CCL_TRY(const Choice choice, inner_->choice(call));
    const bool captured = is_capturing(call.stream);
    const Event group = begin_group(captured);
    const Event api = begin_api(call, group, captured);
    const Event runs = begin_collective(call, choice, api, group);
    const Event launch = begin_launch(call, api);
    const ProxyCall moves{proxies(captured), with_->comm, call.stream, {{.event = runs.handle()}}};
    return timed({&runs, 1}, channel_events(choice.channels), true,
                 [&] { return inner_->run(call); });
  }

  Result<double> predict(const Call& call) const override { return inner_->predict(call); }
  Result<Choice> choice(const Call& call) override { return inner_->choice(call); }

  Result<void> exchange(std::span<const Call> messages) override {
    if (!profiler_wants(of_messages | event_group_api)) return inner_->exchange(messages);
    const bool captured = is_capturing(messages.front().stream);  // where all of them run
    const Event group = begin_group(captured);
    std::vector<Event> apis, runs;
    for (const Call& one : messages) {
      apis.push_back(begin_api(one, group, captured));
      runs.push_back(begin_message(one, apis.back(), group));
    }
    const Event launch = begin_launch(messages.front(), apis.front());
    std::vector<ProxyEvents::Parent> parents;
    for (std::size_t n = 0; n < runs.size(); ++n) {
      parents.push_back({messages[n].root, messages[n].kind == Kind::send, runs[n].handle()});
    }
    const ProxyCall moves{proxies(captured), with_->comm, messages.front().stream,
                          std::move(parents)};
    // Which channels carry a message is not known.
    return timed(runs, channel_events(), false, [&] { return inner_->exchange(messages); });
  }

 private:
  /// The rank's events of its proxy, if the plug-in wants those of a call.
  std::shared_ptr<ProxyEvents> proxies(bool captured) const {
    return !captured && profiler_wants(of_proxies) ? with_->proxies : nullptr;
  }

  Event begin_group(bool captured) {
    EventDescription what = profile_->description(event_group_api, nullptr);
    what.group_api = {captured, 1};
    Event group{*profile_, what};
    group.record(state_group_start_api_stop);
    group.record(state_group_end_api_start);
    return group;
  }

  Event begin_api(const Call& call, const Event& group, bool captured) {
    const auto count = std::size_t(call.count);
    if (call.is_message()) {
      EventDescription what = profile_->description(event_p2p_api, group.handle());
      what.p2p_api = {function_name(call.kind),
                      count,
                      type_name(call.type),
                      call.stream,
                      captured,
                      tag_of(call)};
      return {*profile_, what};
    }
    EventDescription what = profile_->description(event_coll_api, group.handle());
    what.coll_api = {function_name(call.kind),
                     count,
                     type_name(call.type),
                     call.root,
                     call.stream,
                     captured,
                     tag_of(call)};
    return {*profile_, what};
  }

  Event begin_collective(const Call& call, const Choice& choice, const Event& api,
                         const Event& group) {
    const std::uint64_t number = calls_[std::size_t(call.kind)]++;
    if (!profiler_wants(event_coll | within)) return {};
    const std::string_view all = choice.composition;
    const auto slash = std::min(all.find('/'), all.size());
    EventDescription what = profile_->description(event_coll, api.handle());
    what.coll = {};
    what.coll.number = number;
    what.coll.func = function_name(call.kind);
    what.coll.send = call.send;
    what.coll.recv = call.recv;
    what.coll.count = std::size_t(call.count);
    what.coll.root = call.root;
    what.coll.type = type_name(call.type);
    what.coll.channels = std::uint8_t(channel_events(choice.channels));
    what.coll.warps = std::uint8_t(std::min((choice.lanes + 31) / 32, 255));
    what.coll.algo = kept(all.substr(0, slash));
    what.coll.proto = kept(all.substr(std::min(slash + 1, all.size())));
    what.coll.group = group.handle();
    what.coll.tag = tag_of(call);
    return {*profile_, what};
  }

  Event begin_message(const Call& call, const Event& api, const Event& group) {
    if (!profiler_wants(event_p2p | within)) return {};
    EventDescription what = profile_->description(event_p2p, api.handle());
    void* const buffer = call.kind == Kind::send ? const_cast<void*>(call.send) : call.recv;
    what.p2p = {function_name(call.kind), buffer,      type_name(call.type),
                std::size_t(call.count),  call.root,   std::uint8_t(channel_events()),
                group.handle(),           tag_of(call)};
    return {*profile_, what};
  }

  Event begin_launch(const Call& call, const Event& api) {
    if (on_cpu_ || !profiler_wants(event_kernel_launch)) return {};
    EventDescription what = profile_->description(event_kernel_launch, api.handle());
    what.kernel_launch.stream = call.stream;
    return {*profile_, what};
  }

  /// Number of channel events that follow in the event of a call or a message, for which a plug-in
  /// waits. The time of GPU kernels is not known.
  int channel_events(int channels = 1) const {
    constexpr int max_number = 255;  // that the description takes
    return on_cpu_ && profiler_wants(event_kernel_ch) ? std::clamp(channels, 1, max_number) : 0;
  }

  /// Runs the call. Then each of `runs` gets events of `channels` channels. With `by_lanes` they
  /// have the times that the lanes have noted, else those of the call.
  template <class Run>
  Result<void> timed(std::span<const Event> runs, int channels, bool by_lanes, Run&& run) {
    if (channels == 0) return run();
    const FlightRecorder* const recorder = Access::state(with_->comm)->observers.recorder();
    const Word before = recorder == nullptr ? 0 : recorder->latest_ticket();
    ChannelTimes call;
    call.begun = HostMemory::now_ns();
    auto done = run();
    call.ended = HostMemory::now_ns();
    std::vector<ChannelTimes> times(std::size_t(channels), call);
    if (by_lanes && recorder != nullptr) {
      const auto of_lanes = channel_times(with_->comm, before, channels);
      for (std::size_t c = 0; c < of_lanes.size(); ++c) {
        if (of_lanes[c].ended != 0) times[c] = of_lanes[c];
      }
    }
    for (const Event& one : runs) {
      for (int c = 0; c < channels; ++c) tell_channel(one, c, times[std::size_t(c)]);
    }
    return done;
  }
  void tell_channel(const Event& of, int channel, const ChannelTimes& times) {
    EventDescription what = profile_->description(event_kernel_ch, of.handle());
    what.kernel_ch = {std::uint8_t(channel), times.begun};
    EventStateArguments end;
    end.timer = times.ended;
    Event{*profile_, what}.record(state_kernel_ch_stop, end);
  }

  const std::unique_ptr<Operations> inner_;
  const CommProfilePtr with_;
  Profile* const profile_;
  const bool on_cpu_;
  std::array<std::uint64_t, kinds> calls_{};
};

}  // namespace

bool profiler_wants(std::uint64_t any_of) {
  return (std::uint64_t(unsigned(__atomic_load_n(&wanted_kinds, __ATOMIC_RELAXED))) & any_of) != 0;
}

void prepare_profiler() {
  constexpr int kept_steps = 64;  // so that tasks tell of their steps
  if (plug_in() != nullptr) TransferLog::keep_at_least(kept_steps);
}

void CommProfileEnd::operator()(CommProfile* ended) const {
  delete ended;
}

CommProfilePtr start_profile(const Communicator& comm, std::string_view family,
                             const std::string& name) {
  const ProfilerPlugIn* const with = plug_in();
  if (with == nullptr) return {};
  profiler_mask = &wanted_kinds;  // the health service may set it
  void* context = nullptr;
  const auto id = std::hash<std::string_view>{}(family);
  // A plug-in may be switched off, and then leaves the context null.
  if (with->init(&context, id, &wanted_kinds, name.empty() ? nullptr : name.c_str(),
                 Access::state(comm)->identity.hosts(), comm.ranks(), comm.rank(),
                 log_of_plug_in) != ncclSuccess) {
    log_info(LogPart::init, "the profiler plug-in refuses this communicator");
    return {};
  }
  if (context == nullptr) return {};
  CommProfilePtr made{new CommProfile{{*with, context, comm.rank()}, comm, {}}};
  TransferLog* const transfers = Access::state(comm)->proxy.transfers();
  if (transfers != nullptr) {
    made->proxies = std::make_shared<ProxyEvents>(made->profile);
    transfers->set_listener(made->proxies);
  }
  return made;
}

std::unique_ptr<Operations> profiled(std::unique_ptr<Operations> operations,
                                     CommProfilePtr profile) {
  if (profile == nullptr) return operations;
  return std::make_unique<Profiled>(std::move(operations), std::move(profile));
}

}  // namespace ccl::detail::nccl
