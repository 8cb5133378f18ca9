// Random programs of kernels of CPU ranks, mixed with collectives of their communicator.
#include <ccl/algo/pairwise.hpp>
#include <ccl/collective/all_to_all.hpp>
#include <ccl/detail/lanes/host_lanes.hpp>
#include <ccl/device/device_comm.hpp>
#include <ccl/proto/simple.hpp>
#include <ccl/transport/shm.hpp>

#include <random>
#include <vector>

#include "support/calls/rings.hpp"
#include "support/device_programs.hpp"
#include "support/on_ranks.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {

using Solo = detail::SoloLane;
using Program = DeviceProgram<Solo>;
using Exchanges = Collective<AllToAll, Pairwise, Simple, ShmTransport>;

#if defined(CCL_TEST_LONG)
constexpr int programs = 100'000;
#else
constexpr int programs = 2'000;
#endif

Error wrong(const std::string& what) {
  return {Errc::internal, what};
}

/// Collectives of one rank, whose results are known.
class Calls {
 public:
  static Result<Calls> create(const Communicator& comm) {
    constexpr Plan plan{.channels = 1, .slot_count = 4, .slot_bytes = 4 << 10};
    CCL_TRY(auto sums, RingSums::create(comm, Via::shm, plan, By::ll));
    CCL_TRY(auto exchanges, Exchanges::create(comm, plan));
    return Calls{comm, std::move(sums), std::move(exchanges)};
  }
  /// Makes the call that `random`, equal on all ranks, tells.
  Result<void> make(unsigned random) {
    const int me = comm_.rank(), ranks = comm_.ranks(), count = 1 + int(random / 2 % 300);
    const int call = int(random % 97);
    if (random % 2 == 0) {
      std::vector<int> data(std::size_t(count), me + call);
      CCL_CHECK(sums_(data.data(), data.data(), count));
      for (const int is : data) {
        if (is != ranks * (ranks - 1) / 2 + ranks * call) return fail(wrong("a sum"));
      }
      return {};
    }
    std::vector<int> in(std::size_t(count * ranks)), out(in.size());
    for (int i = 0; i < count * ranks; ++i) in[std::size_t(i)] = call + 10 * me + i / count;
    CCL_CHECK(exchanges_(in.data(), out.data(), count));
    for (int i = 0; i < count * ranks; ++i) {
      if (out[std::size_t(i)] != call + 10 * (i / count) + me) return fail(wrong("an exchange"));
    }
    return {};
  }

 private:
  Calls(Communicator comm, RingSums sums, Exchanges exchanges)
      : comm_{std::move(comm)}, sums_{std::move(sums)}, exchanges_{std::move(exchanges)} {}
  Communicator comm_;
  RingSums sums_;
  Exchanges exchanges_;
};

Result<void> run_rank(const Communicator& comm, int count) {
  const int ranks = comm.ranks();
  CCL_TRY(const auto memory, SharedMemory::allocate(comm, Program::window_bytes(ranks, 1)));
  CCL_TRY(const auto window, Window::create(comm, memory));
  CCL_TRY(const auto device, DeviceComm::create(comm, window, Program::needs(ranks, 1)));
  CCL_TRY(Calls calls, Calls::create(comm));
  std::minstd_rand random{unsigned(ranks)};  // the same on all ranks
  ProgramMemory shared;
  Program program{Solo{}, device.team(), 0, 1, shared};
  for (int n = 0; n < count; ++n) {
    const auto word = unsigned(random());
    if (word % 3 != 0) {
      if (program.play(word) != 0) return fail(wrong("a kernel"));
    } else {
      CCL_CHECK(calls.make(word / 3));
    }
  }
  CCL_CHECK(device.status());
  CCL_CHECK(device.close());
  return window.close();
}

}  // namespace

TEST_CASE("random programs of kernels and collectives are right for 2 to 8 ranks") {
  constexpr int parts[] = {38, 24, 14, 9, 6, 5, 4};  // more ranks than cores take longer
  for (int ranks = 2; ranks <= 8; ++ranks) {
    INFO(ranks << " ranks");
    const int count = programs / 100 * parts[ranks - 2];
    check_well(on_ranks(ranks, Config{}, [=](const Communicator& comm) -> Result<void> {
      return run_rank(comm, count);
    }));
  }
}
