#include <ccl/detail/runtime/levels.hpp>
#include <ccl/types/operations.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "comm/host_shape.hpp"
#include "comm/observe/failure_dump.hpp"
#include "comm/observe/level_transfers.hpp"
#include "comm/rank_results.hpp"
#include "comm/state.hpp"
#include "gpu/memory.hpp"

namespace ccl::detail {

std::vector<std::vector<int>> ranks_by_host(const CommState& state) {
  std::vector<std::vector<int>> hosts;
  for (const PeerInfo& peer : state.identity.peers()) {
    const auto same = [&](const std::vector<int>& host) {
      return state.identity.peers()[std::size_t(host[0])].host_hash == peer.host_hash;
    };
    const auto found = std::find_if(hosts.begin(), hosts.end(), same);
    if (found == hosts.end()) {
      hosts.push_back({peer.rank});
    } else {
      found->push_back(peer.rank);
    }
  }
  return hosts;
}

HostShape shape_of(const std::vector<std::vector<int>>& hosts) {
  HostShape shape;
  shape.hosts = int(hosts.size());
  for (const auto& host : hosts) {
    shape.most = std::max(shape.most, int(host.size()));
    shape.even = shape.even && host.size() == hosts[0].size();
  }
  const auto numbered = [&](int host_stride, int local_stride) {
    shape.host_stride = host_stride;
    shape.local_stride = local_stride;
    for (std::size_t h = 0; h < hosts.size(); ++h) {
      for (std::size_t n = 0; n < hosts[h].size(); ++n) {
        if (hosts[h][n] != int(h) * host_stride + int(n) * local_stride) return false;
      }
    }
    return true;
  };
  shape.regular = shape.even && (numbered(shape.most, 1) || numbered(1, shape.hosts));
  if (!shape.regular) shape.host_stride = shape.local_stride = 0;
  return shape;
}

HostShape host_shape(const CommState& state) {
  return shape_of(ranks_by_host(state));
}

int Levels::host_of(int rank) const {
  for (std::size_t h = 0; h < hosts.size(); ++h) {
    if (std::binary_search(hosts[h].begin(), hosts[h].end(), rank)) return int(h);
  }
  return -1;
}
int Levels::local_of(int rank) const {
  const auto& host = hosts[std::size_t(host_of(rank))];
  return int(std::lower_bound(host.begin(), host.end(), rank) - host.begin());
}

std::vector<Levels::Part> Levels::parts() const {
  std::vector<Part> all;
  all.push_back({inner, hosts[std::size_t(host)], "the ranks of a host"});
  if (outer) {
    std::vector<int> ranks;
    for (const auto& there : hosts) ranks.push_back(there[std::size_t(even ? local : 0)]);
    all.push_back({*outer, std::move(ranks), "hosts"});
  }
  if (head_rail) {
    std::vector<int> ranks;
    for (const auto& there : heads) ranks.push_back(there[std::size_t(slice)]);
    all.push_back({*head_rail, std::move(ranks), "heads of hosts"});
  }
  return all;
}

namespace {

/// Heads of each host, as many as the host with the fewest has. All ranks get the same.
std::vector<std::vector<int>> heads_by_host(const CommState& state,
                                            const std::vector<std::vector<int>>& hosts) {
  std::vector<std::vector<int>> heads;
  std::size_t fewest = hosts[0].size();
  for (const auto& host : hosts) {
    const auto& found = state.identity.arrangement().heads_of(host[0]);
    heads.push_back(found.empty() ? host : found);
    fewest = std::min(fewest, heads.back().size());
  }
  for (auto& of_host : heads) of_host.resize(fewest);
  return heads;
}

/// Splits off one level. Null if this rank is not in it.
Result<std::shared_ptr<CommState>> part_of(const Communicator& comm, int color, int key,
                                           Config config) {
  auto made = comm.split(color, key, std::move(config));
  if (!made) return fail(std::move(made).error());
  if (!*made) return nullptr;
  leave_dump_to_whole(*Access::state(**made));
  return Access::state(**made);
}

/// Makes the launches of a level part of those of the whole communicator, whose calls they are. Its
/// lanes wait for the level's members alone, and end when any rank of the whole has failed.
void launch_inside(CommState& whole, const Communicator& level) {
  whole.status.add_follower(Access::state(level)->status);
  if (!whole.device.gpu) return;
  CommDevice& device = Access::state(level)->device;
  device.order->follow(*whole.device.order);
  device.max_blocks = std::min(device.max_blocks, whole.device.max_blocks);
}

/// Configuration of a level.
Config config_of_part(const CommState& state, const char* part) {
  Config config = state.identity.config();
  config.blocking = true;
  config.timeout_s = state.limits.timeout_s;
  config.init_timeout_s = state.limits.init_timeout_s;
  config.check = state.limits.check;
  config.hooks = nullptr;  // events are those of the whole communicator
  if (config.memory_budget_bytes) config.memory_budget_bytes = state.limits.budget / 2;
  config.name = config.name.empty() ? part : config.name + "/" + part;
  return config;
}

Result<std::shared_ptr<const Levels>> make_levels(const Communicator& comm) {
  CommState& state = *Access::state(comm);
  auto hosts = ranks_by_host(state);
  const HostShape shape = shape_of(hosts);
  int host = 0;
  for (std::size_t h = 0; h < hosts.size(); ++h) {
    if (std::binary_search(hosts[h].begin(), hosts[h].end(), state.identity.rank())) host = int(h);
  }
  const auto& mine = hosts[std::size_t(host)];
  const int local =
      int(std::lower_bound(mine.begin(), mine.end(), state.identity.rank()) - mine.begin());
  CCL_TRY(const auto inner, part_of(comm, host, local, config_of_part(state, "host")));
  CCL_TRY(const auto outer, part_of(comm,
                                    shape.even   ? local
                                    : local == 0 ? 0
                                                 : -1,
                                    host, config_of_part(state, "rail")));
  auto levels = std::make_shared<Levels>(Access::communicator(inner));
  if (outer) levels->outer.emplace(Access::communicator(outer));
  launch_inside(state, levels->inner);
  if (levels->outer) launch_inside(state, *levels->outer);
  levels->host = host;
  levels->local = local;
  levels->even = shape.even;
  levels->host_stride = shape.host_stride;
  levels->local_stride = shape.local_stride;
  levels->hosts = std::move(hosts);
  for (const Levels::Part& part : levels->parts()) follow_transfers(state, part);
  return levels;
}

/// Returns these levels with that of the heads.
Result<std::shared_ptr<const Levels>> add_heads(const Communicator& comm, const Levels& without) {
  CommState& state = *Access::state(comm);
  auto levels = std::make_shared<Levels>(without);
  levels->heads = heads_by_host(state, levels->hosts);
  const auto& mine = levels->heads[std::size_t(levels->host)];
  std::vector<int> local_heads;
  for (std::size_t n = 0; n < mine.size(); ++n) {
    if (mine[n] == state.identity.rank()) levels->slice = int(n);
    local_heads.push_back(levels->local_of(mine[n]));
  }
  Access::state(levels->inner)->identity.set_heads(std::move(local_heads));
  CCL_TRY(const auto rail,
          part_of(comm, levels->slice, levels->host, config_of_part(state, "heads")));
  if (rail) {
    levels->head_rail.emplace(Access::communicator(rail));
    launch_inside(state, *levels->head_rail);
    follow_transfers(state, levels->parts().back());
  }
  return levels;
}

}  // namespace

Result<std::shared_ptr<const Levels>> levels_of(const Communicator& comm, bool with_heads) {
  CommState& state = *Access::state(comm);
  CCL_CHECK(state.ready());
  auto levels = state.levels.current();
  if (levels == nullptr) {
    CCL_TRY(levels, make_levels(comm));
    state.levels.keep(levels);
  }
  if (with_heads && levels->heads.empty()) {
    CCL_TRY(levels, add_heads(comm, *levels));
    state.levels.keep(levels);
  }
  return levels;
}

Result<void> agree_on(const Communicator& comm, const std::string& name, const Result<void>& mine) {
  CommState& state = *Access::state(comm);
  if (state.identity.ranks() == 1) return mine;
  const auto lock = state.rendezvous.lock();
  return all_agree(state, name, mine);
}

Result<std::shared_ptr<void>> scratch_of(const Communicator& comm, Index bytes) {
  CommState& state = *Access::state(comm);
  if (bytes > state.limits.budget - state.limits.used.load()) {
    return fail(state.annotate(
        {Errc::over_budget, fmt::format("{} bytes of scratch do not fit (the budget is {}, of "
                                        "which {} are used); raise CCL_MEMORY_BUDGET",
                                        bytes, state.limits.budget, state.limits.used.load())}));
  }
  std::shared_ptr<void> memory;
  if (state.device.gpu) {
    GpuArena arena{state.device.gpu};
    CCL_TRY(GpuBlock block, arena.allocate(std::size_t(bytes)));
    auto kept = std::make_shared<GpuBlock>(std::move(block));
    memory = std::shared_ptr<void>{kept, kept->at()};
  } else {
    void* const at = std::aligned_alloc(4096, std::size_t((bytes + 4095) / 4096 * 4096));
    if (at == nullptr) {
      return fail(
          state.annotate({Errc::out_of_memory,
                          fmt::format("no memory for {} bytes of scratch; free some", bytes)}));
    }
    std::memset(at, 0, std::size_t(bytes));
    memory = std::shared_ptr<void>{at, [](void* p) { std::free(p); }};
  }
  state.limits.used += bytes;
  void* const at = memory.get();
  const auto release = [memory, bytes, owner = state.weak_from_this()](void*) {
    if (const auto alive = owner.lock()) alive->limits.used -= bytes;
  };
  return std::shared_ptr<void>{at, release};
}

Result<void> shared_failure(const Communicator& comm, Result<void> result) {
  if (result) return result;
  CCL_CHECK(Access::state(comm)->ready());  // also fails if a level has failed
  return result;
}

namespace {
/// Names algorithms that run the operation of `composition` on any ranks per host. The name of a
/// composition begins as in "all_reduce/...".
std::string_view taking_any(std::string_view composition) {
  if (composition.starts_with("pipeline")) return "a pipeline of World or IntraNode alone";
  const std::string_view op = composition.substr(0, composition.find('/'));
  if (op == AllReduce::name) return "Ring, Tree, Doubling or Hierarchical<Tree, ...>";
  if (op == AllGather::name) return "Ring, Pat or Doubling";
  if (op == ReduceScatter::name) return "Ring, Pat or Halving";
  if (op == Broadcast::name) return "Ring, Tree, Pat or Hierarchical<Tree, ...>";
  if (op == Reduce::name) return "Ring, Tree or Pat";
  return "Pairwise";
}
}  // namespace

Result<void> check_rails(const Communicator& comm, const std::string& name, bool by_rank) {
  const CommState& state = *Access::state(comm);
  const auto hosts = ranks_by_host(state);
  const HostShape shape = shape_of(hosts);
  if (!shape.even) {
    const auto fewer = [](const auto& a, const auto& b) { return a.size() < b.size(); };
    const auto [least, most] = std::minmax_element(hosts.begin(), hosts.end(), fewer);
    return fail(state.annotate(
        {Errc::not_supported,
         fmt::format("{} wants equally many ranks on every host (that of rank {} has {}, that of "
                     "rank {} {}); start as many on each, or take {}",
                     name, (*most)[0], most->size(), (*least)[0], least->size(),
                     taking_any(name))}));
  }
  if (by_rank && !shape.regular) {
    return fail(state.annotate(
        {Errc::not_supported,
         fmt::format("{} wants ranks numbered host by host, or around the hosts (the host of rank "
                     "0 has rank {} next); number them so, or take {}",
                     name, hosts[0][1], taking_any(name))}));
  }
  return {};
}

}  // namespace ccl::detail
