#pragma once

#include <functional>
#include <mutex>
#include <new>
#include <utility>

namespace ccl::detail {

/// Locks a mutex for a fork, within 0.1 s. Returns false after that: its holder may wait for a lock
/// that the forking thread has taken for the fork.
bool lock_for_fork(std::mutex& mutex);

/// Mutex of a table of the process. It can be used in a forked child.
///
/// A fork waits for the mutex, at most 0.1 s, so that the child gets a complete table. If another
/// thread still holds it, the table may be half changed: the child gets a new mutex, and `reset` is
/// called there to replace the table.
class ForkMutex {
 public:
  explicit ForkMutex(std::function<void()> reset);
  ForkMutex(const ForkMutex&) = delete;
  ~ForkMutex();

  /// Registers the functions that a fork calls for all of these mutexes. Who registers others after
  /// it is called first in a fork, so a thread that holds such a lock may wait for a `ForkMutex`.
  static int register_for_forks();

  void lock() { mutex_.lock(); }
  bool try_lock() { return mutex_.try_lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  static void before_fork();
  static void in_parent();
  static void in_child();
  static const int registered_;

  std::mutex mutex_;
  const std::function<void()> reset_;
  ForkMutex* next_ = nullptr;
  bool held_ = false;  // by the thread that forks
};

/// Replaces a table that may be half changed. The old content leaks.
template <class Table>
void renew(Table& table, Table content = {}) {
  ::new (static_cast<void*>(&table)) Table(std::move(content));
}

}  // namespace ccl::detail
