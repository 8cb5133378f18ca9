#include <ccl/detail/exec/host_executor.hpp>

#include <atomic>
#include <exception>
#include <vector>

#include "support/catch.hpp"
#include "support/thread_lanes.hpp"
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace ccl;

TEST_CASE("every lane of every channel runs once, and helps the proxy that its caller helps") {
  const auto counts = [](auto run, int lanes) {
    std::atomic<int> ran{0}, helped{0};
    detail::idle_hook = {[](void* context) {
                           ++*static_cast<std::atomic<int>*>(context);
                           return true;
                         },
                         &helped};
    run([&](auto, int) {
      ++ran;
      detail::HostMemory::pause();
    });
    detail::idle_hook = {};
    CHECK(ran == lanes);
    CHECK(helped == lanes);
  };
  counts([](auto body) { detail::HostExecutor::run<detail::SoloLane>(3, body); }, 3);
  counts([](auto body) { detail::HostExecutor::run<detail::ThreadLanes<4>>(2, body); }, 8);
}

TEST_CASE("channels for which no thread is to be had run one after another, each once") {
  // The limit is the user's, and root has none.
  const pid_t pid = ::fork();
  if (pid == 0) {
    const rlimit none{0, 0};
    if (::setrlimit(RLIMIT_NPROC, &none) != 0) ::_exit(2);
    if (::getuid() == 0 && ::setuid(65534) != 0) ::_exit(3);
    std::vector<int> ran;
    detail::HostExecutor::run<detail::SoloLane>(
        4, [&](detail::SoloLane, int channel) { ran.push_back(channel); });
    ::_exit(ran == std::vector{0, 1, 2, 3} ? 0 : 4);
  }
  int status = 0;
  REQUIRE(::waitpid(pid, &status, 0) == pid);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("what a lane throws ends the program, on the calling thread, too") {
  const pid_t pid = ::fork();
  if (pid == 0) {
    std::set_terminate([] { ::_exit(7); });
    try {
      detail::HostExecutor::run<detail::SoloLane>(1, [](detail::SoloLane, int) { throw 1; });
    } catch (int) {
    }
    ::_exit(1);
  }
  int status = 0;
  REQUIRE(::waitpid(pid, &status, 0) == pid);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 7);
}
