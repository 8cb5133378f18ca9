#include "interrupts.hpp"

#include <atomic>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "interpreter_lock.hpp"
#include <nanobind/nanobind.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace nb = nanobind;

namespace ccl::python {
namespace {

std::atomic<std::uint64_t> interrupts{0};
struct sigaction former {};  // that of before; written before the handler below is installed
struct sigaction first {};   // Python's own: that of before the first installation
bool installed = false;
std::atomic<int> handling{0};  // thread that runs the handler; no thread_local, which may allocate

int thread_number() {
  return int(::syscall(SYS_gettid));
}

void run_handler(const struct sigaction& handler, int signal, siginfo_t* info, void* context) {
  if ((handler.sa_flags & SA_SIGINFO) != 0) {
    handler.sa_sigaction(signal, info, context);
  } else {
    handler.sa_handler(signal);
  }
}

/// Counts the signal, and leaves the rest to the handler of before. That one may call this one, if
/// it was installed behind it, as faulthandler's does; Python's own then ends the chain.
void count_interrupt(int signal, siginfo_t* info, void* context) {
  const int me = thread_number();
  if (handling.load(std::memory_order_relaxed) == me) {
    run_handler(first, signal, info, context);
    return;
  }
  handling.store(me, std::memory_order_relaxed);
  interrupts.fetch_add(1, std::memory_order_relaxed);
  run_handler(former, signal, info, context);
  handling.store(0, std::memory_order_relaxed);
}

/// Puts the handler in front of the one that Python has installed. A program that has set the
/// signal to be ignored, or to end the process, keeps that.
void install() {
  struct sigaction now {};
  if (::sigaction(SIGINT, nullptr, &now) != 0) return;
  const bool with_info = (now.sa_flags & SA_SIGINFO) != 0;
  if (with_info && now.sa_sigaction == count_interrupt) return;
  if (!with_info && (now.sa_handler == SIG_IGN || now.sa_handler == SIG_DFL)) return;
  if (!std::exchange(installed, true)) first = now;
  former = now;
  now.sa_sigaction = count_interrupt;
  now.sa_flags |= SA_SIGINFO;
  ::sigaction(SIGINT, &now, nullptr);
}

/// True if Ctrl-C raises KeyboardInterrupt. Takes the GIL.
bool raises_keyboard_interrupt() {
  const LockHeld locked;
  try {
    const nb::module_ signals = nb::module_::import_("signal");
    return signals.attr("getsignal")(signals.attr("SIGINT"))
        .is(signals.attr("default_int_handler"));
  } catch (const nb::python_error&) {
    return false;
  }
}

/// Call of the main thread, and the thread that looks for signals while it lasts.
class SignalLook {
 public:
  void begin(const Communicator& comm) {
    const std::lock_guard lock{mutex_};
    if (!started_) start();
    comm_ = &comm;
    ++call_;
    seen_ = interrupts.load(std::memory_order_relaxed);
    if (idle_) changed_.notify_one();
  }
  void end() {
    const std::lock_guard lock{mutex_};  // an abort has returned
    comm_ = nullptr;
  }

 private:
  void start() {
    started_ = true;  // without a thread, Ctrl-C waits for the end of the call
    install();
    try {
      std::thread{[this] { look(); }}.detach();
    } catch (const std::system_error&) {
      return;
    }
  }
  [[noreturn]] void look() {
    sigset_t all;
    sigfillset(&all);
    ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
    std::unique_lock lock{mutex_};
    std::uint64_t blocked = 0;  // call that was there at the last look
    for (;;) {
      idle_ = comm_ == nullptr && call_ == blocked;
      if (idle_) {
        changed_.wait(lock);
      } else {
        changed_.wait_for(lock, interrupt_period);
      }
      idle_ = false;
      if (comm_ != nullptr && call_ == blocked) end_interrupted(lock, blocked);
      blocked = call_;
    }
  }
  /// Ends the call `blocked` if a signal has come since it began.
  void end_interrupted(std::unique_lock<std::mutex>& lock, std::uint64_t blocked) {
    install();  // the program may have set a handler since
    if (interrupts.load(std::memory_order_relaxed) == seen_) return;
    lock.unlock();
    const bool raises = raises_keyboard_interrupt();
    lock.lock();
    if (comm_ == nullptr || call_ != blocked) return;
    seen_ = interrupts.load(std::memory_order_relaxed);
    if (raises) comm_->abort("Ctrl-C interrupted a call (KeyboardInterrupt)");
  }

  std::mutex mutex_;  // held while `comm_` is used
  std::condition_variable changed_;
  const Communicator* comm_ = nullptr;  // of the main thread's call; null: none
  std::uint64_t call_ = 0, seen_ = 0;   // number of the call, and of the signals before it
  bool started_ = false, idle_ = false;
};

SignalLook* the_watch = nullptr;  // never destroyed: its thread runs on

thread_local bool is_main = thread_number() == ::getpid();

/// A child has no copy of the thread, and its main thread is the one that forked.
void renew_in_child() {
  is_main = true;
  the_watch = new SignalLook;
}
SignalLook& watch() {
  static const bool once = [] {
    the_watch = new SignalLook;
    ::pthread_atfork(nullptr, nullptr, renew_in_child);
    return true;
  }();
  (void)once;
  return *the_watch;
}

}  // namespace

bool is_main_thread() {
  watch();  // so that a child is told
  return is_main;
}

Interruptible::Interruptible(const Communicator& comm) : watched_{is_main_thread()} {
  if (watched_) watch().begin(comm);
}
Interruptible::~Interruptible() {
  if (watched_) watch().end();
}

}  // namespace ccl::python
