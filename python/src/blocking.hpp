#pragma once

// Calls that may wait, as Python makes them: without the interpreter's lock, and with handlers of
// signals.
#include <ccl/comm/communicator.hpp>
#include <ccl/comm/stream.hpp>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>

#include "interpreter_lock.hpp"
#include "interrupts.hpp"
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

namespace ccl::python {
namespace nb = nanobind;

/// Returns a text of the library. What it quotes of the environment or of a file may be no UTF-8.
inline nb::str text(const std::string& given) {
  PyObject* const made =
      PyUnicode_DecodeUTF8(given.data(), Py_ssize_t(given.size()), "backslashreplace");
  if (made == nullptr) throw nb::python_error();
  return nb::steal<nb::str>(made);
}

/// Throws the Python exception of `error`, which ccl._errors creates.
[[noreturn]] inline void raise(const Error& error) {
  const nb::object made =
      nb::module_::import_("ccl._errors")
          .attr("create")(std::string{name(error.code)}, text(error.message()), error.rank,
                          error.peer, error.os_code, text(error.host), text(error.transport));
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(made.ptr())), made.ptr());
  throw nb::python_error();
}

/// Calls `f` without the GIL, and returns its value or throws its error.
template <class F>
auto released(F&& f) {
  auto result = [&] {
    const LockReleased unlocked;
    return f();
  }();
  if (!result) raise(result.error());
  if constexpr (!std::is_same_v<decltype(result), Result<void>>) return std::move(*result);
}

/// Runs the handlers of signals that have come, and throws what they raise.
inline void run_signal_handlers() {
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

/// Calls `f` as `released` does. Ctrl-C ends the communicator's calls, and raises
/// KeyboardInterrupt.
template <class F>
auto interruptible(const Communicator& comm, F&& f) {
  run_signal_handlers();
  auto result = [&] {
    const LockReleased unlocked;
    const Interruptible watched{comm};
    return f();
  }();
  if (!result) {
    run_signal_handlers();  // the interrupt, and not the error that it has caused
    raise(result.error());
  }
  if constexpr (!std::is_same_v<decltype(result), Result<void>>) return std::move(*result);
}

/// Begins a creation, without the GIL.
template <class F>
Result<Communicator> begun(F&& f) {
  const LockReleased unlocked;
  return f();
}

/// Waits for a creation that runs in the background. Ctrl-C ends it, and raises KeyboardInterrupt.
inline Communicator created(Result<Communicator> begun) {
  if (!begun) raise(begun.error());
  if (is_main_thread()) {
    for (std::chrono::milliseconds pause{1};; pause = std::min(2 * pause, interrupt_period)) {
      const auto status = begun->status();
      if (status || status.error().code != Errc::in_progress) break;
      if (PyErr_CheckSignals() != 0) {
        const LockReleased unlocked;
        begun->abort("Ctrl-C interrupted the creation (KeyboardInterrupt)");
        break;
      }
      const LockReleased unlocked;
      std::this_thread::sleep_for(pause);
    }
    if (PyErr_Occurred() != nullptr) throw nb::python_error();
  }
  released([&] { return begun->wait(); });
  return std::move(*begun);
}

/// Names the whole limit in place of that of the last piece, which the text has.
inline std::string with_limit(std::string text, double limit_s) {
  const std::string before = " within ";
  const std::size_t at = text.find(before), end = text.find(" s", at + before.size());
  if (at == text.npos || end == text.npos) return text;
  const std::string limit = nb::str(nb::float_(limit_s)).c_str();
  return text.replace(at + before.size(), end - at - before.size(), limit);
}

/// Waits for a stream, in pieces between which handlers of signals run.
inline void synchronize(HostStream& stream, double limit_s) {
  using Seconds = std::chrono::duration<double>;
  const double piece_s = Seconds{interrupt_period}.count();
  for (double waited_s = 0;; waited_s += piece_s) {
    const bool last = !is_main_thread() || (limit_s > 0 && limit_s - waited_s <= piece_s);
    const double now_s = last ? limit_s - waited_s : piece_s;
    Result<void> done = [&] {
      const LockReleased unlocked;
      return stream.synchronize(now_s);
    }();
    if (done) return;
    Error error = std::move(done).error();
    // An error of a call has its rank.
    const bool late = error.code == Errc::timed_out && error.rank < 0;
    if (late && last) error.what = with_limit(std::move(error.what), limit_s);
    if (!late || last) raise(error);
    run_signal_handlers();
  }
}

}  // namespace ccl::python
