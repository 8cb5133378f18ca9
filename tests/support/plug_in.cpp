// A plug-in with a copy of ccl of its own, for tests/src/base/unload_test.cpp.
#include <ccl/algo/tree.hpp>
#include <ccl/collective.hpp>
#include <ccl/comm/stream.hpp>
#include <ccl/proto/simple.hpp>
#include <ccl/transport/shm.hpp>
#include <ccl/transport/socket.hpp>

#include <thread>
#include <vector>

namespace {

using namespace ccl;

std::vector<Communicator> kept;  // destroyed when the library is closed, or at exit

Result<std::vector<Communicator>> two_ranks() {
  Config config;
  config.device = Config::cpu;
  return Communicator::create_all(2, config);
}

template <class Transport>
Result<void> sum(const Communicator& comm) {
  using Sums = Collective<AllReduce, Tree, Simple, Transport>;
  CCL_TRY(const auto sums, Sums::create(comm));
  int data[1000];
  for (int& x : data) x = 1 + comm.rank();
  CCL_CHECK(sums(data, data, 1000));
  HostStream stream;
  CCL_CHECK(sums(data, data, 1000, Sum{}, stream));
  CCL_CHECK(stream.synchronize());
  for (const int x : data) {
    if (x != 6) return fail(Errc::internal, "wrong sum");
  }
  return {};
}

Result<void> sums(const Communicator& comm) {
  CCL_CHECK(sum<ShmTransport>(comm));
  return sum<SocketTransport>(comm);
}

/// Returns 0 if both ranks succeed.
int on_both(const std::vector<Communicator>& comms) {
  Result<void> second;
  std::thread other{[&] { second = sums(comms[1]); }};
  const Result<void> first = sums(comms[0]);
  other.join();
  return first && second ? 0 : 2;
}

}  // namespace

#define CCL_TEST_EXPORTED extern "C" __attribute__((visibility("default")))

/// Creates, uses and destroys a communicator.
CCL_TEST_EXPORTED int use_and_destroy() {
  const auto comms = two_ranks();
  return comms ? on_both(*comms) : 1;
}
/// Creates a communicator that stays, with its threads, and uses it.
CCL_TEST_EXPORTED int use_and_keep() {
  auto comms = two_ranks();
  if (!comms) return 1;
  kept = *std::move(comms);
  return on_both(kept);
}
CCL_TEST_EXPORTED int use_kept() {
  return on_both(kept);
}
/// Starts a rank that waits for the other one for ever, in a thread of the program, which has a
/// handle of its own.
CCL_TEST_EXPORTED int wait_for_ever() {
  std::thread{[comm = kept[0]] { (void)comm.barrier(); }}.detach();
  return 0;
}
