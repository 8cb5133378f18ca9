#pragma once

// The interpreter's lock (GIL), given back and taken by calls that may wait.
#include <nanobind/nanobind.h>
#include <unistd.h>

namespace ccl::python {

/// Calls `take`, which takes the lock. Python 3.10 to 3.13 end a daemon thread that wants the lock
/// while the interpreter ends, and unwind its stack for that. Functions of nanobind and destructors
/// must not be unwound: the process would be aborted. Such a thread stays here until the process
/// has ended, as it does from Python 3.14 on.
template <class Take>
auto take_lock(Take take) noexcept {
  try {
    return take();
  } catch (...) {  // by pthread_exit: nothing else leaves these functions
    for (;;) ::pause();
  }
}

/// Gives the lock back during its lifetime.
class LockReleased {
 public:
  LockReleased() : state_{PyEval_SaveThread()} {}
  ~LockReleased() {
    take_lock([this] { PyEval_RestoreThread(state_); });
  }
  LockReleased(const LockReleased&) = delete;
  LockReleased& operator=(const LockReleased&) = delete;

 private:
  PyThreadState* state_;
};

/// Holds the lock during its lifetime, in any thread.
class LockHeld {
 public:
  LockHeld() : state_{take_lock([] { return PyGILState_Ensure(); })} {}
  ~LockHeld() { PyGILState_Release(state_); }
  LockHeld(const LockHeld&) = delete;
  LockHeld& operator=(const LockHeld&) = delete;

 private:
  PyGILState_STATE state_;
};

}  // namespace ccl::python
