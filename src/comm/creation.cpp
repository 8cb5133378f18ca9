#include "comm/creation.hpp"

#include <ccl/comm/communicator.hpp>
#include <ccl/comm/log.hpp>
#include <ccl/detail/runtime/guarded.hpp>
#include <ccl/detail/runtime/plans.hpp>
#include <ccl/detail/runtime/settings.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <span>
#include <string_view>
#include <thread>
#include <tuple>
#include <utility>

#include "base/exceptions.hpp"
#include "base/io/os_error.hpp"
#include "base/thread.hpp"
#include "comm/observe/failure_dump.hpp"
#include "comm/observe/health.hpp"
#include "comm/observe/report_signal.hpp"
#include "comm/part_rules.hpp"
#include "comm/state.hpp"
#include "gpu/devices.hpp"
#include "net/crypto/sha256.hpp"
#include "net/root.hpp"
#include "settings/report.hpp"
#include "topo/discover/fabric_in_file.hpp"
#include "topo/graph/p2p_path.hpp"

namespace ccl {
namespace detail {
namespace {
/// Blocks that a launch may have on the rank `peer`. Ranks on one GPU share its multiprocessors,
/// because a block that only waits must not displace the block that it waits for. Without a bound
/// of its own, a communicator leaves three quarters of a GPU to others and to the program.
int blocks_of(const PeerInfo& peer, int ranks_on_gpu) {
  constexpr int upper_limit = 128;
  if (peer.max_blocks > 0) {
    return std::min({upper_limit, peer.max_blocks, peer.multiprocessors / ranks_on_gpu});
  }
  return std::min(default_max_blocks, peer.multiprocessors / 4) / ranks_on_gpu;
}

/// Blocks that a launch may have on every rank: the fewest of all ranks.
int blocks_of_all(const CommState& state) {
  int blocks = std::numeric_limits<int>::max();
  for (const PeerInfo& peer : state.identity.peers()) {
    blocks = std::min(blocks, blocks_of(peer, state.device.ranks_on_gpu));
  }
  return std::max(1, blocks);
}

/// Fails if some ranks are on CPUs and others on GPUs. Fails if two ranks are on one GPU, unless
/// CCL_MULTI_RANK_GPU_ENABLE allows it.
Result<void> check_devices(CommState& state) {
  const PeerInfo& mine = state.identity.peers()[state.identity.rank()];
  std::map<std::tuple<std::uint64_t, std::int64_t, std::uint64_t>, int> ranks;
  for (const PeerInfo& other : state.identity.peers()) {
    if ((other.device < 0) != (mine.device < 0)) {
      Error error{Errc::mismatch,
                  fmt::format("rank {} is on {} and rank {} on {}; give all ranks a GPU, or none "
                              "(Config::device)",
                              mine.rank, mine.device < 0 ? "a CPU" : "a GPU", other.rank,
                              other.device < 0 ? "a CPU" : "a GPU")};
      error.peer = other.rank;
      return fail(std::move(error));
    }
    int& sharing = ranks[{other.host_hash, other.bus_id, other.gpu}];
    state.device.ranks_on_gpu = std::max(state.device.ranks_on_gpu, ++sharing);
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

/// Sets the size of launches, and lets other communicators on the GPU know of this one.
Result<void> take_place_on_gpu(CommState& state) {
  if (!state.device.gpu) return {};
  state.device.max_blocks = blocks_of_all(state);
  const auto& peers = state.identity.peers();
  const auto here = [&mine = peers[std::size_t(state.identity.rank())]](const PeerInfo& peer) {
    return peer.rank < mine.rank && same_gpu(mine, peer);
  };
  const auto index = std::count_if(peers.begin(), peers.end(), here);
  return state.device.order->join({state.device.max_blocks, state.device.ranks_on_gpu, int(index),
                                   state.limits.implicit_launch_order, &state.status,
                                   state.limits.timeout_s});
}

/// Returns a number that shows nothing of the secret.
Word public_id(const net::Secret& secret) {
  const std::string_view purpose{"id of a communicator"};
  const net::Digest digest = net::hmac_sha256(secret, std::as_bytes(std::span{purpose}));
  Word id = 0;
  std::memcpy(&id, digest.data(), sizeof id);
  return id;
}

/// Lets other threads ask for the status of this rank, which is complete with its place on the GPU.
Result<void> answer_reports(CommState& state) {
  join_health_service(state);
  if (!state.rendezvous.bootstrap()) return {};
  Bootstrap& bootstrap = *state.rendezvous.bootstrap();
  // `state` destroys the bootstrap first, so no such call outlives it.
  bootstrap.set_rank_status([&state](std::string_view rendezvous) {
    RankStatus mine = state.observers.status();
    mine.rendezvous = rendezvous;
    state.watchdog.describe(mine);
    return pack(health_of(state), pack(mine));
  });
  bootstrap.set_status_listener(
      [&state](std::span<const std::byte> status) { state.watchdog.on_status(status); });
  CCL_CHECK(state.watchdog.start());
  return report_on_signal(state.weak_from_this());
}

Result<void> exchange_peer_info(CommState& state) {
  CCL_TRY(auto mine, local_peer_info(state.identity.rank(), state.identity.config().device));
  if (state.identity.config().device >= 0) {
    CCL_CHECK(describe_device(mine, topo::fabric_in_file));
    CCL_TRY(state.device.gpu, Gpu::open(state.identity.config().device));
    state.device.order = std::make_unique<GpuOrder>(state.device.gpu);
    state.status.copy_to(&state.device.gpu->watched().stop);
    mine.multiprocessors = state.device.gpu->multiprocessors();
    mine.max_blocks = state.limits.bounds.most.value_or(0);
  }
  state.identity.set_self(mine);
  if (Bootstrap* const bootstrap = state.rendezvous.bootstrap()) {
    CCL_CHECK(bootstrap->all_gather(state.identity.gathered_peers(), Index{sizeof(PeerInfo)}));
    state.identity.forget_ways();
    CCL_CHECK(check_gathered(state, state.identity.peers(), wrong_peer_info));
    state.identity.set_id(public_id(bootstrap->secret()));
    CCL_CHECK(bootstrap->share_call_limit(state.limits.timeout_s));
    CCL_TRY(const Index size, setting_integer("FLIGHT_RECORDER_SIZE"));
    state.observers.start_recorder(int(size));
    CCL_TRY(const Index transfers, setting_integer("TRACE_TRANSFERS"));
    state.proxy.note_transfers(int(transfers));
    CCL_CHECK(observe_failure(state));
  }
  // A lone rank on a GPU may have graphs, too.
  if (state.rendezvous.bootstrap() || state.device.gpu) CCL_CHECK(state.failure_watch.start());
  if (!state.rendezvous.bootstrap()) {
    Word id = 0;
    net::fill_random(std::as_writable_bytes(std::span{&id, 1}));
    state.identity.set_id(id);
  }
  const auto elsewhere = [&mine](const PeerInfo& peer) {
    return peer.host_hash != mine.host_hash && same_fabric(peer, mine);
  };
  const auto& peers = state.identity.peers();
  if (std::any_of(peers.begin(), peers.end(), elsewhere)) state.device.gpu->use_fabric();
  CCL_CHECK(check_devices(state));
  CCL_CHECK(take_place_on_gpu(state));
  CCL_CHECK(answer_reports(state));
  CCL_CHECK(arrange_ranks(state));
  CCL_CHECK(prove_paths(state));
  state.observers.life().is_up = true;
  log_info(LogPart::init, "{} is up", say(state.identity));
  return {};
}

Result<void> meet(CommState& state, std::unique_ptr<Bootstrap> bootstrap) {
  state.rendezvous.set_bootstrap(std::move(bootstrap));
  auto joined = exchange_peer_info(state);
  // The other ranks receive the error of this one.
  if (!joined && state.rendezvous.bootstrap()) state.rendezvous.bootstrap()->abort(joined.error());
  return joined;
}

Result<void> start(CommState& state, std::span<const UniqueId> ids) {
  const LogRank named{state.identity.rank()};
  std::unique_ptr<Bootstrap> bootstrap;
  if (state.identity.ranks() > 1) {
    CCL_TRY(bootstrap, Bootstrap::join(ids, state.identity.rank(), state.identity.ranks(),
                                       {state.limits.init_timeout_s, &state.status}));
  }
  CCL_CHECK(meet(state, std::move(bootstrap)));
  notify_created(state);
  return {};
}

/// Owner of the state of a communicator under asynchronous creation, which all its handles share.
/// Aborts the creation when the last handle is destroyed.
struct Handles {
  explicit Handles(std::shared_ptr<CommState> of) : state{std::move(of)} {}
  Handles(const Handles&) = delete;
  Handles& operator=(const Handles&) = delete;
  ~Handles() {
    if (!state->identity.is_own() || !state->creation.running()) return;
    const int rank = state->identity.rank();
    const auto abort = [&] {
      state->rendezvous.fail_all(
          {Errc::aborted, "its last handle ended while it was created", -1, rank});
    };
    if (!completes(abort)) state->rendezvous.fail_all(brief_error(Errc::aborted, rank));
  }
  std::shared_ptr<CommState> state;
};

}  // namespace

Result<void> check_shape(int rank, int ranks) {
  if (ranks >= 1 && rank >= 0 && rank < ranks) return {};
  return fail(Errc::invalid_argument,
              fmt::format("rank {} of {} ranks cannot be (ranks are 0 to size - 1, and there is at "
                          "least one)",
                          rank, ranks));
}

bool Creation::fail_while_running(Status& status, const Error& error) {
  const std::lock_guard lock{mutex_};
  status.set(error);
  return running();
}

void Creation::fail(Error error, Status& status) noexcept {
  failure_ = std::move(error);
  if (!completes([&] { status.set(*failure_); })) status.set(brief_error(failure_->code));
}

void Creation::cancel() {
  running_ = false;
}

void Creation::finish(const Status& status, Bootstrap* bootstrap) noexcept {
  {
    const std::lock_guard lock{mutex_};
    running_.store(false, std::memory_order_release);
  }
  // A thread that aborted earlier did not use the bootstrap, so this thread sends the error.
  if (!status.ok() && !failure_ && bootstrap != nullptr) {
    const auto well = without_exceptions([&] { return status.result(); },
                                         [](Error thrown) { return brief_error(thrown.code); });
    bootstrap->abort(well.error());
  }
  ended_.notify_all();
}

void Creation::wait() {
  std::unique_lock lock{mutex_};
  ended_.wait(lock, [this] { return !running(); });
}

namespace {
/// Fails the roots of this process if the rank may have run out of memory before it joined them.
void tell_roots(std::span<const UniqueId> ids, const Error& error) noexcept {
  if (error.code == Errc::out_of_memory) net::fail_roots(ids, error);
}

/// Body of the thread that creates a communicator.
void create_in_background(CommState& state, std::span<const UniqueId> ids) noexcept {
  auto done = without_exceptions([&] { return start(state, ids); });
  if (!done) {
    tell_roots(ids, done.error());
    const Errc code = done.error().code;
    auto error = without_exceptions(
        [&]() -> Result<Error> { return state.annotate(std::move(done).error()); },
        [&](Error) { return brief_error(code); });
    state.creation.fail(error ? *std::move(error) : std::move(error).error(), state.status);
  }
  state.creation.finish(state.status, state.rendezvous.bootstrap());
}

Result<Communicator> create_rank(std::span<const UniqueId> ids, int rank, int ranks,
                                 Config config) {
  if (auto good = check_settings(); !good) return fail(of_rank(rank, std::move(good).error()));
  CCL_CHECK(check_shape(rank, ranks));
  report_settings(rank);
  if (ids.empty() || int(ids.size()) > ranks) {
    return fail(Errc::invalid_argument, fmt::format("{} unique ids for {} ranks (there must be at "
                                                    "least one and at most one for each rank)",
                                                    ids.size(), ranks));
  }
  const bool blocking = config.blocking;
  auto state = CommState::make(rank, ranks, std::move(config));
  if (auto settled = state->limits.resolve(state->identity); !settled) {
    return fail(state->annotate(std::move(settled).error()));
  }
  if (blocking) {
    if (auto done = start(*state, ids); !done) {
      return fail(state->annotate(std::move(done).error()));
    }
    return Access::communicator(std::move(state));
  }
  auto handles = std::make_shared<Handles>(state);
  auto comm = Access::communicator(std::shared_ptr<CommState>{handles, state.get()});
  const auto finish = [state, own = std::vector<UniqueId>(ids.begin(), ids.end())] {
    create_in_background(*state, own);
  };
  state->creation.begin();
  auto thread = own_thread("a communicator", finish);
  if (!thread) {
    state->creation.cancel();
    return fail(state->annotate(std::move(thread).error()));
  }
  thread->detach();
  return comm;
}

/// A child is on its parent's device, whatever device the thread is at.
void take_device(const CommState& parent, Config& config) {
  if (config.device == Config::automatic) config.device = parent.identity.config().device;
}

Result<std::optional<Communicator>> split(CommState& parent, int color, int key, Config config) {
  CCL_CHECK(parent.ready());
  take_device(parent, config);
  if (parent.identity.ranks() == 1) {
    if (color < 0) return std::optional<Communicator>{};
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
  take_device(parent, config);
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
  // All remaining ranks get the communicator now, even if it fails, so that none of them differs.
  if (auto joined = meet(*child, std::move(bootstrap)); !joined) {
    child->status.set(child->annotate(std::move(joined).error()));
  }
  notify_created(*child);  // and that it has failed
  return Access::communicator(std::move(child));
}
}  // namespace
}  // namespace detail

Result<Communicator> Communicator::create(const UniqueId& id, int rank, int ranks, Config config) {
  return create(std::span{&id, 1}, rank, ranks, std::move(config));
}

Result<Communicator> Communicator::create(std::span<const UniqueId> ids, int rank, int ranks,
                                          Config config) {
  auto made = detail::without_exceptions(
      [&] { return detail::create_rank(ids, rank, ranks, std::move(config)); });
  if (!made) detail::tell_roots(ids, made.error());
  return made;
}

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
