#include "base/fork_mutex.hpp"

#include <ccl/detail/base/selection.hpp>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "support/catch.hpp"
#include <sys/wait.h>
#include <unistd.h>

using namespace ccl::detail;

namespace {

/// Exit status of `body` in a forked child. A child that waits for ever is killed.
template <class Body>
int in_child(Body body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    ::_exit(body());
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 99;
}

/// Calls `body` without pause on another thread, until it is destroyed.
class Busy {
 public:
  template <class Body>
  explicit Busy(Body body) {
    thread_ = std::thread{[this, body] {
      while (!over_) body();
    }};
  }
  ~Busy() {
    over_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> over_{false};
  std::thread thread_;
};

}  // namespace

TEST_CASE("a child gets complete tables, whenever a fork comes") {
  int first = 0, second = 0;
  ForkMutex mutex{[&] { first = second = -1; }};
  const Busy busy{[&] {
    const std::lock_guard lock{mutex};
    ++first;
    std::this_thread::yield();
    ++second;
  }};
  for (int i = 0; i < 40; ++i) {
    CHECK(in_child([&] {
            const std::lock_guard lock{mutex};
            return first == second ? 0 : 1;
          }) == 0);
  }
}

TEST_CASE("a child replaces a table that is in use for longer than a fork waits") {
  std::vector<int> table{1, 2, 3};
  ForkMutex mutex{[&] { renew(table); }};
  std::atomic<bool> held{false}, forked{false};
  std::thread holder{[&] {
    const std::lock_guard lock{mutex};
    held = true;
    while (!forked) std::this_thread::yield();
  }};
  while (!held) std::this_thread::yield();
  CHECK(in_child([&] {
          const std::lock_guard lock{mutex};
          return int(table.size());
        }) == 0);
  forked = true;
  holder.join();
  const std::lock_guard lock{mutex};
  CHECK(table.size() == 3);
}

TEST_CASE("a child can use the names of settings, whatever other threads did") {
  know_name("PROTO", "OfAForkTest");  // a fork beside the table's first use is not covered
  const Busy busy{[] { know_name("PROTO", "OfAForkTest"); }};
  for (int i = 0; i < 60; ++i) {
    CHECK(in_child([] { return know_name("PROTO", "OfAChild") ? 0 : 1; }) == 0);
  }
}
