#include <ccl/comm/communicator.hpp>
#include <ccl/detail/runtime/guarded.hpp>

#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "base/exceptions.hpp"
#include "comm/creation/child_start.hpp"
#include "comm/creation/first_exchange.hpp"
#include "comm/state.hpp"

namespace ccl {
namespace detail {
namespace {

/// A child is on its parent's device, whatever device the thread is at, and has its limits.
void inherit(const CommState& parent, Config& config) {
  const Config& of = parent.identity.config();
  if (config.device == Config::automatic) config.device = of.device;
  if (!config.timeout_s) config.timeout_s = of.timeout_s;
  if (!config.init_timeout_s) config.init_timeout_s = of.init_timeout_s;
}

Result<std::optional<Communicator>> split(CommState& parent, int color, int key, Config config) {
  CCL_CHECK(parent.ready());
  inherit(parent, config);
  if (parent.identity.ranks() == 1) {
    if (color < 0) return std::optional<Communicator>{};
    ChildStart::notify(0, 1);
    CCL_TRY(auto alone, Communicator::create(UniqueId{}, 0, 1, std::move(config)));
    return std::optional<Communicator>{std::move(alone)};
  }
  // The status must outlive the bootstrap, so the state is created first. Rank and size follow.
  auto child = CommState::make(0, 1, std::move(config));
  if (auto settled = child->limits.resolve(child->identity); !settled) {
    return fail(parent.annotate(std::move(settled).error()));
  }
  auto lock = parent.rendezvous.lock();
  auto bootstrap = parent.rendezvous.bootstrap()->split(
      color, key, {child->limits.init_timeout_s, &child->status});
  if (!bootstrap) return fail(parent.annotate(std::move(bootstrap).error()));
  if (color < 0) return std::optional<Communicator>{};
  if (*bootstrap != nullptr) {
    child->identity.set_rank((*bootstrap)->rank(), (*bootstrap)->ranks());
    if (child->identity.ranks() == 1) bootstrap->reset();
  }
  ChildStart::notify(child->identity.rank(), child->identity.ranks());
  if (auto joined = meet(*child, *std::move(bootstrap)); !joined) {
    return fail(child->annotate(std::move(joined).error()));
  }
  lock.unlock();  // a hook may wait for another thread that uses the parent
  notify_created(*child);
  return std::optional<Communicator>{Access::communicator(std::move(child))};
}

Result<Communicator> shrink(CommState& parent, std::span<const int> excluded, Shrink effect,
                            Config config) {
  if (auto well = parent.ready(); !well && !parent.was_up()) return fail(std::move(well).error());
  inherit(parent, config);
  auto stay = surviving_ranks(parent.identity.rank(), parent.identity.ranks(), excluded);
  if (!stay) return fail(parent.annotate(std::move(stay).error()));
  auto child = CommState::make(0, 1, std::move(config));
  if (auto settled = child->limits.resolve(child->identity); !settled) {
    return fail(parent.annotate(std::move(settled).error()));
  }
  if (effect == Shrink::abort_parent) {
    parent.rendezvous.fail_all(
        {Errc::aborted, "shrink ends what runs", -1, parent.identity.rank()});
  }
  std::unique_ptr<Bootstrap> bootstrap;
  if (stay->size() > 1) {
    auto made = parent.rendezvous.bootstrap()->shrink(
        excluded, {child->limits.init_timeout_s, &child->status});
    if (!made) return fail(parent.annotate(std::move(made).error()));
    bootstrap = *std::move(made);
    child->identity.set_rank(bootstrap->rank(), bootstrap->ranks());
  }
  ChildStart::notify(child->identity.rank(), child->identity.ranks());
  // All remaining ranks get the communicator now, even if it fails, so that none of them differs.
  if (auto joined = meet(*child, std::move(bootstrap)); !joined) {
    child->status.set(child->annotate(std::move(joined).error()));
  }
  notify_created(*child);  // and that it has failed
  return Access::communicator(std::move(child));
}

}  // namespace
}  // namespace detail

Result<std::optional<Communicator>> Communicator::split(int color, int key, Config config) const {
  return detail::guarded(*this,
                         [&] { return detail::split(*state_, color, key, std::move(config)); });
}

Result<Communicator> Communicator::shrink(std::span<const int> excluded, Shrink parent,
                                          Config config) const {
  const bool created = !state_->creation.running() && state_->rendezvous.bootstrap() != nullptr;
  const auto failed = created ? state_->rendezvous.bootstrap()->failed_shrinks() : 0;
  auto made = detail::guarded(
      *this, [&] { return detail::shrink(*state_, excluded, parent, std::move(config)); });
  if (!made && made.error().code == Errc::out_of_memory && state_->rendezvous.bootstrap()) {
    // The others may wait for this rank, in this call or before it.
    (void)detail::completes([&] { state_->rendezvous.bootstrap()->stop_shrink(made.error()); });
    state_->rendezvous.bootstrap()->miss_shrink(made.error().code, failed);
  }
  return made;
}

}  // namespace ccl
