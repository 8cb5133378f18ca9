#include <ccl/comm/communicator.hpp>
#include <ccl/comm/log.hpp>
#include <ccl/detail/runtime/settings.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <future>
#include <map>
#include <thread>
#include <utility>

#include "comm/state.hpp"
#include "gpu/devices.hpp"
#include "base/os_error.hpp"
#include "base/thread.hpp"
#include "comm/report_signal.hpp"
#include "topo/graph/p2p_path.hpp"

namespace ccl {
namespace detail {
namespace {
/// Values of `Config` that the settings would not have taken.
Result<void> check_values(const CommState& state) {
  const auto bad = [](const char* field, const auto& value, const char* takes) {
    return fail(Errc::bad_setting,
                fmt::format("Config::{} is {} (it cannot be); give {}", field, value, takes));
  };
  const auto seconds = [](double s) { return s >= 0 && s <= 1e9; };
  constexpr const char* of_seconds = "seconds, from 0 to 1e9";
  if (!seconds(state.timeout_s)) return bad("timeout_s", state.timeout_s, of_seconds);
  if (!seconds(state.init_timeout_s)) {
    return bad("init_timeout_s", state.init_timeout_s, of_seconds);
  }
  if (state.config.device < Config::cpu) {
    return bad("device", state.config.device, "a CUDA device, Config::cpu or Config::automatic");
  }
  if (state.budget < 1) return bad("memory_budget_bytes", state.budget, "1 or more");
  // Too many are for all ranks to hear of together.
  const int channels = state.config.channels.value_or(1);
  if (channels < 1) return bad("channels", channels, "1 or more");
  return {};
}

/// What config leaves open comes from the settings.
Result<void> settle(CommState& state) {
  const Config& config = state.config;
  CCL_TRY(state.check, config.check ? Result<bool>{*config.check} : setting_flag("CHECK"));
  CCL_TRY(state.timeout_s,
          config.timeout_s ? Result<double>{*config.timeout_s} : setting_seconds("TIMEOUT"));
  CCL_TRY(state.init_timeout_s, config.init_timeout_s ? Result<double>{*config.init_timeout_s}
                                                      : setting_seconds("INIT_TIMEOUT"));
  if (config.device == Config::automatic) {
    state.config.device = choose_device(0);
  }
  if (!config.memory_budget_bytes) {
    CCL_TRY(const Index given, setting_bytes("MEMORY_BUDGET"));
    if (given > 0) state.config.memory_budget_bytes = given;
  }
  state.budget = config.memory_budget_bytes.value_or(Index{1} << 30);
  CCL_TRY(state.bounds, channel_bounds(config.min_channels, config.max_channels));
  CCL_CHECK(check_values(state));
  constexpr double no_limit_s = 1e8;
  if (state.init_timeout_s == 0) state.init_timeout_s = no_limit_s;
  return {};
}

/// Of the rank that has fewest. Several ranks on one GPU share its multiprocessors; one that only
/// waits would take the place of the one that it waits for.
int blocks_of_all(const CommState& state) {
  int blocks = 128;  // are worth it
  for (const PeerInfo& peer : state.peers) {
    blocks = std::min(blocks, peer.multiprocessors / state.ranks_on_gpu);
    if (peer.max_blocks > 0) blocks = std::min(blocks, peer.max_blocks);
  }
  return std::max(1, blocks);
}

/// All ranks on CPUs, or all on GPUs; each GPU has one of them, unless more are asked for.
Result<void> check_devices(CommState& state) {
  const PeerInfo& mine = state.peers[state.rank];
  std::map<std::pair<std::uint64_t, std::int64_t>, int> ranks;
  for (const PeerInfo& other : state.peers) {
    if ((other.device < 0) != (mine.device < 0)) {
      Error error{Errc::mismatch,
                  fmt::format("rank {} is on {} and rank {} on {}; give all ranks a GPU, or none "
                              "(Config::device)",
                              mine.rank, mine.device < 0 ? "a CPU" : "a GPU", other.rank,
                              other.device < 0 ? "a CPU" : "a GPU")};
      error.peer = other.rank;
      return fail(std::move(error));
    }
    int& sharing = ranks[{other.host_hash, other.bus_id}];
    state.ranks_on_gpu = std::max(state.ranks_on_gpu, ++sharing);
    if (mine.device >= 0 && same_gpu(mine, other)) {
      CCL_TRY(const bool allowed, setting_flag("MULTI_RANK_GPU_ENABLE"));
      if (other.rank == mine.rank || allowed) continue;
      Error error{Errc::invalid_argument,
                  fmt::format("ranks {} and {} are both on GPU {} of {}; call cudaSetDevice or set "
                              "Config::device before the communicator is created, or set "
                              "CCL_MULTI_RANK_GPU_ENABLE=1",
                              mine.rank, other.rank, bus_id_text(mine.bus_id), mine.host)};
      error.peer = other.rank;
      return fail(std::move(error));
    }
  }
  return {};
}

Result<void> exchange_peer_info(CommState& state) {
  CCL_TRY(auto mine, local_peer_info(state.rank, state.config.device));
  if (state.config.device >= 0) {
    CCL_CHECK(describe_device(mine));
    CCL_TRY(state.gpu, Gpu::open(state.config.device));
    state.order = std::make_unique<GpuOrder>(state.gpu);
    state.status.copy_to(&state.gpu->watched().stop);
    mine.multiprocessors = state.gpu->multiprocessors();
    mine.max_blocks = state.bounds.most.value_or(0);
  }
  state.peers.resize(state.ranks);
  state.peers[state.rank] = mine;
  if (state.bootstrap) {
    CCL_CHECK(state.bootstrap->all_gather(state.peers.data(), Index{sizeof(PeerInfo)}));
    CCL_TRY(const Index size, setting_integer("JOURNAL_SIZE"));
    state.flight_recorder = std::make_unique<FlightRecorder>(int(size));
    // Its end comes before that of `state`, and with it the end of such calls.
    state.bootstrap->set_rank_status([&state](std::string_view rendezvous) {
      RankStatus mine = state.rank_status();
      mine.rendezvous = rendezvous;
      return pack(mine);
    });
    CCL_CHECK(report_on_signal(state.weak_from_this()));
  }
  const auto elsewhere = [&mine](const PeerInfo& peer) {
    return peer.host_hash != mine.host_hash && same_fabric(peer, mine);
  };
  if (std::any_of(state.peers.begin(), state.peers.end(), elsewhere)) state.gpu->use_fabric();
  CCL_CHECK(check_devices(state));
  if (state.gpu) state.max_blocks = blocks_of_all(state);
  CCL_CHECK(arrange_ranks(state));
  CCL_CHECK(prove_paths(state));
  log_info(LogPart::init, "communicator{}{} of {} ranks is up",
           state.config.name.empty() ? "" : " ", state.config.name, state.ranks);
  return {};
}

Result<void> meet(CommState& state, std::unique_ptr<Bootstrap> bootstrap) {
  state.bootstrap = std::move(bootstrap);
  auto met = exchange_peer_info(state);
  // The others hear why this rank leaves.
  if (!met && state.bootstrap) state.bootstrap->abort(met.error());
  return met;
}

Result<void> start(CommState& state, std::span<const UniqueId> ids) {
  const LogRank named{state.rank};
  std::unique_ptr<Bootstrap> bootstrap;
  if (state.ranks > 1) {
    CCL_TRY(bootstrap,
            Bootstrap::join(ids, state.rank, state.ranks, {state.init_timeout_s, &state.status}));
  }
  return meet(state, std::move(bootstrap));
}

/// What all handles of a communicator hold that a thread, which holds it, too, creates.
struct Handles {
  explicit Handles(std::shared_ptr<CommState> of) : state{std::move(of)} {}
  Handles(const Handles&) = delete;
  Handles& operator=(const Handles&) = delete;
  ~Handles() {
    if (!state->is_own() || !state->creating) return;
    state->fail_all({Errc::aborted, "its last handle ended while it was created", -1, state->rank});
  }
  std::shared_ptr<CommState> state;
};

Result<void> check_shape(int rank, int ranks) {
  if (ranks >= 1 && rank >= 0 && rank < ranks) return {};
  return fail(Errc::invalid_argument,
              fmt::format("rank {} of {} ranks cannot be (ranks are 0 to size - 1, and there is at "
                          "least one)",
                          rank, ranks));
}
}  // namespace
}  // namespace detail

using detail::CommState;

Result<Communicator> Communicator::create(const UniqueId& id, int rank, int ranks, Config config) {
  return create(std::span{&id, 1}, rank, ranks, std::move(config));
}

Result<Communicator> Communicator::create(std::span<const UniqueId> ids, int rank, int ranks,
                                          Config config) {
  if (auto good = detail::check_settings(); !good) {
    return fail(detail::of_rank(rank, std::move(good).error()));
  }
  CCL_CHECK(detail::check_shape(rank, ranks));
  if (ids.empty() || int(ids.size()) > ranks) {
    return fail(Errc::invalid_argument, fmt::format("{} unique ids for {} ranks (there must be at "
                                                    "least one and at most one for each rank)",
                                                    ids.size(), ranks));
  }
  const bool blocking = config.blocking;
  auto state = detail::left_alone_by_forks(new CommState{rank, ranks, std::move(config)});
  if (auto settled = detail::settle(*state); !settled) {
    return fail(state->annotate(std::move(settled).error()));
  }
  if (blocking) {
    if (auto done = detail::start(*state, ids); !done) {
      return fail(state->annotate(std::move(done).error()));
    }
    return Communicator{std::move(state)};
  }
  state->creating = true;
  const auto finish = [state, own = std::vector<UniqueId>(ids.begin(), ids.end())] {
    if (auto done = detail::start(*state, own); !done) {
      state->creation_failure = state->annotate(std::move(done).error());
      state->status.set(*state->creation_failure);
    }
    {
      const std::lock_guard lock{state->creation_mutex};
      state->creating.store(false, std::memory_order_release);
    }
    // Who aborted meanwhile, when all was done but this, has left the others to this thread.
    const auto well = state->status.result();
    if (!well && !state->creation_failure && state->bootstrap) {
      state->bootstrap->abort(well.error());
    }
    state->created.notify_all();
  };
  CCL_TRY(std::thread thread, detail::own_thread("a communicator", finish));
  thread.detach();
  auto handles = std::make_shared<detail::Handles>(state);
  return Communicator{std::shared_ptr<CommState>{handles, state.get()}};
}

Result<std::vector<Communicator>> Communicator::create_all(int ranks, Config config) {
  CCL_CHECK(detail::check_settings());
  CCL_CHECK(detail::check_shape(0, ranks));
  CCL_TRY(const UniqueId id, create_unique_id());
  // Rank r takes device r.
  const auto of_rank = [&config](int rank) {
    Config own = config;
    if (own.device == Config::automatic) own.device = detail::choose_device(rank, false);
    return own;
  };
  std::vector<Result<Communicator>> made(std::size_t(ranks), fail(Errc::internal, "not created"));
  // Nobody begins before all can: a rank that is missing would only be waited for.
  std::promise<bool> all_are_there;
  const auto begin = all_are_there.get_future().share();
  Result<void> started;
  std::vector<std::thread> threads;
  for (int r = 1; r < ranks && started; ++r) {
    auto thread = detail::own_thread(fmt::format("rank {}", r), [&, begin, r] {
      if (begin.get()) made[std::size_t(r)] = create(id, r, ranks, of_rank(r));
    });
    if (thread) {
      threads.push_back(*std::move(thread));
    } else {
      started = fail(std::move(thread).error());
    }
  }
  all_are_there.set_value(bool(started));
  if (started) made[0] = create(id, 0, ranks, of_rank(0));
  for (auto& thread : threads) thread.join();
  CCL_CHECK(started);
  // A rank that only heard of another one's end does not say why.
  const auto says_why = [](const Result<Communicator>& one) {
    return !one && one.error().code != Errc::aborted && one.error().code != Errc::peer_lost;
  };
  const auto cause = std::find_if(made.begin(), made.end(), says_why);
  if (cause != made.end()) return fail(cause->error());
  std::vector<Communicator> all;
  for (auto& one : made) {
    CCL_TRY(auto comm, std::move(one));
    all.push_back(std::move(comm));
  }
  return all;
}

Result<std::optional<Communicator>> Communicator::split(int color, int key, Config config) const {
  CCL_CHECK(state_->ready());
  if (state_->ranks == 1) {
    if (color < 0) return std::optional<Communicator>{};
    CCL_TRY(auto alone, create(UniqueId{}, 0, 1, std::move(config)));
    return std::optional<Communicator>{std::move(alone)};
  }
  // The child's status must outlive its bootstrap, so the state comes first; rank and size follow.
  auto child = detail::left_alone_by_forks(new CommState{0, 1, std::move(config)});
  if (auto settled = detail::settle(*child); !settled) {
    return fail(state_->annotate(std::move(settled).error()));
  }
  const std::lock_guard lock{state_->bootstrap_mutex};
  auto bootstrap = state_->bootstrap->split(color, key, {child->init_timeout_s, &child->status});
  if (!bootstrap) return fail(state_->annotate(std::move(bootstrap).error()));
  if (color < 0) return std::optional<Communicator>{};
  if (*bootstrap != nullptr) {
    child->rank = (*bootstrap)->rank();
    child->ranks = (*bootstrap)->ranks();
    if (child->ranks == 1) bootstrap->reset();
  }
  if (auto met = detail::meet(*child, *std::move(bootstrap)); !met) {
    return fail(child->annotate(std::move(met).error()));
  }
  return std::optional<Communicator>{Communicator{std::move(child)}};
}

Result<Communicator> Communicator::shrink(std::span<const int> excluded, Shrink parent,
                                          Config config) const {
  if (auto well = state_->ready(); !well && !state_->was_up()) return fail(std::move(well).error());
  auto stay = detail::surviving_ranks(state_->rank, state_->ranks, excluded);
  if (!stay) return fail(state_->annotate(std::move(stay).error()));
  auto child = detail::left_alone_by_forks(new CommState{0, 1, std::move(config)});
  if (auto settled = detail::settle(*child); !settled) {
    return fail(state_->annotate(std::move(settled).error()));
  }
  if (parent == Shrink::abort_parent) {
    state_->fail_all({Errc::aborted, "shrink ends what runs", -1, state_->rank});
  }
  std::unique_ptr<detail::Bootstrap> bootstrap;
  if (stay->size() > 1) {
    auto made = state_->bootstrap->shrink(excluded, {child->init_timeout_s, &child->status});
    if (!made) return fail(state_->annotate(std::move(made).error()));
    bootstrap = *std::move(made);
    child->rank = bootstrap->rank();
    child->ranks = bootstrap->ranks();
  }
  // From here on all that stay have it, whatever becomes of it: they are not to go different ways.
  if (auto met = detail::meet(*child, std::move(bootstrap)); !met) {
    child->status.set(child->annotate(std::move(met).error()));
  }
  return Communicator{std::move(child)};
}

}  // namespace ccl
