#include "bootstrap/core.hpp"

namespace ccl::detail {

using namespace net;

Result<void> Bootstrap::Core::send(int peer, std::uint64_t tag, const void* data, Index bytes) {
  const Bytes payload{static_cast<const std::byte*>(data), size_t(bytes)};
  const std::lock_guard dialing{dialing_};
  Lock lock{mutex()};
  CCL_CHECK(usable());
  if (peer == rank_) {
    inbox_[{peer, tag}].emplace_back(payload.begin(), payload.end());
    changed_.notify_all();
    return {};
  }
  auto& out = out_[peer];  // one connection per peer for ever: messages stay in order
  if (!out || !out->is_open()) {
    const auto incoming = in_.find(peer);
    if (peer == next_peer() && next_->is_open()) {
      out = next_;
    } else if (peer == prev_peer() && prev_->is_open()) {
      out = prev_;
    } else if (incoming != in_.end() && incoming->second->is_open()) {
      out = incoming->second;
    } else {
      const Member& to = members_[size_t(peer)];
      const Hello hello{HelloKind::peer, ranks_, 0, 0, me_};
      lock.unlock();
      auto fd = auth_connect(Address{to.listen}, secret_, bytes_of(hello), deadline(), status_);
      lock.lock();
      CCL_CHECK(usable());
      if (!fd) return failed_at(peer, std::move(fd).error());
      CCL_TRY(out, start(std::move(*fd), Role::peer, to));
    }
  }
  out->send(FrameKind::message, rank_, tag, payload);
  return {};
}

Result<std::vector<std::byte>> Bootstrap::Core::recv(int peer, std::uint64_t tag,
                                                     std::optional<double> limit_s) {
  Lock lock{mutex()};
  const std::pair key{peer, tag};
  const auto arrived = [&] { return inbox_.contains(key); };
  CCL_CHECK(wait(
      lock, arrived, "recv", [&] { return std::vector{peer}; }, limit_s));
  const auto it = inbox_.find(key);
  auto message = std::move(it->second.front());
  it->second.pop_front();
  if (it->second.empty()) inbox_.erase(it);
  return message;
}

std::vector<std::pair<Bootstrap::Source, std::vector<std::byte>>> Bootstrap::Core::recv_any(
    std::span<const Source> sources, double limit_s) {
  std::vector<std::pair<Source, std::vector<std::byte>>> found;
  const auto due = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                      std::chrono::duration<double>(limit_s));
  Lock lock{mutex()};
  for (;;) {
    for (const Source& from : sources) {
      const auto it = inbox_.find({from.peer, from.tag});
      if (it == inbox_.end()) continue;
      for (auto& text : it->second) found.emplace_back(from, std::move(text));
      inbox_.erase(it);
    }
    if (!found.empty() || Clock::now() >= due || !usable()) return found;
    changed_.wait_until(lock, due);
  }
}

}  // namespace ccl::detail
