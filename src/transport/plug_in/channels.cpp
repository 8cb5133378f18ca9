#include "transport/plug_in/channels.hpp"

#include <ccl/comm/log.hpp>

#include <fmt/format.h>

#include <chrono>
#include <mutex>
#include <thread>
#include <utility>

#include "base/detached_call.hpp"
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

NetChannels::NetChannels(std::shared_ptr<NetContext> context, const Edge& edge)
    : each(std::size_t(edge.shape.channels)),
      context_{std::move(context)},
      sends_{edge.side == EdgeSide::sender},
      between_{fmt::format(
          "from rank {} on {} to rank {} on {}", sends_ ? edge.self.rank : edge.peer.rank,
          sends_ ? edge.self.host : edge.peer.host, sends_ ? edge.peer.rank : edge.self.rank,
          sends_ ? edge.peer.host : edge.self.host)} {}

void NetChannels::begin_close() {
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
  while (!closed() && std::chrono::steady_clock::now() < end) {
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
        const int result = plug_in().reg(to.comm, memory.base(), std::size_t(memory.bytes()),
                                         net_abi::host_memory, &handle);
        if (result == net_abi::success) {
          to.user_memory.push_back(handle);
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
  if (!context_->is_ours()) return;
  std::unique_lock lock{use, use_limit};
  if (!lock.owns_lock()) {
    log_warn(LogPart::net,
             "a registered buffer stays registered with the {} (a call of it {} has "
             "not returned)",
             plug_in().text(), between_);
    return;
  }
  if (closing()) {  // which ends all registrations
    lock.unlock();
    return await_close();
  }
  std::erase(each[channel].user_memory, handle);
  const int result = plug_in().dereg(each[channel].comm, handle);
  if (result != net_abi::success) {
    log_warn(LogPart::net, "{}", error("deregMr", result, channel).what);
  }
}

void NetChannels::end_access() {
  {
    const std::unique_lock lock{use, use_limit};
    bool any = false;
    for (const NetChannel& channel : each) any = any || !channel.user_memory.empty();
    if (lock.owns_lock() && !any && !closing()) return;
    if (lock.owns_lock()) begin_close();
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
