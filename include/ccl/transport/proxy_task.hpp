#pragma once

#include <ccl/types/word.hpp>

namespace ccl {

/// What a task waits for: `fd` to be ready for `events` (of poll(2); 0: for nothing there).
/// `pending`: it waits for nothing and could move something now. `polled`: it waits for somebody
/// who cannot call, such as lanes of a GPU, and is to be asked again and again. `for_helpers`: what
/// is pending is for lanes that help as soon as they want it. `gathers`: it costs less together
/// with what may follow in a moment.
struct ProxyInterest {
  int fd = -1;
  short events = 0;
  bool pending = false;
  bool polled = false;
  bool for_helpers = false;
  bool gathers = false;
};

/// What has been moved, since the engine was made.
struct ProxyCounters {
  Word steps = 0;
  Word bytes = 0;
};

/// What the engine has heard of a task's descriptor. Not `told`: the task is to try. A task clears
/// what a system call has used up; once `closed`, it stays readable and writable.
struct ProxyReadiness {
  bool told = false, readable = true, writable = true, closed = false;
  int fd = -1;  // the engine's own: watched so far
};

/// One stream of steps that a proxy moves: posted → transmitted → done, or received → done.
class ProxyTask {
 public:
  enum class Progress { none, some, ended };

  virtual ~ProxyTask() = default;
  /// Moves what can be moved now, up to some hundred kilobytes, so that all tasks have their turn.
  /// Never blocks. One thread at a time, but not always the same. `ended`: never call again.
  virtual Progress progress(ProxyCounters& counters) = 0;
  virtual ProxyInterest interest() const = 0;
  /// The engine's thread is about to block on `interest()`. What makes its descriptor readable only
  /// on demand is to be asked for now. True if something has come meanwhile.
  virtual bool arm() { return false; }
  /// A descriptor to be heard of; -1: none, or not yet.
  virtual int watched() const { return -1; }
  /// Its owner is gone; it is to end as soon as all that was posted has been transmitted.
  virtual bool ending() const = 0;

  ProxyReadiness readiness;
  bool goes_first = false;  // sends: has its turn before the engine asks what can be received
  bool left_over = false;   // as the engine saw last, when a helper went
};

}  // namespace ccl
