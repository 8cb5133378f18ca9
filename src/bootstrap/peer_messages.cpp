#include "bootstrap/peer_messages.hpp"

#include <fmt/format.h>

#include "bootstrap/core.hpp"

namespace ccl::detail {

using namespace net;

namespace {
constexpr size_t max_unclaimed_bytes = size_t{1} << 28;  // of one peer; one message may be larger
// Memory beside the payload. Without it, empty messages would cost nothing.
constexpr size_t queue_bytes = 768, message_bytes = 64;
}  // namespace

Result<void> PeerMessages::check_unclaimed(const Lock&, int peer) const {
  const auto held = unclaimed_bytes_.find(peer);
  if (held == unclaimed_bytes_.end() || held->second <= max_unclaimed_bytes) return {};
  Error e;
  e.code = Errc::out_of_memory;
  e.what = fmt::format(
      "rank {} has sent {} MiB of messages that this rank does not receive; "
      "receive them, or send fewer at once",
      peer, held->second >> 20);
  return core_.membership().failed_at(peer, std::move(e));
}

Result<void> PeerMessages::send(int peer, std::uint64_t tag, const void* data, Index bytes,
                                double limit_s) {
  const Bytes payload{static_cast<const std::byte*>(data), size_t(bytes)};
  const int rank = core_.membership().rank;
  Lock lock = Engine::get().lock();
  CCL_CHECK(core_.shutdown().usable(lock));
  if (peer == rank) {
    CCL_CHECK(check_unclaimed(lock, peer));
    keep(lock, peer, tag, payload);
    core_.waits().notify(lock);
    return {};
  }
  CCL_TRY(const auto conn, conn_to(lock, peer, limit_s));
  conn->send(FrameKind::message, rank, tag, payload);
  return {};
}

// A peer keeps its connection while that is open, so messages stay in order.
std::shared_ptr<Conn> PeerMessages::open_conn(const Lock&, int peer) {
  PeerSockets& sockets = core_.sockets();
  const Membership& members = core_.membership();
  auto& out = sockets.out[peer];
  if (out && out->is_open()) return out;
  const auto incoming = sockets.in.find(peer);
  if (peer == members.next_peer() && sockets.next->is_open()) return out = sockets.next;
  if (peer == members.prev_peer() && sockets.prev->is_open()) return out = sockets.prev;
  if (incoming != sockets.in.end() && incoming->second->is_open()) return out = incoming->second;
  return nullptr;
}

Result<SecureSocket> PeerMessages::dial(Lock& lock, const Member& to, const Deadline& deadline) {
  const Membership& members = core_.membership();
  const Hello hello{HelloKind::peer, members.ranks, 0, 0, members.me};
  lock.unlock();
  auto socket = without_exceptions([&] {
    return auth_connect(Address{to.listen}, members.secret, bytes_of(hello), deadline,
                        &core_.status(), Listener::has_started);
  });
  lock.lock();
  return socket;
}

Result<std::shared_ptr<Conn>> PeerMessages::conn_to(Lock& lock, int peer, double limit_s) {
  const Membership& members = core_.membership();
  const Deadline deadline = limit_s > 0 ? Deadline::after(limit_s) : members.deadline();
  while (dialed_.contains(peer)) {
    core_.waits().sleep(lock, std::chrono::milliseconds{50});
    CCL_CHECK(core_.shutdown().usable(lock));
    if (!deadline.passed()) continue;
    return fail(
        members.failed_at(peer, {Errc::timed_out, "another thread still connects to it"}).error());
  }
  if (auto open = open_conn(lock, peer)) return open;
  if (core_.status().has_departed(peer)) core_.shutdown().lose_departed(lock, peer);
  CCL_CHECK(core_.shutdown().usable(lock));
  const Member& to = members.members[size_t(peer)];
  dialed_.insert(peer);
  auto socket = dial(lock, to, deadline);
  dialed_.erase(peer);
  core_.waits().notify(lock);
  if (auto usable = core_.shutdown().usable(lock); !usable) return fail(usable.error());
  if (!socket && core_.status().has_departed(peer)) {  // meanwhile
    core_.shutdown().lose_departed(lock, peer);
    CCL_CHECK(core_.shutdown().usable(lock));
  }
  if (!socket) {
    Error error = std::move(socket).error();
    if (error.code == Errc::timed_out && limit_s > 0) {
      error.what +=
          fmt::format(": no connection within {} s; look there, or raise CCL_TIMEOUT", limit_s);
    }
    return fail(members.failed_at(peer, std::move(error)).error());
  }
  auto& out = core_.sockets().out[peer];
  CCL_TRY(out, core_.start(lock, std::move(*socket), PeerRole::peer, to));
  return out;
}

Result<std::vector<std::byte>> PeerMessages::recv(int peer, std::uint64_t tag,
                                                  std::optional<double> limit_s,
                                                  const WaitLabel& label) {
  Lock lock = Engine::get().lock();
  const std::pair key{peer, tag};
  const auto arrived = [&] {  // without memory, a message leaves an empty place
    const auto at = inbox_.find(key);
    return at != inbox_.end() && !at->second.empty();
  };
  CCL_CHECK(core_.waits().wait(
      lock, arrived, label.what, [&] { return std::vector{peer}; }, limit_s, label.setting, peer));
  return take(lock, inbox_.find(key));
}

std::vector<std::pair<Bootstrap::Source, std::vector<std::byte>>> PeerMessages::recv_any(
    std::span<const Source> sources, double limit_s) {
  std::vector<std::pair<Source, std::vector<std::byte>>> found;
  const auto due = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                      std::chrono::duration<double>(limit_s));
  Lock lock = Engine::get().lock();
  for (;;) {
    for (const Source& from : sources) {
      const auto queue = [&] { return inbox_.find({from.peer, from.tag}); };
      for (auto it = queue(); it != inbox_.end() && !it->second.empty(); it = queue()) {
        found.emplace_back(from, take(lock, it));
      }
    }
    if (!found.empty() || Clock::now() >= due || !core_.shutdown().usable(lock)) return found;
    core_.waits().sleep_until(lock, due);
  }
}

void PeerMessages::set_listener(std::uint64_t tag, MessageListener listener) {
  const Lock lock = Engine::get().lock();
  if (listener) {
    listeners_[tag] = std::move(listener);
  } else {
    listeners_.erase(tag);
  }
}

void PeerMessages::on_message(const Lock& lock, const FrameHeader& h, Bytes payload) {
  if (const auto listener = listeners_.find(h.tag); listener != listeners_.end()) {
    return listener->second(h.rank, payload);
  }
  if (auto fits = check_unclaimed(lock, h.rank); !fits) {
    return core_.shutdown().on_error(lock, std::move(fits).error());
  }
  keep(lock, h.rank, h.tag, payload);
  core_.waits().notify(lock);
}

void PeerMessages::keep(const Lock&, int peer, std::uint64_t tag, Bytes payload) {
  size_t& held = unclaimed_bytes_[peer];  // before the message is there: may need memory
  const auto [queue, is_new] = inbox_.try_emplace({peer, tag});
  if (is_new) held += queue_bytes;
  queue->second.emplace_back(payload.begin(), payload.end());
  held += message_bytes + payload.size();
}

std::vector<std::byte> PeerMessages::take(const Lock&, Inbox::iterator queue) {
  auto message = std::move(queue->second.front());
  queue->second.pop_front();
  const bool is_last = queue->second.empty();
  unclaimed_bytes_[queue->first.first] -=
      (is_last ? queue_bytes : 0) + message_bytes + message.size();
  if (is_last) inbox_.erase(queue);
  return message;
}

}  // namespace ccl::detail
