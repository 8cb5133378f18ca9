#pragma once

#include <ccl/detail/base/cpu.hpp>
#include <ccl/proto/lane_group.hpp>

#include <atomic>

#include <sched.h>
#include <time.h>

namespace ccl::detail {

/// Work of a waiting thread. `run` moves some bytes and returns true if it did. The caller of a
/// collective sets it for its thread: see `ProxyHelper`.
struct IdleHook {
  bool (*run)(void* context) = nullptr;
  void* context = nullptr;
};
inline constinit thread_local IdleHook idle_hook;

/// Current wait of a thread: polls in a row without other work between them.
struct Waiting {
  unsigned polls = 0;
  bool took_long = false;  // the last pause: other threads had the core
  Word last = 0;           // ticks at the end of the last poll
};
inline constinit thread_local Waiting waiting;

/// True if the host has more ranks than CPUs. A spinning thread then delays another rank. The
/// runtime, which may be a shared library, sets it when a communicator is created.
[[gnu::visibility("default")]] inline constinit std::atomic<bool> crowded{false};

/// `Memory` of CPU threads.
struct HostMemory {
  static constexpr bool lines_land_whole = false;  // stores of two lanes are two stores
  static constexpr bool has_short_slots = true;    // see `Wire`

  static Word load_relaxed(const Word* at) { return load(at, std::memory_order_relaxed); }
  static Word load_acquire(const Word* at) { return load(at, std::memory_order_acquire); }
  static Word load_credit(const Word* at) { return load(at, std::memory_order_acquire); }
  static void store_relaxed(Word* at, Word value) { store(at, value, std::memory_order_relaxed); }
  static void store_release(Word* at, Word value) { store(at, value, std::memory_order_release); }
  static void store_credit(Word* at, Word value) { store(at, value, std::memory_order_release); }

  /// Adds to a word, in the order of release and acquire. Returns its earlier value.
  static Word fetch_add(Word* at, Word value) {
    return Ref{*at}.fetch_add(value, std::memory_order_acq_rel);
  }

  static Packet load_relaxed(const Packet* at) {
    return {load_relaxed(&at->word[0]), load_relaxed(&at->word[1])};
  }
  static void store_relaxed(Packet* at, Packet value) {
    store_relaxed(&at->word[0], value.word[0]);
    store_relaxed(&at->word[1], value.word[1]);
  }
  static Packet load_bulk(const Packet* at) { return *at; }
  static void store_bulk(Packet* at, Packet value) { *at = value; }

  /// Handles a failed poll. Helps the proxy if the thread has a hook. Otherwise spins for some
  /// microseconds if each rank has a CPU, then yields, then sleeps in steps of 50 us.
  static void pause() {
    Waiting& own = waiting;
    const Word begin = cpu_ticks();
    // A longer gap than a poll takes: the thread has worked, and this is a new wait.
    own.polls = begin - own.last < same_wait_ticks ? own.polls + 1 : 0;
    const detail::IdleHook hook = detail::idle_hook;
    if (hook.run != nullptr && hook.run(hook.context)) {
      own.polls = 0;
    } else if (own.polls < (hook.run != nullptr ? spin_helps : spin_polls) &&
               !detail::crowded.load(std::memory_order_relaxed)) {
      cpu_relax();
    } else if (own.polls < yield_polls) {
      ::sched_yield();
    } else {
      const timespec short_while{0, 50'000};  // ns
      ::nanosleep(&short_while, nullptr);
    }
    own.last = cpu_ticks();
    own.took_long = own.last - begin > long_ticks;
  }
  /// Returns true once if the last pause took milliseconds. Where other threads have the core, the
  /// polls between two looks at the clock would take a minute.
  static bool paused_for_long() {
    if (!waiting.took_long) return false;
    waiting.took_long = false;
    return true;
  }
  /// Handles one of the first failed polls of a wait: as `pause`, without a look at the clock.
  static void pause_briefly() {
    if (detail::idle_hook.run != nullptr || detail::crowded.load(std::memory_order_relaxed)) {
      pause();
    } else {
      cpu_relax();
    }
  }
  static constexpr unsigned brief_pauses = 48;
  static constexpr unsigned check_every = 256;
  static constexpr bool pause_sleeps = true;
  static void await_previous() {}  // a launch begins when the one before has ended
  static Word now_ns() { return steady_ns(); }

 private:
  static constexpr unsigned spin_polls = 64;
  static constexpr unsigned spin_helps = 4;  // each costs a system call or more
  static constexpr unsigned yield_polls = 8192;
  static constexpr Word same_wait_ticks = 500;       // 0.2 us; a poll takes a tenth of that
  static constexpr Word long_ticks = Word{1} << 22;  // 1 to 4 ms

  using Ref = std::atomic_ref<Word>;
  static Word load(const Word* at, std::memory_order order) {
    return Ref{*const_cast<Word*>(at)}.load(order);
  }
  static void store(Word* at, Word value, std::memory_order order) { Ref{*at}.store(value, order); }
};
static_assert(Memory<HostMemory>);

}  // namespace ccl::detail
