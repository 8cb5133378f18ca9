// Windows of GPU ranks that multicast reaches, over a driver that is a fake: the order of its
// calls, what it gets, and windows that it cannot reach, whose calls copy.
#include "connect/multicast/bound_windows.hpp"

#include <ccl/algo/nvls.hpp>
#include <ccl/collective/all_reduce.hpp>
#include <ccl/proto/simple.hpp>
#include <ccl/transport/nvls.hpp>

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "connect/multicast/switch_block.hpp"
#include "support/environment.hpp"
#include "support/fake_multicast.hpp"
#include "support/gpu_ranks.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
using Sums = Collective<AllReduce, Nvls, Simple, NvlsTransport>;
constexpr int ranks = 3;
constexpr Index bytes = 64 << 10;
constexpr std::size_t page = 4096;
/// Small slots, because the memory of a fake GPU is cleared.
constexpr Plan plan{.channels = 1, .slot_count = 2, .slot_bytes = 64 << 10};

/// One rank, with what it found.
struct Rank {
  const Communicator& comm;
  Sums sums;
  SharedMemory memory;
  std::optional<Window> window{};
  std::string explained{};

  Result<void> open() {
    CCL_TRY(auto made, Window::create(comm, memory));
    window.emplace(std::move(made));
    const auto* const data = memory.as<float>();
    explained = sums.explain(data, data, 64);
    return {};
  }
};
/// Runs `f` on all ranks, on a thread of each. Returns what each read about its call.
std::vector<std::string> on_ranks_of_gpus(FakeMulticast& fake,
                                          const std::function<Result<void>(Rank&)>& f,
                                          double limit_s = 0) {
  auto comms = create({0, 1, 2});
  fake.grain = page;
  std::vector<std::string> texts(ranks);
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      const auto run = [&]() -> Result<void> {
        const Communicator& comm = *comms[std::size_t(r)];
        if (limit_s > 0) detail::Access::state(comm)->limits.init_timeout_s = limit_s;
        CCL_TRY(auto sums, Sums::create(comm, plan));
        CCL_TRY(auto memory, SharedMemory::allocate(comm, bytes));
        Rank rank{comm, std::move(sums), std::move(memory)};
        CCL_CHECK(f(rank));
        texts[std::size_t(r)] = rank.explained;
        return {};
      };
      if (const auto done = run(); !done) texts[std::size_t(r)] = done.error().message();
    });
  }
  for (auto& thread : threads) thread.join();
  return texts;
}
void all_contain(const std::vector<std::string>& texts, const std::string& part) {
  for (const std::string& text : texts) {
    INFO(text);
    CHECK(text.find(part) != std::string::npos);
  }
}
const std::string straight = "loads straight from send (at offset 0 of window ";
}  // namespace

// First: a driver that did not return may return later.
TEST_CASE("without CCL_NVLS_ENABLE=1, a window is not shown to the driver for multicast") {
  gpus(ranks);
  FakeMulticast& fake = FakeMulticast::install();
  const auto texts = on_ranks_of_gpus(fake, [](Rank& rank) { return rank.open(); });
  all_contain(texts, "CCL_NVLS_ENABLE=1");
  CHECK(fake.so_far().empty());
}

TEST_CASE("switches bind the memory of a window, and let it go when it is closed") {
  const Environment setting{"CCL_NVLS_ENABLE", "1"};
  gpus(ranks);
  FakeMulticast& fake = FakeMulticast::install();
  static std::atomic<int> unbound;
  unbound = -1;
  const auto texts = on_ranks_of_gpus(fake, [&](Rank& rank) -> Result<void> {
    CCL_CHECK(rank.open());
    CCL_CHECK(rank.window->close());
    CCL_CHECK(rank.comm.barrier());
    if (rank.comm.rank() == 0) unbound = fake.times("unbind");
    return {};
  });
  all_contain(texts, straight);
  all_contain(texts, "), stores straight into recv (at offset 0 of window ");
  CHECK(fake.so_far().find("granularity create add add add bind bind bind") == 0);
  CHECK(fake.times("create") == 2);
  CHECK(fake.times("add") == 2 * ranks);
  CHECK(fake.times("bind_addr") == ranks);
  CHECK(fake.early_binds == 0);
  CHECK(unbound == ranks);
  CHECK(fake.times("unbind") == 2 * ranks);
  CHECK(fake.lent_bytes == std::size_t(bytes));
}

TEST_CASE("windows that begin elsewhere in a granule on a rank are refused on all") {
  const Environment setting{"CCL_NVLS_ENABLE", "1"};
  gpus(ranks);
  FakeMulticast& fake = FakeMulticast::install();
  const auto texts = on_ranks_of_gpus(fake, [](Rank& rank) -> Result<void> {
    detail::CommState& state = *detail::Access::state(rank.comm);
    const auto lock = state.rendezvous.lock();
    const std::size_t lead = rank.comm.rank() == 1 ? 64 : 0;
    CCL_CHECK(detail::bind_switch_range(state, "a window", {rank.memory.data(), page, lead}, {}));
    return {};
  });
  all_contain(texts, "the memory of rank 0 begins 0 bytes behind a granule of multicast, that of ");
  all_contain(texts, "rank 1 64 bytes");
  CHECK(fake.times("bind_addr") == 0);
}

TEST_CASE("a window within a granule of other memory, and one without a handle, is copied") {
  const Environment setting{"CCL_NVLS_ENABLE", "1"};
  const bool legacy = GENERATE(false, true);
  const Environment handles{"CCL_CUMEM_ENABLE", legacy ? "0" : "1"};
  gpus(ranks);
  FakeMulticast& fake = FakeMulticast::install();
  const auto texts = on_ranks_of_gpus(fake, [&](Rank& rank) {
    fake.grain = std::size_t{1} << 30;
    return rank.open();
  });
  all_contain(texts, "copies send (at offset 0 of window ");
  all_contain(texts, legacy ? "has no cuMem handle" : "switches bind whole granules of 1073741824");
  CHECK(fake.times("bind_addr") == 0);
}

TEST_CASE("a driver that refuses a window, or does not return, leaves calls that copy") {
  const Environment setting{"CCL_NVLS_ENABLE", "1"};
  const bool sticks = GENERATE(false, true);
  gpus(ranks);
  FakeMulticast& fake = FakeMulticast::install();
  (sticks ? fake.stuck : fake.failing) = "bind_addr";
  fake.device = 1;
  const auto texts = on_ranks_of_gpus(
      fake, [](Rank& rank) { return rank.open(); }, 3);
  all_contain(texts, "copies send (at offset 0 of window ");
  all_contain(texts, sticks ? "within 1.5 s" : "Fabric Manager");
  for (const int r : {0, 2}) CHECK(texts[std::size_t(r)].find("rank 1") != std::string::npos);
  fake.stuck.clear();
  CHECK(fake.times("bind_addr") == ranks);
}
