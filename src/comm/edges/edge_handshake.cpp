#include "comm/edges/edge_handshake.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>

#include "base/field_check.hpp"
#include "comm/part_rules.hpp"
#include "comm/rank_results.hpp"

namespace ccl::detail {

Error root_cause(const CommState& state, Error error) {
  const auto due = std::chrono::steady_clock::now() + std::chrono::seconds{2};
  while ((error.code == Errc::peer_lost || error.code == Errc::network) && state.status.ok() &&
         std::chrono::steady_clock::now() < due) {
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
  if (auto well = state.status.result(); !well) return std::move(well).error();
  return error;
}

TransportContext transport_context(CommState& state, GpuArena* arena) {
  TransportContext context;
  context.proxy = &state.proxy;
  context.status = &state.status;
  context.secret = state.rendezvous.bootstrap()->secret();
  context.deadline_s = state.limits.init_timeout_s;
  context.arena = arena;
  context.reached_at = state.rendezvous.bootstrap()->reached_at();
  context.numa = state.device.numa;
  context.traffic_class = state.identity.config().traffic_class.value_or(-1);
  const auto& peers = state.identity.peers();
  const auto host = peers[std::size_t(state.identity.rank())].host_hash;
  context.local_ranks = int(std::count_if(
      peers.begin(), peers.end(), [host](const PeerInfo& peer) { return peer.host_hash == host; }));
  return context;
}

std::string read_offer(Offer& theirs, std::span<const std::byte> message) {
  FieldCheck check;
  check.in_range("length of an offer", message.size(), sizeof theirs, sizeof theirs);
  if (!check.good()) return check.why();
  std::memcpy(&theirs, message.data(), sizeof theirs);
  return check.text("transport", theirs.by).why();
}

Result<void> check_same_transport(const Offer& theirs, int peer, const char* mine, int me) {
  const Offer own{{}, mine};
  if (std::memcmp(own.by, theirs.by, sizeof own.by) == 0) return {};
  return fail(
      Errc::mismatch,
      fmt::format("rank {} takes {} between the two and rank {} {} (CCL_TRANSPORT, or a "
                  "setting that keeps one from use, as CCL_SHM_DISABLE and "
                  "CCL_IB_DISABLE, differs); set these alike on all ranks",
                  peer, std::string{theirs.by, strnlen(theirs.by, sizeof theirs.by)}, me, own.by));
}

namespace {
/// End of an edge, gathered from all ranks when the ends do not match.
struct Named {
  std::uint64_t id = 0, channels = 0;
  int peer = -1;
  bool is(const Named& other) const { return id == other.id && channels == other.channels; }
};

std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58'476d'1ce4'e5b9u;
  x = (x ^ x >> 27) * 0x94d0'49bb'1331'11ebu;
  return x ^ x >> 31;
}
/// Checksum of the ends of this rank. All ranks' checksums combine to 0 by exclusive or if each end
/// has its other end.
std::uint64_t sum_of(const std::vector<EdgeHandshake>& rendezvous_points, int me) {
  std::uint64_t sum = 0;
  for (const EdgeHandshake& m : rendezvous_points) {
    const auto low = std::uint64_t(std::min(me, m.peer)),
               high = std::uint64_t(std::max(me, m.peer));
    sum ^= mixed(mixed(mixed(m.id + 1) + m.channels) + (low << 32 | high) + 1);
  }
  return sum;
}

/// Returns an error for the first end that its peer does not name. Collective.
Result<void> find_lone_end(CommState& state, std::string_view name,
                           const std::vector<EdgeHandshake>& rendezvous_points) {
  const auto ranks = std::size_t(state.identity.ranks()), me = std::size_t(state.identity.rank());
  const Index own = Index(rendezvous_points.size());
  std::vector<Index> counts(ranks);
  counts[me] = own;
  const auto gather = [&](void* all, Index bytes) {
    return state.rendezvous.after_creation(
        state.rendezvous.bootstrap()->all_gather(all, bytes, {}, {"the creation of", name}));
  };
  CCL_CHECK(gather(counts.data(), Index{sizeof(Index)}));
  // A rank has at most one edge in each direction with each peer.
  CCL_CHECK(check_gathered(state, counts, [ranks](Index count, int) {
    return FieldCheck{}.in_range("number of edges", count, 0, Index(2 * ranks)).why();
  }));
  const auto most = std::size_t(*std::max_element(counts.begin(), counts.end()));
  std::vector<Named> all(ranks * most);
  for (std::size_t i = 0; i < rendezvous_points.size(); ++i) {
    all[me * most + i] = {rendezvous_points[i].id, rendezvous_points[i].channels,
                          rendezvous_points[i].peer};
  }
  CCL_CHECK(gather(all.data(), Index(most * sizeof(Named))));
  const auto wrong = [ranks](const Named& one) {
    return FieldCheck{}.in_range("peer of an edge", one.peer, -1, Index(ranks) - 1).why();
  };
  for (std::size_t n = 0; n < all.size(); ++n) {
    if (const std::string why = wrong(all[n]); !why.empty()) {
      return state.rendezvous.break_off(int(n / most), why);
    }
  }
  for (std::size_t n = 0; n < all.size(); ++n) {
    const Named& one = all[n];
    if (one.peer < 0) continue;
    const int rank = int(n / most);
    const auto begin = all.begin() + std::ptrdiff_t(std::size_t(one.peer) * most);
    const auto answers = [&](const Named& its) { return its.peer == rank && its.id == one.id; };
    const auto found = std::find_if(begin, begin + std::ptrdiff_t(most), answers);
    const bool there = found != begin + std::ptrdiff_t(most);
    if (there && found->is(one)) continue;
    const int sender = int(one.id >> 20 & 0xf'ffff), receiver = int(one.id & 0xf'ffff);
    const bool sends = sender == rank;
    Error error{
        Errc::invalid_argument,
        fmt::format("{} has a wire from rank {} to rank {} that its ends do not both name "
                    "(the algorithm's `peers` calls positions.{}({}) on rank {}, and {} "
                    "positions.{}({}) on rank {}); call both, for the same channels",
                    name, sender, receiver, sends ? "to" : "from", one.peer, rank,
                    there ? "on other channels" : "no", sends ? "from" : "to", rank, one.peer)};
    error.peer = one.peer;
    return fail(state.annotate(std::move(error)));
  }
  return fail(state.annotate({Errc::internal, fmt::format("{} has ends that do not match", name)}));
}
}  // namespace

Result<void> swap_handshakes(CommState& state, std::string_view name, const char* transport,
                             const Result<void>& so_far,
                             const std::vector<EdgeHandshake>& rendezvous_points) {
  const auto named = [&](Error error, const EdgeHandshake& m) {
    error = root_cause(state, std::move(error));
    if (error.peer < 0) error.peer = m.peer;  // a lost rank is already named
    if (error.transport.empty()) error.transport = transport;
    return fail(state.annotate(std::move(error)));
  };
  std::vector<Offer> offers;
  const auto offer = [&]() -> Result<void> {
    CCL_CHECK(so_far);
    for (const EdgeHandshake& m : rendezvous_points) {
      auto mine = m.offer();
      if (!mine) return named(std::move(mine).error(), m);
      offers.emplace_back(*mine, m.by);
    }
    return {};
  };
  // No rank waits for an edge that its other end refuses.
  std::uint64_t edges = sum_of(rendezvous_points, state.identity.rank());
  CCL_CHECK(all_agree(state, name, offer(), &edges));
  if (edges != 0) return find_lone_end(state, name, rendezvous_points);
  const auto connect = [&]() -> Result<void> {
    for (std::size_t i = 0; i < rendezvous_points.size(); ++i) {
      const EdgeHandshake& m = rendezvous_points[i];
      auto sent =
          state.rendezvous.bootstrap()->send(m.peer, m.id, &offers[i], Index{sizeof(Offer)});
      if (!sent) return named(std::move(sent).error(), m);
    }
    for (const EdgeHandshake& m : rendezvous_points) {
      auto got = state.rendezvous.bootstrap()->recv(m.peer, m.id);
      if (!got) return state.rendezvous.after_creation(named(std::move(got).error(), m));
      Offer theirs;
      if (const std::string why = read_offer(theirs, *got); !why.empty()) {
        return state.rendezvous.break_off(m.peer, why);
      }
      auto made = check_same_transport(theirs, m.peer, m.by, state.identity.rank());
      if (made) made = m.connect(theirs.handshake);
      if (!made) {
        Error error = named(std::move(made).error(), m).error();
        if (error.code == Errc::timed_out) {
          error = state.rendezvous.without_answer(std::move(error));
        }
        return fail(std::move(error));
      }
    }
    return {};
  };
  // All ranks take one more step together, so that no end closes before the other has connected.
  const Result<void> connected = connect();
  if (!connected && !state.status.ok()) return connected;  // all ranks have the error
  return all_agree(state, name, connected);
}

}  // namespace ccl::detail
