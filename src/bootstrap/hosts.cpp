#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "bootstrap/core.hpp"
#include "bootstrap/members/host_tree.hpp"
#include "net/message_rules.hpp"

namespace ccl::detail {

using namespace net;

namespace {
constexpr double grace_s = 0.5;  // for each level of the tree
}  // namespace

Result<void> Bootstrap::all_gather_hosts(void* all, Index bytes_each) {
  RingGather& gather = core_->gather();
  if (ranks() == 1 || all == nullptr || bytes_each <= 0 || !gather.fits_in_message(bytes_each)) {
    return gather.all_gather(all, bytes_each, {}, {"all_gather_hosts"});
  }
  return gather.all_gather_tree(all, bytes_each, {}, {"all_gather_hosts"});
}

bool RingGather::fits_in_message(Index bytes_each) const {
  const auto part = sizeof(PartHead) + std::uint64_t(bytes_each);
  return part <= max_message_bytes / std::uint64_t(core_.membership().ranks);
}

Result<void> Bootstrap::share_call_limit(double limit_s) {
  Membership& members = core_->membership();
  if (ranks() < members.tree_ranks) return {};
  std::vector<char> limited(std::size_t(ranks()), 0);
  limited[std::size_t(rank())] = limit_s > 0;
  CCL_CHECK(all_gather(limited.data(), 1, {}, {"the exchange of limits"}));
  const net::Lock lock = net::Engine::get().lock();
  members.calls_end =
      std::all_of(limited.begin(), limited.end(), [](char yes) { return yes == 1; });
  return {};
}

// A frame for each part and rank takes 5 to 8 us: 7 s for 1,024 ranks on two cores. On the ring, a
// rank that makes another call is found at once, and all late ranks are known. A wait without a
// limit needs that. Waits of creation always have a limit; those of calls differ between ranks.
bool RingGather::goes_by_tree(Index bytes_each, std::optional<double> limit_s) const {
  const Membership& members = core_.membership();
  if (limit_s && !members.calls_end) return false;
  return members.ranks >= members.tree_ranks && members.in_ring() == members.ranks &&
         !members.survivors && !members.places.empty() && fits_in_message(bytes_each);
}

/// Checks the parts of the ranks below a child, of which each has its head, and stores them.
Result<void> RingGather::take_bundle(const PartHead& mine, std::byte* base, Index bytes_each,
                                     const std::vector<int>& owners, Bytes bundle) {
  const auto differ = [&](int owner, const std::string& why) -> Result<void> {
    const Lock lock = Engine::get().lock();
    core_.shutdown().on_mismatch(lock, owner, why);
    return core_.status().result();
  };
  const std::size_t part = sizeof(PartHead) + std::size_t(bytes_each);
  const PartHead first = head_of(bundle);
  const int rank = core_.membership().rank;
  const auto elsewhere = [&](int owner, const PartHead& theirs) {
    return differ(owner, fmt::format("rank {} is in {} where rank {} is in {} (all ranks must make "
                                     "the same calls in the same order)",
                                     owner, theirs.text(), rank, mine.text()));
  };
  if (bundle.size() != part * owners.size()) {
    if (first.text() != mine.text()) return elsewhere(owners[0], first);
    return differ(
        owners[0],
        fmt::format("rank {} gave {} bytes to {}, rank {} {}; all must give "
                    "the same",
                    owners[0], Index(bundle.size() / owners.size()) - Index(sizeof(PartHead)),
                    mine.text(), rank, bytes_each));
  }
  for (std::size_t i = 0; i < owners.size(); ++i) {
    const Bytes one = bundle.subspan(i * part, part);
    const PartHead theirs = head_of(one);
    if (std::memcmp(theirs.kind, mine.kind, sizeof mine.kind) != 0 ||
        theirs.barriers != mine.barriers) {
      return elsewhere(owners[i], theirs);
    }
    const Bytes given = one.subspan(sizeof theirs);
    std::memcpy(base + owners[i] * bytes_each, given.data(), given.size());
  }
  return {};
}

// Up the tree each rank sends the parts of all ranks below it with their heads, and down all parts:
// two messages for each rank, where the ring has one for each rank and part.
Result<void> RingGather::all_gather_tree(void* all, Index bytes_each, std::optional<double> limit_s,
                                         const RendezvousId& purpose, const char* setting) {
  const Membership& members = core_.membership();
  PeerMessages& messages = core_.messages();
  const std::uint64_t tag = messages.next_tag();
  const Running running{*this};
  PartHead mine;
  {
    const Lock lock = Engine::get().lock();
    CCL_CHECK(core_.shutdown().usable(lock));
    mine = head_for(purpose);
    call_ = mine.text();
    if (!tree_) tree_.emplace(members.places, members.rank);
  }
  const std::string what = mine.text();
  // A rank whose wait ends first waits for a rank that is late itself: those above it have more
  // time, and those that wait for all parts have twice as much.
  const double limit = limit_s.value_or(members.deadline_s);
  if (!limit_s) setting = "CCL_INIT_TIMEOUT";
  const HostTree& tree = *tree_;
  const auto due = std::chrono::steady_clock::now() +
                   std::chrono::duration<double>(limit + (tree.height - 1) * grace_s);
  const auto left = [&] {
    const std::chrono::duration<double> rest = due - std::chrono::steady_clock::now();
    return std::max(rest.count(), 0.001);
  };
  auto* const base = static_cast<std::byte*>(all);
  std::vector<std::byte> up(sizeof mine + std::size_t(bytes_each));
  std::memcpy(up.data(), &mine, sizeof mine);
  std::memcpy(up.data() + sizeof mine, base + members.rank * bytes_each, std::size_t(bytes_each));
  for (const std::vector<int>& below : tree.below) {
    CCL_TRY(const auto bundle, messages.recv(below[0], tag, left(), {what.c_str(), setting}));
    CCL_CHECK(take_bundle(mine, base, bytes_each, below, bundle));
    up.insert(up.end(), bundle.begin(), bundle.end());
  }
  const Index whole = members.ranks * bytes_each;
  if (tree.parent >= 0) {
    CCL_CHECK(messages.send(tree.parent, tag, up.data(), Index(up.size())));
    CCL_TRY(const auto down, messages.recv(tree.parent, tag, 2 * limit + tree.levels * grace_s,
                                           {what.c_str(), setting}));
    if (Index(down.size()) != whole) {
      const Lock lock = Engine::get().lock();
      core_.shutdown().on_mismatch(
          lock, tree.parent,
          fmt::format("rank {} gave {} bytes to {} where {} were due; all must give the same",
                      tree.parent, down.size(), what, whole));
      return core_.status().result();
    }
    std::memcpy(base, down.data(), down.size());
  }
  for (const std::vector<int>& below : tree.below) {
    CCL_CHECK(messages.send(below[0], tag, base, whole));
  }
  const Lock lock = Engine::get().lock();
  call_.clear();
  return {};
}

}  // namespace ccl::detail
