#include <ccl/host_executor.hpp>

#include <atomic>

#include "catch.hpp"

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
      HostMemory::pause();
    });
    detail::idle_hook = {};
    CHECK(ran == lanes);
    CHECK(helped == lanes);
  };
  counts([](auto body) { HostExecutor::run<SoloLane>(3, body); }, 3);
  counts([](auto body) { HostExecutor::run<ThreadLanes<4>>(2, body); }, 8);
}
