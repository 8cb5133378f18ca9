#include "comm/peer_waits.hpp"

#include <utility>

namespace ccl::detail {
namespace {
thread_local bool must_not_wait = false, was_refused = false;
}  // namespace

NoPeerWaits::NoPeerWaits()
    : outer_{std::exchange(must_not_wait, true)},
      outer_refused_{std::exchange(was_refused, false)} {}
NoPeerWaits::~NoPeerWaits() {
  must_not_wait = outer_;
  was_refused = outer_refused_;
}
bool NoPeerWaits::refused() const {
  return was_refused;
}

Result<void> check_may_wait() {
  if (!must_not_wait) return {};
  was_refused = true;
  return fail(Errc::in_progress, "the call waits for ranks of its own thread");
}

}  // namespace ccl::detail
