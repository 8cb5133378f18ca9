#pragma once

#include <ccl/types/error.hpp>
#include <ccl/types/word.hpp>

#include <chrono>

#include <poll.h>

namespace ccl {

/// Condition for which a task waits.
/// - `fd`, `events`: the descriptor is ready for these events of poll(2); 0: none.
/// - `pending`: the task waits for nothing and can move data now.
/// - `polled`: the task waits for lanes that cannot call, such as those of a GPU, and must be
///   polled.
/// - `for_helpers`: what is pending or polled is for lanes, which help the proxy when they need it.
/// - `gathers`: pending data costs less together with data that can follow soon.
/// - `deadline`: the task has to move at this time at the latest, even if nothing happens.
struct ProxyInterest {
  int fd = -1;
  short events = 0;
  bool pending = false;
  bool polled = false;
  bool for_helpers = false;
  bool gathers = false;
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
};

/// Data moved since the engine was created.
struct ProxyCounters {
  Word steps = 0;
  Word bytes = 0;
  Word registered_bytes = 0;  ///< of `bytes`: those that a NIC moved from or to registered buffers
};

/// Events that the engine has received for a task's descriptor. Without events the task must try. A
/// task clears the flags that a system call has used up. After `closed`, the descriptor stays
/// readable and writable.
struct ProxyReadiness {
  bool reported = false, readable = true, writable = true, closed = false;
  int fd = -1;  ///< descriptor that the engine watches; set by the engine
};

/// One stream of steps that a proxy moves: posted, transmitted, done; or received, done.
class ProxyTask {
 public:
  enum class Progress { none, some, ended };

  virtual ~ProxyTask() = default;
  /// Moves the data that can move now, up to some hundred kilobytes, so that all tasks progress.
  /// Never blocks. Threads call it one at a time, but not always the same thread. After `ended` it
  /// must not be called again.
  virtual Progress progress(ProxyCounters& counters) = 0;
  /// Returns the condition for which the task waits.
  virtual ProxyInterest interest() const = 0;
  /// Prepares for a block of the engine's thread on `interest()`. A task whose descriptor becomes
  /// readable only on demand must request that here. Returns true if data has arrived meanwhile.
  virtual bool arm() { return false; }
  /// Returns the descriptor that the engine must watch; -1: none, or none yet.
  virtual int watched() const { return -1; }
  /// True if the owner is destroyed. The task must end when all posted data is transmitted.
  virtual bool ending() const = 0;
  /// Handles a call to another library, `function`, that has not returned for `seconds`. Its thread
  /// is left behind and never uses the task again. Neither does the engine: the task stays as it is
  /// until the process ends, because the call may still write to its memory.
  /// Returns the error of that, with rank and peer. The engine fails the communicator with it if
  /// the thread ran `lanes` of a launch, whatever the task was for; the task itself if the
  /// connection was in use.
  virtual Error left_in_call(const char* function, double seconds, bool lanes) {
    (void)seconds, (void)lanes;
    return {Errc::timed_out, function};
  }
  /// Returns how much of what lanes have posted the network does not have yet, in a unit of the
  /// task's own. 0: it has all, or gets no more. Asked before the process exits, between two calls
  /// of `progress`.
  virtual Word undelivered() const {
    const ProxyInterest now = interest();
    return (now.pending && !now.for_helpers) || (now.events & POLLOUT) != 0 ? 1 : 0;
  }
  /// True while another library may access registered buffers of the program. A task of a failed
  /// communicator ends that in its turns. Asked between two calls of `progress`.
  virtual bool has_access() const { return false; }

  ProxyReadiness readiness;
  /// true: `progress` calls functions of another library, which may never return, and runs only on
  /// threads that can be left behind
  bool calls_library = false;
  /// true: the task sends, and runs before the engine polls for received data
  bool goes_first = false;
  /// True: data was left at the engine's last look, when a helper had left.
  bool left_over = false;
};

}  // namespace ccl
