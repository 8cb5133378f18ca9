#include "comm/level_cache.hpp"

#include <ccl/comm/communicator.hpp>
#include <ccl/detail/runtime/levels.hpp>

#include <fmt/format.h>

#include <utility>

#include "comm/state.hpp"

namespace ccl::detail {

std::shared_ptr<const Levels> LevelCache::current() const {
  if (!exist_.load(std::memory_order_acquire)) return nullptr;
  const std::lock_guard lock{mutex_};
  return levels_;
}

void LevelCache::keep(std::shared_ptr<const Levels> levels) {
  const std::lock_guard lock{mutex_};
  levels_ = std::move(levels);
  exist_.store(true, std::memory_order_release);
}

namespace {

/// Number in a level of a rank of the communicator; -1: it is none of the level's.
int rank_in_level(const Levels& levels, bool inside, int rank) {
  const auto& here = levels.hosts[std::size_t(levels.host)];
  const int count = int(inside ? here.size() : levels.hosts.size());
  for (int n = 0; n < count; ++n) {
    const auto& ranks = inside ? here : levels.hosts[std::size_t(n)];
    const auto at = std::size_t(inside ? n : levels.local);
    if (at < ranks.size() && ranks[at] == rank) return n;
  }
  return -1;
}

}  // namespace

void LevelCache::fail(const Levels& levels, const Error& error) {
  for (const bool inside : {true, false}) {
    if (!inside && !levels.outer) continue;
    CommState& state = *Access::state(inside ? levels.inner : *levels.outer);
    Error there = error;
    if (error.peer >= 0) there.peer = rank_in_level(levels, inside, error.peer);
    state.rendezvous.fail_all(there);  // its status may have failed with that of the whole
  }
}

std::optional<Error> LevelCache::failure(const Levels& levels) {
  for (const bool inside : {true, false}) {
    if (!inside && !levels.outer) continue;
    CommState& level = *Access::state(inside ? levels.inner : *levels.outer);
    if (level.rendezvous.finalized()) continue;
    auto well = level.ready();
    if (well) continue;
    Error error = std::move(well).error();
    error.what = fmt::format("between {} (whose ranks have numbers of their own): {}",
                             inside ? "the ranks of a host" : "hosts", error.what);
    if (error.peer >= 0 && error.peer < level.identity.ranks()) {
      error.peer = inside ? levels.hosts[std::size_t(levels.host)][std::size_t(error.peer)]
                          : levels.hosts[std::size_t(error.peer)][std::size_t(levels.local)];
    }
    return error;
  }
  return {};
}

}  // namespace ccl::detail
