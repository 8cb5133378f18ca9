#include <ccl/comm/communicator.hpp>
#include <ccl/comm/log.hpp>
#include <ccl/detail/runtime/settings.hpp>

#include <fmt/format.h>

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/exceptions.hpp"
#include "base/io/os_error.hpp"
#include "base/thread.hpp"
#include "bootstrap/decline.hpp"
#include "comm/creation/first_exchange.hpp"
#include "comm/state.hpp"
#include "net/root.hpp"

namespace ccl {
namespace detail {
namespace {

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
  if (auto good = check_settings(); !good) {
    decline(ids, rank, ranks, good.error());
    return fail(of_rank(rank, std::move(good).error()));
  }
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
    decline(ids, rank, ranks, settled.error());
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

}  // namespace ccl
