#include "comm/level_cache.hpp"

#include <ccl/comm/communicator.hpp>
#include <ccl/detail/runtime/levels.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "comm/state.hpp"

namespace ccl::detail {

std::shared_ptr<const Levels> LevelCache::current() const {
  if (!exist()) return nullptr;
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
int rank_in_part(const Levels::Part& part, int rank) {
  const auto found = std::find(part.ranks.begin(), part.ranks.end(), rank);
  return found == part.ranks.end() ? -1 : int(found - part.ranks.begin());
}

}  // namespace

void LevelCache::fail(const Levels& levels, const Error& error) {
  for (const Levels::Part& part : levels.parts()) {
    Error there = error;
    if (error.peer >= 0) there.peer = rank_in_part(part, error.peer);
    // Its status may have failed with that of the whole.
    Access::state(part.comm)->rendezvous.fail_all(there);
  }
}

std::optional<Error> LevelCache::failure(const Levels& levels) {
  const auto well = [](const Communicator& level) {
    CommState& state = *Access::state(level);
    return state.rendezvous.finalized() || state.ready().has_value();
  };
  if (well(levels.inner) && (!levels.outer || well(*levels.outer)) &&
      (!levels.head_rail || well(*levels.head_rail))) {
    return {};  // each call comes here, and allocates nothing
  }
  for (const Levels::Part& part : levels.parts()) {
    CommState& level = *Access::state(part.comm);
    if (level.rendezvous.finalized()) continue;
    auto well = level.ready();
    if (well) continue;
    Error error = std::move(well).error();
    error.what = fmt::format("between {} (whose ranks have numbers of their own): {}", part.name,
                             error.what);
    if (error.peer >= 0 && error.peer < level.identity.ranks()) {
      error.peer = part.ranks[std::size_t(error.peer)];
    }
    return error;
  }
  return {};
}

}  // namespace ccl::detail
