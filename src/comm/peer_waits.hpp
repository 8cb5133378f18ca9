#pragma once

#include <ccl/types/result.hpp>

namespace ccl::detail {

/// While one exists, calls of this thread do not wait for other ranks. A thread that makes the
/// calls of several ranks would wait for itself. Such a call returns an error before it has any
/// effect, and may be made again on a thread of its own.
class NoPeerWaits {
 public:
  NoPeerWaits();
  ~NoPeerWaits();
  NoPeerWaits(const NoPeerWaits&) = delete;
  NoPeerWaits& operator=(const NoPeerWaits&) = delete;

  /// True if a call was refused since the construction.
  bool refused() const;

 private:
  bool outer_, outer_refused_;
};

/// Fails with `Errc::in_progress` if the calling thread has a `NoPeerWaits`. Comes before whatever
/// waits for other ranks in a call: agreements, connections, creation.
Result<void> check_may_wait();

}  // namespace ccl::detail
