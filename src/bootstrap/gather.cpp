#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "bootstrap/core.hpp"

namespace ccl::detail {

using namespace net;

std::string Bootstrap::Core::PartHead::text() const {
  const auto all = [](const auto& field) {
    return std::string_view{field, strnlen(field, sizeof field)};
  };
  return fmt::format("{}{}{}", all(kind), *of == 0 ? "" : " ", all(of));
}

Bootstrap::Core::PartHead Bootstrap::Core::head_of(Bytes payload) {
  PartHead head;
  if (payload.size() >= sizeof head) std::memcpy(&head, payload.data(), sizeof head);
  return head;
}

Result<void> Bootstrap::Core::all_gather(void* all, Index bytes_each, std::optional<double> limit_s,
                                         const RendezvousId& purpose, const char* setting) {
  if (all == nullptr || bytes_each < 0) {
    return failed(Errc::invalid_argument, "all_gather got no memory or a negative size");
  }
  Lock lock{mutex()};
  CCL_CHECK(usable());
  if (ranks_ == 1 || bytes_each == 0) return {};
  auto* base = static_cast<std::byte*>(all);
  PartHead head;
  purpose.kind.copy(head.kind, sizeof head.kind);
  purpose.of.copy(head.of, sizeof head.of);
  head.barriers = barriers_;
  std::vector<std::byte> mine(sizeof head + size_t(bytes_each));
  std::memcpy(mine.data(), &head, sizeof head);
  std::memcpy(mine.data() + sizeof head, base + rank_ * bytes_each, size_t(bytes_each));
  gather_ = Gather{head, base, bytes_each, 0, std::vector<bool>(size_t(ranks_))};
  if (forward_steps() > 0) next_->send(FrameKind::part, rank_, gathers_, mine);
  if (backward_steps() > 0) prev_->send(FrameKind::part, rank_, gathers_, mine);
  const auto early = early_parts_.find(gathers_);
  if (early != early_parts_.end()) {
    for (const auto& [owner, bytes] : early->second) take_part(owner, bytes);
    early_parts_.erase(early);
  }
  rendezvous_ = head.text();
  auto done = wait(
      lock, [&] { return gather_->count == in_ring() - 1; }, rendezvous_.c_str(),
      [&] { return missing_parts(); }, limit_s, setting);
  gather_.reset();
  if (done) rendezvous_.clear();
  ++gathers_;
  return done;
}

// Parts travel on at once, whether this rank has called all_gather yet or not.
void Bootstrap::Core::part(const FrameHeader& h, Bytes payload) {
  const int owner = h.rank;
  const int position = position_of(owner), mine = position_of(rank_);
  if (position < 0 || owner == rank_ || h.tag < gathers_) return;
  ++progress_;
  const int behind = (mine - position + in_ring()) % in_ring();
  const int ahead = (position - mine + in_ring()) % in_ring();
  const bool forward = behind <= forward_steps();  // else it came backward
  if (forward && behind < forward_steps()) next_->send(h.kind, owner, h.tag, payload);
  if (!forward && ahead < backward_steps()) prev_->send(h.kind, owner, h.tag, payload);
  if (gather_ && h.tag == gathers_) {
    take_part(owner, payload);
  } else if (barrier_ == nullptr || h.tag != gathers_ || !missed_barrier(owner, payload)) {
    early_parts_[h.tag].emplace_back(owner, std::vector(payload.begin(), payload.end()));
  }
}

void Bootstrap::Core::differ(int owner, std::string what) {
  Error e;
  e.code = Errc::mismatch;
  e.peer = owner;
  e.what = std::move(what);
  broadcast_error(e);
  release_waiters(std::move(e));
}

bool Bootstrap::Core::missed_barrier(int owner, Bytes payload) {
  const PartHead theirs = head_of(payload);
  if (theirs.barriers >= barriers_) return false;
  differ(owner, fmt::format("rank {} is in {} where rank {} is in {} (all ranks must make the same "
                            "calls in the same order)",
                            owner, theirs.text(), rank_, barrier_));
  return true;
}

void Bootstrap::Core::take_part(int owner, Bytes payload) {
  const PartHead& mine = gather_->mine;
  const PartHead theirs = head_of(payload);
  const bool sized = Index(payload.size()) == Index(sizeof theirs) + gather_->bytes_each;
  if (std::memcmp(theirs.kind, mine.kind, sizeof mine.kind) != 0 ||
      (!sized && theirs.text() != mine.text())) {
    return differ(owner, fmt::format("rank {} is in {} where rank {} is in {} (all ranks must make "
                                     "the same calls in the same order)",
                                     owner, theirs.text(), rank_, mine.text()));
  }
  payload = payload.subspan(sizeof theirs);
  if (!sized) {
    return differ(owner,
                  fmt::format("rank {} gave {} bytes to {}, rank {} {}; all must give the "
                              "same",
                              owner, payload.size(), mine.text(), rank_, gather_->bytes_each));
  }
  if (gather_->here[size_t(owner)]) return;
  gather_->here[size_t(owner)] = true;
  std::memcpy(gather_->base + owner * gather_->bytes_each, payload.data(), payload.size());
  if (++gather_->count == in_ring() - 1) changed_.notify_all();
}

std::vector<int> Bootstrap::Core::missing_parts() const {
  std::vector<int> out;
  for (const int r : ring_) {
    if (r != rank_ && !gather_->here[size_t(r)]) out.push_back(r);
  }
  return out;
}

bool Bootstrap::Core::is_elsewhere(std::string_view first) {
  if (first == barrier_) return false;
  differ(ring_[0],
         fmt::format("rank {} is in {} where rank {} is in {} (all ranks must make the same calls "
                     "in the same order)",
                     ring_[0], first, rank_, barrier_));
  return true;
}

void Bootstrap::Core::send_first_token() {
  const std::string_view what = barrier_;
  next_->send(FrameKind::token, 0, barriers_, std::as_bytes(std::span{what.data(), what.size()}));
}

// Twice around the ring: "everybody is here", which its first rank starts and says for what, then
// "all know".
Result<void> Bootstrap::Core::barrier(std::optional<double> limit_s, const char* setting,
                                      const char* what) {
  Lock lock{mutex()};
  CCL_CHECK(usable());
  if (ranks_ == 1) return {};
  const std::uint64_t number = ++barriers_;
  rendezvous_ = barrier_ = what;
  if (rank_ == ring_[0] || (first_token_ == number && !is_elsewhere(first_in_))) send_first_token();
  if (const auto early = early_parts_.find(gathers_); early != early_parts_.end()) {
    for (const auto& [owner, bytes] : early->second) {
      if (missed_barrier(owner, bytes)) break;
    }
  }
  auto done = wait(
      lock, [&] { return second_token_ == number; }, what, [&] { return std::vector{prev_peer()}; },
      limit_s, setting);
  barrier_ = nullptr;
  if (done) rendezvous_.clear();
  return done;
}

void Bootstrap::Core::token(const FrameHeader& h, Bytes payload) {
  ++progress_;
  if (h.rank == 0) {
    first_token_ = h.tag;
    first_in_.assign(reinterpret_cast<const char*>(payload.data()), payload.size());
    if (rank_ == ring_[0]) {
      second_token_ = h.tag;
      next_->send(FrameKind::token, 1, h.tag, {});
    } else if (barrier_ != nullptr && barriers_ == h.tag && !is_elsewhere(first_in_)) {
      send_first_token();
    }
  } else if (rank_ != ring_[0]) {
    second_token_ = h.tag;
    if (next_peer() != ring_[0]) next_->send(FrameKind::token, 1, h.tag, {});
  }
  changed_.notify_all();
}

}  // namespace ccl::detail
