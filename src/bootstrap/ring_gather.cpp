#include "bootstrap/ring_gather.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "bootstrap/core.hpp"
#include "bootstrap/frame_rules.hpp"
#include "net/message_rules.hpp"

namespace ccl::detail {

using namespace net;

namespace {
constexpr std::uint64_t max_gathers_ahead = 1024;  // a rank whose calls time out may be ahead
}  // namespace

std::string RingGather::PartHead::text() const {
  const auto all = [](const auto& field) {
    return std::string_view{field, strnlen(field, sizeof field)};
  };
  return fmt::format("{}{}{}", all(kind), *of == 0 ? "" : " ", all(of));
}

RingGather::PartHead RingGather::head_of(Bytes payload) {
  PartHead head;
  if (payload.size() >= sizeof head) std::memcpy(&head, payload.data(), sizeof head);
  return head;
}

RingGather::PartHead RingGather::head_for(const RendezvousId& purpose) const {
  PartHead head;
  purpose.kind.copy(head.kind, sizeof head.kind);
  purpose.of.copy(head.of, sizeof head.of);
  head.barriers = barriers_;
  return head;
}

Result<void> RingGather::all_gather(void* all, Index bytes_each, std::optional<double> limit_s,
                                    const RendezvousId& purpose, const char* setting) {
  const Membership& members = core_.membership();
  constexpr Index most = Index(max_message_bytes - sizeof(PartHead));
  if (all == nullptr || bytes_each < 0 || bytes_each > most) {
    return members.failed(Errc::invalid_argument,
                          fmt::format("all_gather got {} and {} bytes for each rank (0 to {} are "
                                      "possible); give it memory, or smaller parts",
                                      all == nullptr ? "no memory" : "memory", bytes_each, most));
  }
  if (members.ranks > 1 && bytes_each > 0 && goes_by_tree(bytes_each, limit_s)) {
    return all_gather_tree(all, bytes_each, limit_s, purpose, setting);
  }
  Lock lock = Engine::get().lock();
  CCL_CHECK(core_.shutdown().usable(lock));
  if (members.ranks == 1 || bytes_each == 0) return {};
  const Running running{*this};
  auto* base = static_cast<std::byte*>(all);
  const PartHead head = head_for(purpose);
  std::vector<std::byte> mine(sizeof head + size_t(bytes_each));
  std::memcpy(mine.data(), &head, sizeof head);
  std::memcpy(mine.data() + sizeof head, base + members.rank * bytes_each, size_t(bytes_each));
  gather_ = Gather{head, base, bytes_each, 0, std::vector<bool>(size_t(members.ranks))};
  // No part that comes later may reach the caller's memory, also after an exception.
  struct Ends {
    std::optional<Gather>& gather;
    ~Ends() { gather.reset(); }
  } const ends{gather_};
  const PeerSockets& sockets = core_.sockets();
  if (members.forward_steps() > 0) {
    sockets.next->send(FrameKind::part, members.rank, gathers_, mine);
  }
  if (members.backward_steps() > 0) {
    sockets.prev->send(FrameKind::part, members.rank, gathers_, mine);
  }
  take_early_parts(lock);
  call_ = head.text();
  auto done = core_.waits().wait(
      lock, [&] { return gather_->count == members.in_ring() - 1; }, call_.c_str(),
      [&] { return missing_parts(lock); }, limit_s, setting);
  gather_.reset();
  if (done) call_.clear();
  ++gathers_;
  return done;
}

void RingGather::take_early_parts(const Lock& lock) {
  const auto early = early_parts_.find(gathers_);
  if (early == early_parts_.end()) return;
  for (const auto& [owner, bytes] : early->second) {
    early_bytes_[owner] -= bytes.size();
    take_part(lock, owner, bytes);
  }
  early_parts_.erase(early);
}

void RingGather::on_frame(const Lock& lock, const FrameHeader& h, Bytes payload) {
  h.kind == FrameKind::part ? on_part(lock, h, payload) : on_token(lock, h, payload);
}

// A rank forwards parts at once, also while it has not called all_gather.
void RingGather::on_part(const Lock& lock, const FrameHeader& h, Bytes payload) {
  const Membership& members = core_.membership();
  const PeerSockets& sockets = core_.sockets();
  const int owner = h.rank, in_ring = members.in_ring();
  const int position = members.position_of(owner), mine = members.position_of(members.rank);
  if (h.tag < gathers_) return;
  const int behind = (mine - position + in_ring) % in_ring;
  const int ahead = (position - mine + in_ring) % in_ring;
  const bool forward = behind <= members.forward_steps();  // otherwise the part travels backward
  if (h.tag - gathers_ > max_gathers_ahead) {
    return break_off(lock, forward ? *sockets.prev_member : *sockets.next_member,
                     fmt::format("number of an all-gather is {}, not from {} to {}", h.tag,
                                 gathers_, gathers_ + max_gathers_ahead));
  }
  if (const std::string why = unwanted_part(lock, h); !why.empty()) {
    return break_off(lock, forward ? *sockets.prev_member : *sockets.next_member, why);
  }
  core_.waits().count(lock);
  if (forward && behind < members.forward_steps()) {
    sockets.next->send(h.kind, owner, h.tag, payload);
  }
  if (!forward && ahead < members.backward_steps()) {
    sockets.prev->send(h.kind, owner, h.tag, payload);
  }
  if (gather_ && h.tag == gathers_) {
    take_part(lock, owner, payload);
  } else if (barrier_ == nullptr || h.tag != gathers_ || !missed_barrier(lock, owner, payload)) {
    std::size_t& held = early_bytes_[owner];  // first: may need memory
    early_parts_[h.tag].emplace_back(owner, std::vector(payload.begin(), payload.end()));
    held += payload.size();
  }
}

// A peer that knows the secret could else use up the memory.
std::string RingGather::unwanted_part(const Lock&, const FrameHeader& h) const {
  const auto held = early_bytes_.find(h.rank);
  const bool some = held != early_bytes_.end() && held->second > 0;
  const auto early = some ? early_parts_.find(h.tag) : early_parts_.end();
  bool second = gather_ && h.tag == gathers_ && gather_->here[size_t(h.rank)];
  if (early != early_parts_.end()) {
    const auto of_owner = [&](const auto& part) { return part.first == h.rank; };
    second = second || std::any_of(early->second.begin(), early->second.end(), of_owner);
  }
  if (second) return fmt::format("a second part of rank {} for all-gather {}", h.rank, h.tag);
  if (!some || held->second <= max_early_bytes) return {};
  return fmt::format("parts of rank {} of {} MiB for all-gathers to come", h.rank,
                     held->second >> 20);
}

bool RingGather::missed_barrier(const Lock& lock, int owner, Bytes payload) {
  const PartHead theirs = head_of(payload);
  if (theirs.barriers >= barriers_) return false;
  core_.shutdown().on_mismatch(
      lock, owner,
      fmt::format("rank {} is in {} where rank {} is in {} (all ranks must make the same "
                  "calls in the same order)",
                  owner, theirs.text(), core_.membership().rank, barrier_));
  return true;
}

void RingGather::take_part(const Lock& lock, int owner, Bytes payload) {
  const PartHead& mine = gather_->mine;
  const PartHead theirs = head_of(payload);
  const int rank = core_.membership().rank;
  const bool sized = Index(payload.size()) == Index(sizeof theirs) + gather_->bytes_each;
  if (std::memcmp(theirs.kind, mine.kind, sizeof mine.kind) != 0 ||
      (!sized && theirs.text() != mine.text())) {
    return core_.shutdown().on_mismatch(
        lock, owner,
        fmt::format("rank {} is in {} where rank {} is in {} (all ranks must make "
                    "the same calls in the same order)",
                    owner, theirs.text(), rank, mine.text()));
  }
  payload = payload.subspan(sizeof theirs);
  if (!sized) {
    return core_.shutdown().on_mismatch(
        lock, owner,
        fmt::format("rank {} gave {} bytes to {}, rank {} {}; all must give the "
                    "same",
                    owner, payload.size(), mine.text(), rank, gather_->bytes_each));
  }
  if (gather_->here[size_t(owner)]) return;
  gather_->here[size_t(owner)] = true;
  std::memcpy(gather_->base + owner * gather_->bytes_each, payload.data(), payload.size());
  if (++gather_->count == core_.membership().in_ring() - 1) core_.waits().notify(lock);
}

std::vector<int> RingGather::missing_parts(const Lock&) const {
  std::vector<int> out;
  for (const int r : core_.membership().ring) {
    if (r != core_.membership().rank && !gather_->here[size_t(r)]) out.push_back(r);
  }
  return out;
}

void RingGather::break_off(const Lock& lock, const Member& sender, const std::string& why) {
  core_.shutdown().on_error(
      lock, protocol_error(describe(sender), sender.rank, describe(core_.membership().me), why));
}

bool RingGather::is_elsewhere(const Lock& lock, std::string_view first) {
  if (first == barrier_) return false;
  const Membership& members = core_.membership();
  core_.shutdown().on_mismatch(
      lock, members.ring[0],
      fmt::format("rank {} is in {} where rank {} is in {} (all ranks must make the same calls "
                  "in the same order)",
                  members.ring[0], first, members.rank, barrier_));
  return true;
}

void RingGather::send_first_token(const Lock&) {
  const std::string_view what = barrier_;
  core_.sockets().next->send(FrameKind::token, 0, barriers_,
                             std::as_bytes(std::span{what.data(), what.size()}));
}

// Two tokens travel around the ring. The ring's first rank starts both and adds its call to the
// first one, which returns when all ranks are in the barrier. The second one releases the ranks.
Result<void> RingGather::barrier(std::optional<double> limit_s, const char* setting,
                                 const char* what) {
  return meet(limit_s, setting, what, false);
}

Result<void> RingGather::barrier_of_end(std::optional<double> limit_s) {
  return meet(limit_s, "CCL_TIMEOUT", "finalize", true);
}

Result<void> RingGather::meet(std::optional<double> limit_s, const char* setting, const char* what,
                              bool ends_by_departure) {
  const Membership& members = core_.membership();
  Lock lock = Engine::get().lock();
  CCL_CHECK(core_.shutdown().usable(lock));
  if (members.ranks == 1) return {};
  const Running running{*this};
  const std::uint64_t number = ++barriers_;
  call_ = barrier_ = what;
  if (members.rank == members.ring[0] ||
      (first_token_ == number && !is_elsewhere(lock, first_in_))) {
    send_first_token(lock);
  }
  if (const auto early = early_parts_.find(gathers_); early != early_parts_.end()) {
    for (const auto& [owner, bytes] : early->second) {
      if (missed_barrier(lock, owner, bytes)) break;
    }
  }
  auto done = core_.waits().wait(
      lock,
      [&] {
        return second_token_ == number || (ends_by_departure && core_.status().any_departed());
      },
      what, [&] { return std::vector{members.prev_peer()}; }, limit_s, setting);
  barrier_ = nullptr;
  if (done) call_.clear();
  return done;
}

void RingGather::on_token(const Lock& lock, const FrameHeader& h, Bytes payload) {
  const Membership& members = core_.membership();
  Conn& next = *core_.sockets().next;
  const int first = members.ring[0];
  core_.waits().count(lock);
  // The second round, and the return to the first rank, follow the start of this rank's barrier.
  if ((h.rank == 1 || members.rank == first) && h.tag > barriers_) {
    return break_off(lock, *core_.sockets().prev_member,
                     fmt::format("number of a barrier is {}, not from 1 to {}", h.tag, barriers_));
  }
  if (h.rank == 0) {
    first_token_ = h.tag;
    first_in_.assign(reinterpret_cast<const char*>(payload.data()), payload.size());
    if (members.rank == first) {
      second_token_ = h.tag;
      next.send(FrameKind::token, 1, h.tag, {});
    } else if (barrier_ != nullptr && barriers_ == h.tag && !is_elsewhere(lock, first_in_)) {
      send_first_token(lock);
    }
  } else if (members.rank != first) {
    second_token_ = h.tag;
    if (members.next_peer() != first) next.send(FrameKind::token, 1, h.tag, {});
  }
  core_.waits().notify(lock);
}

}  // namespace ccl::detail
