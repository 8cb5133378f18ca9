// Places of buffers in windows of CPU ranks.
#include "comm/edges/window_state.hpp"

#include <ccl/comm/window.hpp>
#include <ccl/device/device_comm.hpp>

#include <algorithm>
#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "comm/state.hpp"
#include "support/catch.hpp"

using namespace ccl;
using namespace ccl::detail;

namespace {

/// One thread for each of two ranks; its failure as text.
std::vector<std::string> on_ranks(const std::function<Result<void>(const Communicator&)>& body) {
  Config config;
  config.device = Config::cpu;
  config.timeout_s = 60;
  auto comms = Communicator::create_all(2, config);
  REQUIRE(comms.has_value());
  std::vector<std::string> said(2);
  std::vector<std::thread> threads;
  for (auto& comm : *comms) {
    threads.emplace_back([&] {
      const auto done = body(comm);
      if (!done) said[std::size_t(comm.rank())] = done.error().message();
    });
  }
  for (auto& thread : threads) thread.join();
  return said;
}

bool is_whole(const WindowPlace& place) {
  return place.holds && place.at.size() == 2 && std::ranges::count(place.at, nullptr) == 0;
}

}  // namespace

TEST_CASE("a place in a window has its offset, and stays whole after a close") {
  const auto said = on_ranks([](const Communicator& comm) -> Result<void> {
    CommState& state = *Access::state(comm);
    std::vector<std::byte> memory(100);
    CCL_TRY(const auto window, Window::create(comm, memory.data(), 100));
    const WindowPlace place = place_in_window(state, memory.data() + 40, 60);
    if (!is_whole(place) || place.offset != 40) return fail(Errc::internal, "another place");
    if (place_in_window(state, memory.data() + 41, 60).window)
      return fail(Errc::internal, "longer");
    CCL_CHECK(window.close());
    if (!is_whole(place)) return fail(Errc::internal, "the close took the mappings");
    if (place_in_window(state, memory.data(), 1).window) return fail(Errc::internal, "closed");
    return {};
  });
  CHECK(said == std::vector<std::string>(2));
}

TEST_CASE("windows that may hold receive buffers are counted until they are closed") {
  const auto said = on_ranks([](const Communicator& comm) -> Result<void> {
    const Observers& observers = Access::state(comm)->observers;
    const auto is = [&](int wanted) -> Result<void> {
      const int open = observers.open_windows();
      return open == wanted ? Result<void>{} : fail(Errc::internal, std::to_string(open));
    };
    std::vector<std::byte> memory(100);
    CCL_TRY(const auto window, Window::create(comm, memory.data(), 100));
    CCL_CHECK(is(1));
    {
      CCL_TRY(const auto dropped, DeviceComm::create(comm, window, {.signals = 1}));
      CCL_CHECK(is(1));  // not the memory of its signals
    }
    CCL_TRY(const auto device, DeviceComm::create(comm, window, {.signals = 1}));
    CCL_CHECK(device.close());
    CCL_CHECK(is(1));
    CCL_CHECK(window.close());
    return is(0);
  });
  CHECK(said == std::vector<std::string>(2));
}

TEST_CASE("a window that closes gives whole places or none") {
  const auto said = on_ranks([](const Communicator& comm) -> Result<void> {
    CommState& state = *Access::state(comm);
    std::vector<std::byte> memory(100);
    std::atomic<int> torn{0};
    for (int turn = 0; turn < 100; ++turn) {
      CCL_TRY(const auto window, Window::create(comm, memory.data(), 100));
      std::atomic<bool> looks{false};
      std::thread other{[&] {
        while (true) {
          const WindowPlace place = place_in_window(state, memory.data(), 100);
          looks = true;
          if (!place.window) break;
          torn += int(!is_whole(place));
        }
      }};
      while (!looks) std::this_thread::yield();
      const auto closed = window.close();
      other.join();
      CCL_CHECK(closed);
    }
    return torn == 0 ? Result<void>{} : fail(Errc::internal, "a place without an address");
  });
  CHECK(said == std::vector<std::string>(2));
}
