// Calls whose receive buffers lie in windows, on some ranks or on all, at one place or at several.
// The GPUs are played on the CPU.
#define CCL_PLAYED_WARP 2  // lanes of a warp
#include "support/played/played_gpus.hpp"
// Kernels come before other headers of ccl.
#include <ccl/algo/copy_engine.hpp>
#include <ccl/algo/direct.hpp>
#include <ccl/collective.cuh>
#include <ccl/comm/window.hpp>
#include <ccl/detail/choose/auto_collective.hpp>
#include <ccl/detail/choose/tuning.hpp>
#include <ccl/transport/p2p.hpp>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "support/environment.hpp"
#include "support/error_matchers.hpp"
#include "support/played/calls.hpp"
#include "support/played/stream_words.hpp"
#include <unistd.h>

using namespace ccl;
using namespace ccl::test;

namespace {
constexpr Plan plan{.channels = 1, .slot_count = 2, .slot_bytes = 64 << 10};
constexpr Index count = 8000;  // elements of a message
enum Buffer { first, behind, second, plain };

/// Receive buffers of a rank: two in one window, one in another, and one in none.
struct Places {
  const played::Rank& rank;
  Index all = count * rank.ranks;  // elements of a buffer
  std::vector<SharedMemory> shared;
  std::vector<Window> windows;
  std::vector<float> outside = std::vector<float>(std::size_t(all));

  explicit Places(const played::Rank& of) : rank{of} {
    for (int w = 0; w < 2; ++w) {
      shared.push_back(*SharedMemory::allocate(rank.comm, 2 * all * Index{sizeof(float)}));
      windows.push_back(*Window::create(rank.comm, shared.back()));
    }
  }
  float* at(Buffer buffer) {
    if (buffer == plain) return outside.data();
    return shared[buffer == second].as<float>() + (buffer == behind ? all : 0);
  }
};

/// Gathers into a buffer. Returns what is wrong.
template <class C>
std::string gather(const C& all_gather, Places& memory, Buffer buffer) {
  const played::Rank& rank = memory.rank;
  std::vector<float> in(std::size_t(count), float(rank.rank + 1));
  float* const out = memory.at(buffer);
  std::fill(out, out + memory.all, -1.f);
  if (const auto here = rank.comm.barrier(); !here) return here.error().message();
  const auto done = all_gather(in.data(), out, count, rank.stream);
  rank.synchronize();
  if (!done) return done.error().message();
  if (const auto well = rank.comm.status(); !well) return well.error().message();
  for (Index i = 0; i < memory.all; ++i) {
    if (out[i] != float(1 + i / count)) return fmt::format("element {} is {}", i, out[i]);
  }
  return {};
}

/// All ranks gather into `all`, then each into its own of `apart`. Returns the errors.
template <class C>
std::vector<std::string> gather_apart(std::vector<Buffer> all, std::vector<Buffer> apart) {
  const test::Environment limit{"CCL_TIMEOUT", "30"};
  auto comms = played::create_ranks(int(apart.size()));
  return played::problems_on(comms, [&](const played::Rank& rank) -> std::string {
    const auto made = C::create(rank.comm);
    if (!made) return made.error().message();
    Places memory{rank};
    for (const Buffer buffer : all) {
      if (auto wrong = gather(*made, memory, buffer); !wrong.empty()) return "all alike: " + wrong;
    }
    return gather(*made, memory, apart[std::size_t(rank.rank)]);
  });
}
template <class Algo>
struct Gathers {
  static auto create(const Communicator& comm) {
    return Collective<AllGather, Algo, Simple, P2pTransport>::create(comm, plan);
  }
};

void check_names(const std::vector<std::string>& problems, const char* one, const char* other) {
  for (const std::string& what : problems) {
    INFO(what);
    CHECK(mentions(what, "mismatch"));
    CHECK(mentions(what, one));
    CHECK(mentions(what, other));
  }
}

/// Table by which copies into windows are the fastest for long messages.
class Table {
 public:
  explicit Table(int ranks, const char* copies = "WindowCopies/Simple") {
    const detail::TuningCase here{AllGather::name, ranks, 1, "nvlink", 90};
    detail::TuningTable table;
    table.rows.push_back({here, 1 << 10, {{"Direct/Simple", 1}, {copies, 9}}});
    table.rows.push_back({here, 64 << 10, {{"Direct/Simple", 9}, {copies, 3}}});
    std::ofstream{path_} << table.json();
  }
  ~Table() { std::remove(path_.c_str()); }
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_ = "windows_test." + std::to_string(::getpid());
};
template <class Copies>
using DirectOr = Collective<
    AllGather,
    AutoOf<Candidate<Direct, Simple, P2pTransport>, Candidate<Copies, Simple, P2pTransport>>, Auto,
    P2pTransport>;
using Chosen = DirectOr<WindowCopies>;
}  // namespace

TEST_CASE("ranks pass from place to place, in windows and outside") {
  played::install(3, 4);
  auto comms = played::create_ranks(3);
  played::on_each(comms, [](const played::Rank& rank) -> std::string {
    const auto made = Gathers<CopyEngine>::create(rank.comm);
    if (!made) return made.error().message();
    Places memory{rank};
    for (int turn = 0; turn < 3; ++turn) {
      for (const Buffer buffer : {first, plain, behind, second, plain, plain, first}) {
        if (auto wrong = gather(*made, memory, buffer); !wrong.empty()) return wrong;
      }
    }
    for (const Window& window : memory.windows) {
      if (const auto closed = window.close(); !closed) return closed.error().message();
    }
    return {};
  });
}

TEST_CASE("a receive buffer in a window on some ranks only is an error of all that names both") {
  played::install(3, 4);
  const auto problems = gather_apart<Gathers<CopyEngine>>({first, plain}, {first, plain, first});
  check_names(problems, "in no window", "at offset 0 of window");
}

TEST_CASE("messages to a window that a receiver does not expect there are an error of both ends") {
  played::install(2, 4);
  const test::Environment limit{"CCL_TIMEOUT", "30"};
  for (const bool apart : {false, true}) {
    auto comms = played::create_ranks(2);
    const auto problems = played::problems_on(comms, [&](const played::Rank& rank) -> std::string {
      const auto made =
          Collective<SendRecv, CopyEngine, Simple, P2pTransport>::create(rank.comm, plan);
      if (!made) return made.error().message();
      Places memory{rank};
      std::vector<Buffer> buffers{first, plain, behind};
      if (apart) buffers.push_back(rank.rank == 0 ? first : plain);
      const int peer = 1 - rank.rank;
      std::vector<float> in(std::size_t(count), float(rank.rank + 1));
      for (const Buffer buffer : buffers) {
        float* const out = memory.at(buffer);
        const auto done = (*made)(in.data(), count, peer, out, count, peer, rank.stream);
        rank.synchronize();
        if (!done) return done.error().message();
        if (const auto well = rank.comm.status(); !well) return well.error().message();
        if (out[0] != float(peer + 1) || out[count - 1] != float(peer + 1)) return "wrong data";
      }
      return {};
    });
    if (apart) check_names(problems, "in no window", "at offset 0 of window");
    if (!apart) CHECK(problems == std::vector<std::string>(2));
  }
}

TEST_CASE("receive buffers at different offsets are an error of all that names both") {
  played::install(2, 4);
  const auto problems = gather_apart<Gathers<WindowCopies>>({behind, first}, {first, behind});
  check_names(problems, "at offset 64000 of window", "at offset 0 of window");
}

TEST_CASE("receive buffers in different windows are an error of all that names both") {
  played::install(2, 4);
  const auto problems = gather_apart<Gathers<CopyEngine>>({second, plain}, {first, second});
  check_names(problems, "at offset 0 of window 2", "at offset 0 of window 3");
}

TEST_CASE("a rank that names copies into windows without one ends the wait of the others") {
  played::install(2, 4);
  const auto problems = gather_apart<Gathers<WindowCopies>>({first}, {plain, behind});
  CHECK(mentions(problems[0], "that is in no window"));
  CHECK(mentions(problems[1], "rank 0 is in no window where that of rank 1 is at offset 64000"));
}

TEST_CASE("copies into windows without one are an error of all that leaves them well") {
  played::install(2, 4);
  auto comms = played::create_ranks(2);
  played::on_each(comms, [](const played::Rank& rank) -> std::string {
    const auto made = Gathers<WindowCopies>::create(rank.comm);
    Places memory{rank};
    for (int turn = 0; turn < 2; ++turn) {
      const std::string refused = gather(*made, memory, plain);
      if (!mentions(refused, "invalid_argument")) return "not refused: " + refused;
      if (const auto wrong = gather(*made, memory, first); !wrong.empty()) return wrong;
    }
    return {};
  });
}

TEST_CASE("Auto: ranks whose buffers are in no window name themselves to those that wait") {
  played::install(2, 4);
  const Table table{2};
  const test::Environment measured{"CCL_TUNE_FILE", table.path()};
  const auto problems = gather_apart<Chosen>({first, plain, plain, behind}, {plain, first});
  check_names(problems, "in no window", "at offset 0 of window");
}

TEST_CASE("Auto: a rank that has dropped its handle of a window names itself to the others") {
  played::install(2, 4);
  const Table table{2};
  const test::Environment measured{"CCL_TUNE_FILE", table.path()}, limit{"CCL_TIMEOUT", "30"};
  auto comms = played::create_ranks(2);
  const auto problems = played::problems_on(comms, [](const played::Rank& rank) -> std::string {
    const auto made = Chosen::create(rank.comm);
    if (!made) return made.error().message();
    if (made->plan(count * 8, true).composition != "WindowCopies/Simple") return "by no window";
    if (made->plan(1 << 10, true).composition != "Direct/Simple") return "short by windows";
    Places memory{rank};
    if (auto wrong = gather(*made, memory, first); !wrong.empty()) return wrong;
    if (rank.rank == 1) memory.windows.clear();
    return gather(*made, memory, first);
  });
  check_names(problems, "in no window", "at offset 0 of window");
}

TEST_CASE("streams that wait for words find other places, too") {
  played::install(2, 4);
  played::install_stream_words(2);
  check_names(gather_apart<Gathers<ZeroSmCopies>>({behind, second, first}, {first, behind}),
              "at offset 64000 of window", "at offset 0 of window");
  const Table table{2, "ZeroSmCopies/Simple"};
  const test::Environment measured{"CCL_TUNE_FILE", table.path()};
  check_names(gather_apart<DirectOr<ZeroSmCopies>>({first, plain, behind}, {first, plain}),
              "in no window", "at offset 0 of window");
}

TEST_CASE("streams that wait find a rank whose buffers are in no window and whose host is ahead") {
  played::install(2, 4);
  played::install_stream_words(2);
  const Table table{2, "ZeroSmCopies/Simple"};
  const test::Environment measured{"CCL_TUNE_FILE", table.path()};
  const test::Environment limit{"CCL_TIMEOUT", "20"};
  auto comms = played::create_ranks(2);
  std::atomic<bool> queued{false};
  const auto problems = played::problems_on(comms, [&](const played::Rank& rank) -> std::string {
    const auto made = DirectOr<ZeroSmCopies>::create(rank.comm);
    if (!made) return made.error().message();
    Places memory{rank};
    if (auto wrong = gather(*made, memory, first); !wrong.empty()) return wrong;
    const std::vector<float> in(std::size_t(count), 1);
    if (rank.rank == 1) {
      for (int call = 0; call < 3; ++call) {
        if (!(*made)(in.data(), memory.at(plain), count, rank.stream)) break;
      }
      queued = true;
    } else {
      (void)wait_until([&] { return queued.load(); }, 0.5);  // not, if a call waits for the stream
      (void)(*made)(in.data(), memory.at(first), count, rank.stream);
    }
    rank.synchronize();
    const auto status = rank.comm.status();
    return status ? "no error" : status.error().message();
  });
  check_names(problems, "in no window", "at offset 0 of window");
}
