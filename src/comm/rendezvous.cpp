#include "comm/rendezvous.hpp"

#include <ccl/comm/log.hpp>

#include <fmt/format.h>

#include <utility>

#include "base/exceptions.hpp"
#include "comm/observe/failure_dump.hpp"
#include "comm/state.hpp"
#include "net/engine.hpp"
#include "net/message_rules.hpp"

namespace ccl::detail {

int Rendezvous::next_composition() {
  state_.departure.note_use();
  return compositions_.fetch_add(1);
}

void Rendezvous::fail_all(Error error) noexcept {
  const Errc code = error.code;
  const int peer = error.peer;
  if (completes([&] { spread(state_.annotate(std::move(error))); })) return;
  const Error brief = brief_error(code, peer);
  if (completes([&] { spread(brief); })) return;
  if (bootstrap_) bootstrap_->abort(brief);
  lose_log_line();
}

void Rendezvous::lose_departed(int peer) noexcept {
  const auto lock = net::Engine::get().lock();
  if (bootstrap_) bootstrap_->lose_departed(lock, peer);
}

void Rendezvous::spread(const Error& error) {
  // The creating thread has the bootstrap, so it sends the error to the others.
  if (state_.creation.fail_while_running(state_.status, error)) return;
  if (bootstrap_) bootstrap_->abort(error);
  if (const auto parts = state_.levels.current()) LevelCache::fail(*parts, error);
}

Result<void> Rendezvous::disagree(std::string what, int peer) {
  if (auto well = state_.status.result(); !well) {
    return fail(state_.annotate(std::move(well).error()));
  }
  Error error = state_.annotate({Errc::mismatch, std::move(what)});
  error.peer = peer;
  // A rank that left earlier would send its own end to the others in place of this error.
  (void)bootstrap_->barrier();
  fail_all(error);
  return fail(std::move(error));
}

Result<void> Rendezvous::break_off(int sender, std::string_view why) {
  const std::string host = bootstrap_ ? bootstrap_->place(sender).host : std::string{};
  Error error =
      state_.annotate(net::protocol_error(fmt::format("rank {} on {}", sender, host), sender,
                                          fmt::format("rank {}", state_.identity.rank()), why));
  fail_all(error);
  return fail(std::move(error));
}

Result<void> Rendezvous::after_rendezvous(Result<void> result) {
  if (result) return {};
  if (result.error().code != Errc::timed_out)
    return fail(state_.annotate(std::move(result).error()));
  // The flight recorders name a rank that is behind, not only ranks that are missing.
  Error error = state_.annotate(state_.observers.overdue(std::move(result).error()));
  fail_all(error);
  dump_failure(state_);
  return fail(std::move(error));
}

Result<void> Rendezvous::after_creation(Result<void> result) {
  if (result) return {};
  Error error = state_.annotate(std::move(result).error());
  if (error.code == Errc::timed_out) fail_all(error);
  return fail(std::move(error));
}

Error Rendezvous::without_answer(Error error) {
  if (!bootstrap_) return error;
  if (!state_.status.ok()) {
    // A task of a proxy may have failed this rank alone. The watch of failures sends that later,
    // and this rank may have left by then.
    return bootstrap_->failure() ? error : late_connection(std::move(error));
  }
  const auto reported = bootstrap_->rank_statuses(report_limit_s);
  if (auto well = state_.status.result(); !well) return std::move(well).error();
  if (name_silent(error, reported)) fail_all(error);
  return error;
}

Error Rendezvous::late_connection(Error error) {
  if (!bootstrap_) return error;
  if (!name_silent(error, bootstrap_->rank_statuses(report_limit_s))) {
    // Another rank may have found the cause meanwhile: that the peer waits for a third one.
    auto found = bootstrap_->failure();
    const int own = state_.identity.rank();
    if (found && found->peer >= 0 && found->peer != own) error = state_.annotate(*std::move(found));
  }
  fail_all(error);
  return error;
}

bool Rendezvous::name_silent(Error& error,
                             const std::vector<std::vector<std::byte>>& reported) const {
  const auto empty = [&reported](int r) { return reported[std::size_t(r)].empty(); };
  if (empty(state_.identity.rank())) return false;  // the bootstrap ends, and nobody was asked
  const bool known = error.peer >= 0 && error.peer < state_.identity.ranks();
  if (known && state_.status.has_departed(error.peer)) {
    error.code = Errc::peer_lost;
    error.what = fmt::format("rank {} on {} has ended (its process exited): {}", error.peer,
                             state_.identity.peers()[std::size_t(error.peer)].host, error.what);
    return true;
  }
  const auto silent = [&](int r) { return empty(r) && !state_.status.has_departed(r); };
  int found = known && silent(error.peer) ? error.peer : -1;
  for (int r = 0; r < state_.identity.ranks() && found < 0; ++r) {
    if (silent(r)) found = r;
  }
  if (found < 0) return false;
  error.peer = found;
  error.what = fmt::format("rank {} on {} does not answer (stopped, or cut off): {}", found,
                           state_.identity.peers()[std::size_t(found)].host, error.what);
  return true;
}

}  // namespace ccl::detail
