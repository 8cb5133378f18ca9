#include "comm/creation/first_exchange.hpp"

#include <ccl/comm/log.hpp>
#include <ccl/detail/runtime/plans.hpp>
#include <ccl/detail/runtime/settings.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>

#include "comm/observe/failure_dump.hpp"
#include "comm/observe/health.hpp"
#include "comm/observe/report_signal.hpp"
#include "comm/part_rules.hpp"
#include "comm/state.hpp"
#include "gpu/devices.hpp"
#include "net/crypto/sha256.hpp"
#include "proxy/transfer_log.hpp"
#include "topo/discover/fabric_in_file.hpp"
#include "topo/graph/p2p_path.hpp"

namespace ccl::detail {
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
  const PeerInfo& mine = peers[std::size_t(state.identity.rank())];
  // Those have up to 8 GPCs, which `Residency` counts on. GPUs without NVLink gain nothing.
  const bool has_clusters = mine.compute_capability >= 90 && mine.compute_capability < 120;
  const int cluster = has_clusters ? state.limits.cluster_blocks : 1;
  return state.device.order->join({state.device.max_blocks, state.device.ranks_on_gpu, int(index),
                                   state.limits.implicit_launch_order, &state.status,
                                   state.limits.timeout_s, cluster});
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
  bootstrap.set_rank_status([&state, &bootstrap](std::string_view rendezvous) {
    RankStatus mine = state.observers.status();
    mine.rendezvous = rendezvous;
    mine.rendezvous_number = bootstrap.calls_begun();
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
    state.proxy.note_transfers(std::max(int(transfers), TransferLog::least()));
    state.proxy.limit_calls(state.limits.timeout_s);
    CCL_CHECK(observe_failure(state));
    state.departure.start();
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
  CCL_CHECK(lend_gpus(state));
  CCL_CHECK(prove_paths(state));
  state.observers.life().is_up = true;
  log_info(LogPart::init, "{} is up", say(state.identity));
  return {};
}

}  // namespace

Result<void> meet(CommState& state, std::unique_ptr<Bootstrap> bootstrap) {
  state.rendezvous.set_bootstrap(std::move(bootstrap));
  auto joined = exchange_peer_info(state);
  // The other ranks receive the error of this one.
  if (!joined && state.rendezvous.bootstrap()) state.rendezvous.bootstrap()->abort(joined.error());
  return joined;
}

}  // namespace ccl::detail
