#include "transport/plug_in/channels.hpp"

#include <ccl/comm/log.hpp>

#include <fmt/format.h>

#include <chrono>
#include <mutex>
#include <thread>
#include <utility>

#include "base/detached_call.hpp"
#include "base/exceptions.hpp"
#include "base/fork_mutex.hpp"
#include "base/made_once.hpp"

namespace ccl::detail {
namespace {
constexpr auto close_limit = std::chrono::seconds{1}, use_limit = std::chrono::seconds{3};

/// Objects that a plug-in did not close. It may still access their memory, which therefore stays
/// until the process ends.
struct Kept {
  std::vector<std::shared_ptr<NetChannels>> all;
  ForkMutex mutex{[this] { renew(all); }};
};
constinit MadeOnce<Kept> kept;

/// Registration of a registered buffer for one channel. Ends with the buffer, or with the channel.
struct UserMemory {
  std::weak_ptr<NetChannels> of;
  std::size_t channel;
  std::shared_ptr<const int> identity;
  void* handle;
  bool ended() const { return of.expired(); }
  ~UserMemory() {
    if (const auto alive = of.lock()) alive->end_user_memory(channel, handle);
  }
};
}  // namespace

NetChannels::NetChannels(std::shared_ptr<NetContext> context, const Edge& edge,
                         std::shared_ptr<LibraryCalls> calls, double creation_limit_s,
                         double operation_limit_s)
    : each(std::size_t(edge.shape.channels)),
      context_{std::move(context)},
      sends_{edge.side == EdgeSide::sender},
      between_{fmt::format(
          "from rank {} on {} to rank {} on {}", sends_ ? edge.self.rank : edge.peer.rank,
          sends_ ? edge.self.host : edge.peer.host, sends_ ? edge.peer.rank : edge.self.rank,
          sends_ ? edge.peer.host : edge.self.host)},
      calls_{std::move(calls)},
      operation_limit_s_{operation_limit_s},
      call_limit_s_{creation_limit_s / 2} {}

void NetChannels::works() {
  call_limit_s_ = operation_limit_s_ / 2;
  limited_by_ = "CCL_TIMEOUT";
}

void NetChannels::leave() {
  left_.store(true);
  if (!begun_.exchange(true)) begun_at_ = std::chrono::steady_clock::now();
}

void NetChannels::abandon() {
  if (closing()) return;
  leave();
  (void)completes([this] {
    const std::lock_guard lock{kept.get().mutex};
    kept.get().all.push_back(shared_from_this());
  });
}

Error NetChannels::overdue(const char* function, double seconds) const {
  const std::string limit = call_limit_s_ > 0 && seconds >= call_limit_s_
                                ? fmt::format("half of {}", limited_by_)
                                : "after the failure or the end of its communicator";
  return {Errc::timed_out,
          fmt::format("{} of the {} has not returned for {:.2g} s ({}), on {} for channel {} {}; "
                      "look there",
                      function, plug_in().text(), seconds, limit,
                      context_->devices()[std::size_t(each[called_for_].device)].name, called_for_,
                      between_)};
}

void NetChannels::begin_close() {
  // A process that exits has perhaps destroyed the library's static objects.
  if (LibraryCalls::have_ended()) return abandon();
  if (begun_.exchange(true)) return;
  begun_at_ = std::chrono::steady_clock::now();
  bool any = false;
  for (const NetChannel& channel : each) any = any || channel.listener || channel.comm;
  if (!any || !context_->is_ours()) {
    closed_.store(true, std::memory_order_release);
    return;
  }
  const auto started = start_detached("the end of a network plug-in's connections",
                                      [self = shared_from_this()] { self->close(); });
  if (!started) {
    log_warn(LogPart::net, "{}; connections of the {} {} stay open", started.error().what,
             plug_in().text(), between_);
  }
}

void NetChannels::await_close() const {
  const auto end = begun_at_ + close_limit;
  while (!closed() && !left_.load() && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::microseconds{100});
  }
}

void NetChannels::close() {
  bool all = true;
  for (std::size_t c = 0; c < each.size(); ++c) all = close_one(each[c], int(c)) && all;
  closed_.store(true, std::memory_order_release);
  if (all) return;
  const std::lock_guard lock{kept.get().mutex};
  kept.get().all.push_back(shared_from_this());
}

Error NetChannels::error(const char* function, int result, std::size_t channel) const {
  return plug_in().error(function, result, fmt::format("for channel {} {}", channel, between_));
}

void* NetChannels::user_memory(RegisteredMemory& memory, std::size_t channel) {
  NetChannel& to = each[channel];
  std::string why;
  const auto known =
      memory.with<UserMemory>(to.identity.get(), [&]() -> std::shared_ptr<UserMemory> {
        if (!memory.fit()) return nullptr;
        void* handle = nullptr;
        const int result = call("regMr", channel, [&] {
          return plug_in().reg(to.comm, memory.base(), std::size_t(memory.bytes()),
                               net_abi::host_memory, &handle);
        });
        if (result == net_abi::success) {
          to.user_memory.push_back(handle);
          used_memory_.store(true);
          return std::shared_ptr<UserMemory>{
              new UserMemory{weak_from_this(), channel, to.identity, handle}};
        }
        why = error("regMr", result, channel).what;
        return nullptr;
      });
  if (known != nullptr) return known->handle;
  if (memory.give_up()) {
    log_warn(LogPart::net, "the registered buffer of {} bytes at {} goes through slots ({})",
             memory.bytes(), static_cast<const void*>(memory.base()), why);
  }
  return nullptr;
}

void NetChannels::end_user_memory(std::size_t channel, void* handle) {
  if (!context_->is_ours() || LibraryCalls::have_ended()) return;
  const auto due = std::make_shared<Due>();
  due->channel = channel;
  due->handle = handle;
  {
    const std::lock_guard lock{due_mutex_};
    due_.push_back(due);
    any_due_.store(true, std::memory_order_release);
  }
  calls_->wake();
  // A thread that gives tasks turns must not wait for one.
  if (LibraryCalls::may_call()) return;
  const auto end = std::chrono::steady_clock::now() + use_limit;
  while (!due->done.load(std::memory_order_acquire) && !closing() &&
         std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::microseconds{50});
  }
  if (due->done.load(std::memory_order_acquire)) return;
  if (closing()) await_close();  // which ends all registrations
  if (closed()) return;
  log_warn(LogPart::net,
           "a registered buffer stays registered with the {} (a call of it {} has "
           "not returned)",
           plug_in().text(), between_);
}

void NetChannels::end_due() {
  while (any_due() && !closing()) {
    std::shared_ptr<Due> due;
    {
      const std::lock_guard lock{due_mutex_};
      due = std::move(due_.back());
      due_.pop_back();
      if (due_.empty()) any_due_.store(false, std::memory_order_release);
    }
    NetChannel& of = each[due->channel];
    std::erase(of.user_memory, due->handle);
    const int result =
        call("deregMr", due->channel, [&] { return plug_in().dereg(of.comm, due->handle); });
    if (result != net_abi::success) {
      log_warn(LogPart::net, "{}", error("deregMr", result, due->channel).what);
    }
    due->done.store(true, std::memory_order_release);
  }
}

void NetChannels::end_access() {
  {
    const auto end = std::chrono::steady_clock::now() + use_limit;
    std::unique_lock lock{use, std::try_to_lock};
    while (!lock.owns_lock() && !closing() && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::microseconds{50});
      (void)lock.try_lock();
    }
    if (lock.owns_lock() && !closing()) {  // no other thread begins to close
      bool any = false;
      for (const NetChannel& channel : each) any = any || !channel.user_memory.empty();
      if (!any) return;
      begin_close();
    }
  }
  await_close();
  if (closed()) return;
  log_warn(LogPart::net,
           "the {} may still access registered buffers of a call that has failed (it "
           "has not closed its connections {})",
           plug_in().text(), between_);
}

bool NetChannels::close_one(NetChannel& channel, int number) {
  bool all = true;
  const auto check = [&](const char* function, int result) {
    if (result == net_abi::success) return;
    all = false;
    log_warn(
        LogPart::net, "{}",
        plug_in().error(function, result, fmt::format("for channel {} {}", number, between_)).what);
  };
  for (void* const handle : channel.user_memory) {
    check("deregMr", plug_in().dereg(channel.comm, handle));
  }
  if (channel.slots != nullptr) check("deregMr", plug_in().dereg(channel.comm, channel.slots));
  if (channel.comm != nullptr) {
    if (sends_) {
      check("closeSend", plug_in().close_send(channel.comm));
    } else {
      check("closeRecv", plug_in().close_recv(channel.comm));
    }
  }
  if (channel.listener != nullptr) check("closeListen", plug_in().close_listen(channel.listener));
  channel = {};
  return all;
}

}  // namespace ccl::detail
