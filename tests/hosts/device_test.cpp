// Kernels of CPU ranks on several hosts: the source that runs on one host runs on them, too.
#include <ccl/detail/lanes/host_lanes.hpp>
#include <ccl/device/device_comm.hpp>

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "support/calls/rings.hpp"
#include "support/device_programs.hpp"
#include "support/ranks.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {

using Solo = detail::SoloLane;
using Program = DeviceProgram<Solo, max_unrolled_ranks, LL128, NetworkTeam>;
constexpr int blocks = 2;

Error wrong(const std::string& what) {
  return {Errc::internal, what};
}

/// Memory, window and team of one rank.
struct Made {
  SharedMemory memory;
  Window window;
  DeviceComm device;
  static Result<Made> create(const Communicator& comm, Index bytes,
                             const DeviceRequirements& needs) {
    CCL_TRY(auto memory, SharedMemory::allocate(comm, bytes));
    CCL_TRY(auto window, Window::create(comm, memory, WindowReach::near));
    CCL_TRY(auto device, DeviceComm::create(comm, window, needs));
    return Made{std::move(memory), std::move(window), std::move(device)};
  }
};

/// Random programs of two blocks, each followed by a collective of the communicator.
Answer play_programs(const Communicator& comm, int programs) {
  detail::crowded = true;
  const int ranks = comm.ranks();
  CCL_TRY(const Made made,
          Made::create(comm, Program::window_bytes(ranks, blocks), Program::needs(ranks, blocks)));
  CCL_TRY(const auto sums, RingSums::create(comm));
  std::atomic<long> found{0};
  for (int n = 0; n < programs; ++n) {
    std::vector<std::thread> threads;
    for (int b = 0; b < blocks; ++b) {
      threads.emplace_back([&, b] {
        ProgramMemory memory;
        Program program{Solo{}, made.device.network_team(), b, blocks, memory};
        found += program.play(Word(unsigned(n)));
      });
    }
    for (auto& thread : threads) thread.join();
    CCL_CHECK(made.device.status());
    if (found > 0) return fail(wrong(fmt::format("{} results of program {}", found.load(), n)));
    if (n % 8 != 0) continue;
    std::vector<int> data(100, comm.rank() + n);
    CCL_CHECK(sums(data.data(), data.data(), 100));
    if (data[99] != ranks * (ranks - 1) / 2 + ranks * n) return fail(wrong("a sum"));
  }
  CCL_CHECK(made.device.close());
  CCL_CHECK(made.window.close());
  int far = 0;
  for (int p = 0; p < ranks; ++p) far += !made.device.network_team().is_near(p);
  return fmt::format("right, {} far", far);
}

std::vector<std::string> all(int ranks, const std::string& text) {
  return std::vector<std::string>(std::size_t(ranks), text);
}
std::vector<std::string> said(int ranks, std::vector<std::string> texts) {
  texts.resize(std::size_t(ranks));
  return texts;
}

/// Kernel that puts up to several slots to the other rank. Returns what is wrong.
std::string put_much(const NetworkTeam& team, Index most) {
  TeamSession session{Solo{}, team, 0, 1};
  const int me = team.rank(), peer = 1 - me;
  std::vector<Word> words(std::size_t(most) + 1);
  const auto value = [](Word round, int from, Index i) {
    return round << 32 | Word(unsigned(from)) << 16 | Word(i);
  };
  for (Word round = 1; round <= 60; ++round) {
    const Index count = round == 60 ? most : Index(round * round), half = most * Index(round % 2);
    // A buffer that a put has read may change at once. Its bytes begin at any multiple of 8.
    Word* const from = words.data() + round % 2;
    for (Index i = 0; i < count; ++i) from[i] = value(round, me, i);
    session.put_signal(peer, half, from, count, 0, round);
    if (!session.wait(peer, 0, round)) return "a signal";
    const Word* const got = team.window<Word>(me) + half;
    for (Index i = 0; i < count; ++i) {
      if (got[i] != value(round, peer, i)) return "a word";
    }
    if (!session.barrier()) return "a barrier";
  }
  return {};
}
Answer put_much_on(const Communicator& comm) {
  constexpr Index most = 5000;  // words
  CCL_TRY(const Made made, Made::create(comm, 2 * most * Index{sizeof(Word)}, {.signals = 1}));
  if (const auto why = put_much(made.device.network_team(), most); !why.empty())
    return fail(wrong(why));
  CCL_CHECK(made.device.status());
  CCL_CHECK(made.device.close());
  return "right";
}

/// Rank 1 does not come. Rank 0 waits for it, with more messages than the queue holds.
Answer wait_for_nobody(const Communicator& comm) {
  CCL_TRY(const Made made, Made::create(comm, 64, {.signals = 1}));
  const auto wait = [&] {
    TeamSession session{Solo{}, made.device.network_team(), 0, 1};
    for (Word n = 1; n <= 500; ++n) session.signal(1, 0, n);
    return session.wait(1, 0);
  };
  if (comm.rank() == 0) {
    if (wait()) return fail(wrong("a signal of rank 1"));
    const auto status = made.device.status();
    if (status) return fail(wrong("no failure"));
    return fmt::format("{} of rank {}", name(status.error().code), status.error().peer);
  }
  for (auto status = made.device.status();; status = made.device.status()) {
    if (!status) return std::string{name(status.error().code)};
    std::this_thread::sleep_for(std::chrono::milliseconds{5});
  }
}

/// Rank 1 does not close its handle.
Answer close_alone(const Communicator& comm) {
  CCL_TRY(const Made made, Made::create(comm, 64, {.signals = 1}));
  Result<void> status;
  if (comm.rank() == 0) {
    status = made.device.close();
  } else if (!wait_until([&] { return !(status = comm.status()); }, 20)) {
    return fail(wrong("no failure"));
  }
  if (status) return fail(wrong("closed alone"));
  return fmt::format("{} of rank {}", name(status.error().code), status.error().peer);
}

/// Rank 0 sends more than the queue holds, and drops its handle at once. Then rank 1 puts to it, to
/// a window that is open or closed there.
Answer put_to_dropped(const Communicator& comm, bool open) {
  constexpr Word signals = 200, value = 4711;
  CCL_TRY(const auto memory, SharedMemory::allocate(comm, 64));
  CCL_TRY(auto window, Window::create(comm, memory, WindowReach::near));
  std::optional<DeviceComm> device;
  {
    CCL_TRY(auto made, DeviceComm::create(comm, window, {.signals = 1}));
    device.emplace(std::move(made));
  }
  std::optional<Window> kept{std::move(window)};
  if (comm.rank() == 0) {
    TeamSession session{Solo{}, device->network_team(), 0, 1};
    for (Word n = 1; n <= signals; ++n) session.signal(1, 0, n);
    if (!open) kept.reset();
    device.reset();
  }
  CCL_CHECK(comm.barrier());
  const auto* const word = reinterpret_cast<const Word*>(memory.data());
  if (comm.rank() == 1) {
    TeamSession session{Solo{}, device->network_team(), 0, 1};
    if (!session.wait(0, 0, signals)) return fail(wrong("the last signal did not come"));
    for (int n = 0; n < 100; ++n) session.put_signal(0, 0, &value, 1, 0, Word(unsigned(n)) + 1);
  } else if (open) {
    const auto came = [&] { return detail::HostMemory::load_acquire(word) == value; };
    if (!wait_until(came, 20)) return fail(wrong("the put did not come"));
  } else {
    std::this_thread::sleep_for(std::chrono::milliseconds{100});
    if (*word != 0) return fail(wrong("a put to a closed window"));
  }
  CCL_CHECK(comm.barrier());
  CCL_CHECK(comm.status());
  return "well";
}

}  // namespace

TEST_CASE("random programs of kernels are right on one, two and three hosts") {
  for (const int ranks : {2, 4}) {
    CHECK(said(ranks, run(
                          ranks, [](int) { on_host("one"); },
                          [](const Communicator& comm) { return play_programs(comm, 100); })) ==
          all(ranks, "right, 0 far"));
    CHECK(said(ranks, run(
                          ranks, [](int r) { on_host(r % 2 == 0 ? "even" : "odd"); },
                          [](const Communicator& comm) { return play_programs(comm, 100); })) ==
          all(ranks, fmt::format("right, {} far", ranks / 2)));
  }
  CHECK(said(3, run(
                    3, [](int r) { on_host(fmt::format("host {}", r)); },
                    [](const Communicator& comm) { return play_programs(comm, 100); })) ==
        all(3, "right, 2 far"));
}

TEST_CASE("puts to another host are whole, in order, and may be repeated at once") {
  CHECK(said(2, run(
                    2, [](int r) { on_host(r == 0 ? "a" : "b"); }, put_much_on)) ==
        all(2, "right"));
}

TEST_CASE("a rank of another host that does not come is named at the deadline") {
  const auto prepare = [](int r) { on_host(r == 0 ? "a" : "b"); };
  CHECK(said(2, run(2, prepare, wait_for_nobody, false, -1, 0.5)) ==
        std::vector<std::string>{"timed_out of rank 1", "timed_out"});
}

TEST_CASE("a rank of another host that does not close is named on all ranks at the deadline") {
  const auto prepare = [](int r) { on_host(r == 0 ? "a" : "b"); };
  CHECK(said(2, run(2, prepare, close_alone, false, -1, 0.5)) == all(2, "timed_out of rank 1"));
}

TEST_CASE("a rank that drops its handle without a close still sends and takes messages") {
  const auto prepare = [](int r) { on_host(r == 0 ? "a" : "b"); };
  for (const bool open : {true, false}) {
    INFO("open: " << open);
    CHECK(said(2, run(2, prepare, [open](const Communicator& comm) {
                 return put_to_dropped(comm, open);
               })) == all(2, "well"));
  }
}

TEST_CASE("windows of ranks of several hosts say what they map") {
  const auto prepare = [](int r) { on_host(r < 2 ? "a" : "b"); };
  CHECK(said(3, run(3, prepare, [](const Communicator& comm) -> Answer {
               CCL_TRY(const auto memory, SharedMemory::allocate(comm, 64));
               const auto whole = Window::create(comm, memory);
               if (whole || whole.error().code != Errc::not_supported) return "a whole window";
               const auto mixed = Window::create(
                   comm, memory, comm.rank() == 1 ? WindowReach::all : WindowReach::near);
               if (mixed || mixed.error().code != Errc::mismatch) return "a mixed window";
               CCL_TRY(const auto near, Window::create(comm, memory, WindowReach::near));
               std::string mapped;
               for (int p = 0; p < 3; ++p) mapped += near.at(p) == nullptr ? '-' : 'm';
               CCL_CHECK(near.close());
               return mapped;
             })) == std::vector<std::string>{"mm-", "mm-", "--m"});
}

TEST_CASE("a kernel for one host is refused on several") {
  CHECK(said(2, run(
                    2, [](int r) { on_host(r == 0 ? "a" : "b"); },
                    [](const Communicator& comm) -> Answer {
                      const auto code_of = [](const Error& error) {
                        const bool named = error.what.find("NetworkTeam") != std::string::npos;
                        return std::string{named ? name(error.code) : error.what};
                      };
                      const auto made = Made::create(comm, 64, {.signals = 1});
                      if (!made) return code_of(made.error());  // rank 0 was faster
                      if (comm.rank() == 0) {
                        TeamSession session{Solo{}, made->device.team(), 0, 1};
                        if (!session.failed()) return "no failure";
                      }
                      auto status = made->device.status();
                      while (status) {
                        std::this_thread::sleep_for(std::chrono::milliseconds{5});
                        status = made->device.status();
                      }
                      return code_of(status.error());
                    },
                    false)) == std::vector<std::string>{"invalid_usage", "aborted"});
}
