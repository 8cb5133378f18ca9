#include "base/thread.hpp"

#include <atomic>
#include <cerrno>
#include <new>

#include "support/catch.hpp"
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace ccl;

TEST_CASE("a thread of ccl's own takes no signals, and its maker's are as before") {
  sigset_t before, after, in_thread;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &before);
  std::atomic<int> blocked{-1};
  auto thread = detail::own_thread("a test", [&] {
    ::pthread_sigmask(SIG_SETMASK, nullptr, &in_thread);
    blocked = ::sigismember(&in_thread, SIGUSR1) + ::sigismember(&in_thread, SIGTERM);
  });
  REQUIRE(thread);
  thread->join();
  CHECK(blocked == 2);
  ::pthread_sigmask(SIG_SETMASK, nullptr, &after);
  CHECK(::sigismember(&after, SIGUSR1) == ::sigismember(&before, SIGUSR1));
}

TEST_CASE("a body that cannot be copied is an error") {
  struct Body {
    Body() = default;
    Body(const Body&) { throw std::bad_alloc{}; }
    void operator()() const {}
  };
  const Body body;
  const auto thread = detail::own_thread("a test", body);
  REQUIRE(!thread);
  CHECK(thread.error().code == Errc::out_of_memory);
}

TEST_CASE("where no thread can be had, the error says for what it was and what to raise") {
  // The limit is the user's, and root has none.
  const pid_t pid = ::fork();
  if (pid == 0) {
    const rlimit none{0, 0};
    if (::setrlimit(RLIMIT_NPROC, &none) != 0) ::_exit(2);
    if (::getuid() == 0 && ::setuid(65534) != 0) ::_exit(3);
    const auto thread = detail::own_thread("reports", [] {});
    if (thread) ::_exit(4);
    const Error& error = thread.error();
    if (error.code != Errc::system || error.os_code != EAGAIN) ::_exit(5);
    if (error.what.find("for reports") == std::string::npos) ::_exit(6);
    if (error.what.find("ulimit -u") == std::string::npos) ::_exit(7);
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(pid, &status, 0) == pid);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("where there are no addresses for a stack, the error names that limit, too") {
  const pid_t pid = ::fork();
  if (pid == 0) {
    const rlimit few{1 << 20, 1 << 20};  // less than the process has: nothing can be mapped
    if (::setrlimit(RLIMIT_AS, &few) != 0) ::_exit(2);
    for (int n = 0; n < 100; ++n) {  // stacks of threads that have ended are used again
      auto thread = detail::own_thread("reports", [] { ::pause(); });
      if (thread) {
        thread->detach();
        continue;
      }
      ::_exit(thread.error().what.find("ulimit -v is 1024,") == std::string::npos ? 5 : 0);
    }
    ::_exit(4);
  }
  int status = 0;
  REQUIRE(::waitpid(pid, &status, 0) == pid);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}
