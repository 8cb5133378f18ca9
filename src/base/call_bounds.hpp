#pragma once

#include <ccl/detail/base/selection.hpp>

#include <algorithm>
#include <utility>

namespace ccl::detail {

/// While one exists, launches on GPUs and compositions that this thread creates are within these
/// bounds, beside those of the communicator. All ranks need the same for the same call.
class CallBounds {
 public:
  explicit CallBounds(const ChannelBounds& bounds) : before_{std::exchange(current_, bounds)} {}
  ~CallBounds() { current_ = before_; }
  CallBounds(const CallBounds&) = delete;
  CallBounds& operator=(const CallBounds&) = delete;

  /// Returns the number within the thread's bounds, of which the upper one has precedence.
  static int within(int channels) {
    return at_most(std::max(channels, current_.least.value_or(1)));
  }
  static int at_most(int channels) { return std::min(channels, current_.most.value_or(channels)); }

 private:
  static inline thread_local ChannelBounds current_{};
  ChannelBounds before_;
};

}  // namespace ccl::detail
