#include <ccl/transport/host_wire.hpp>

#include <thread>

#include "support/catch.hpp"

TEST_CASE("a step that is posted has its data, and a drained slot is free") {
  constexpr ccl::Word steps = 20000;
  ccl::Word slot = 0, posted = 0, drained = 0;
  std::thread sender{[&] {
    for (ccl::Word step = 0; step < steps; ++step) {
      while (ccl::load_drained(&drained) < step) std::this_thread::yield();
      slot = step * 3 + 1;
      ccl::post(&posted, step + 1);
    }
  }};
  ccl::Word wrong = 0;
  for (ccl::Word step = 0; step < steps; ++step) {
    while (ccl::load_posted(&posted) <= step) std::this_thread::yield();
    wrong += slot != step * 3 + 1;
    ccl::drain(&drained, step + 1);
  }
  sender.join();
  CHECK(wrong == 0);
  CHECK(ccl::load_posted(&posted) == steps);
}
