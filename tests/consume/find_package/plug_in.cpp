#include <ccl/comm/communicator.hpp>

#include <thread>

/// Creates and destroys a communicator of two ranks. Returns 0 if all succeeds.
extern "C" __attribute__((visibility("default"))) int meet_and_part() {
  ccl::Config config;
  config.device = ccl::Config::cpu;
  const auto comms = ccl::Communicator::create_all(2, config);
  if (!comms) return 1;
  bool joined = false;
  std::thread other{[&] { joined = (*comms)[1].barrier().has_value(); }};
  const bool well = (*comms)[0].barrier().has_value();
  other.join();
  return well && joined ? 0 : 2;
}
