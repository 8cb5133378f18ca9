#pragma once

#include <ccl/comm/communicator.hpp>

#include <chrono>

namespace ccl::python {

/// Ends the communicator's calls if Ctrl-C comes while the main thread is in a call of it. Without
/// this, Python's handler of the signal runs only after the call, whose peers may never come. It
/// does nothing in other threads, and if the program has set a handler of its own. Made and
/// destroyed without the GIL.
class Interruptible {
 public:
  explicit Interruptible(const Communicator& comm);
  ~Interruptible();
  Interruptible(const Interruptible&) = delete;
  Interruptible& operator=(const Interruptible&) = delete;

 private:
  bool watched_;
};

/// True in the thread that runs Python's signal handlers.
bool is_main_thread();

/// Time between two looks for a signal. A call ends within three of them, and the time of an abort.
constexpr std::chrono::milliseconds interrupt_period{100};

}  // namespace ccl::python
