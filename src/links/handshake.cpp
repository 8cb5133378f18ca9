#include "links/handshake.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>

#include "links/verdict.hpp"

namespace ccl::detail {

Error truth_of(const CommState& state, Error error) {
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
  context.secret = state.bootstrap->secret();
  context.deadline_s = state.init_timeout_s;
  context.arena = arena;
  context.local_ranks =
      int(std::count_if(state.peers.begin(), state.peers.end(), [&](const PeerInfo& peer) {
        return peer.host_hash == state.peers[std::size_t(state.rank)].host_hash;
      }));
  return context;
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

Result<void> shake_hands(CommState& state, std::string_view name, const char* transport,
                         const Result<void>& so_far, const std::vector<Meeting>& meetings) {
  const auto named = [&](Error error, const Meeting& m) {
    error = truth_of(state, std::move(error));
    if (error.peer < 0) error.peer = m.peer;  // a rank that was lost is named already
    if (error.transport.empty()) error.transport = transport;
    return fail(state.blame(std::move(error)));
  };
  std::vector<Offer> offers;
  const auto offer = [&]() -> Result<void> {
    CCL_CHECK(so_far);
    for (const Meeting& m : meetings) {
      auto mine = m.offer();
      if (!mine) return named(std::move(mine).error(), m);
      offers.emplace_back(*mine, m.by);
    }
    return {};
  };
  // Nobody waits for an edge that its other end refuses.
  CCL_CHECK(all_agree(state, name, offer()));
  const auto connect = [&]() -> Result<void> {
    for (std::size_t i = 0; i < meetings.size(); ++i) {
      const Meeting& m = meetings[i];
      auto sent = state.bootstrap->send(m.peer, m.id, &offers[i], Index{sizeof(Offer)});
      if (!sent) return named(std::move(sent).error(), m);
    }
    for (const Meeting& m : meetings) {
      auto got = state.bootstrap->recv(m.peer, m.id);
      if (!got) return state.met_to_create(named(std::move(got).error(), m));
      Offer theirs;
      std::memcpy(&theirs, got->data(), std::min(got->size(), sizeof theirs));
      auto made = check_same_transport(theirs, m.peer, m.by, state.rank);
      if (made) made = m.connect(theirs.handshake);
      if (!made) {
        Error error = named(std::move(made).error(), m).error();
        if (error.code == Errc::timed_out) error = state.without_answer(std::move(error));
        return fail(std::move(error));
      }
    }
    return {};
  };
  // An end stays until the other has connected, however soon its owner lets go: all meet once more.
  const Result<void> connected = connect();
  if (!connected && !state.status.ok()) return connected;  // all have heard
  return all_agree(state, name, connected);
}

}  // namespace ccl::detail
