// The device-side interface of communicators of CPU ranks, whose kernels are functions on CPU
// lanes.
#include <ccl/detail/lanes/host_lanes.hpp>
#include <ccl/device/device_comm.hpp>
#include <ccl/device/tiles.hpp>

#include <atomic>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "support/calls/rings.hpp"
#include "support/catch.hpp"
#include "support/error_matchers.hpp"
#include "support/held_port.hpp"
#include <sys/wait.h>
#include <unistd.h>

using namespace ccl;

namespace {

using Solo = detail::SoloLane;
using Session = TeamSession<Solo>;
using Block = Tiles<Solo, float, TileShape<4, 16>, LL128, 11>;

Config cpu(double timeout_s = 60) {
  Config config;
  config.device = Config::cpu;
  config.timeout_s = timeout_s;
  return config;
}

/// One thread for each rank. Returns the failures as text.
std::vector<std::string> on_threads(int ranks, const Config& config,
                                    const std::function<Result<void>(const Communicator&)>& body) {
  auto comms = Communicator::create_all(ranks, config);
  REQUIRE(comms.has_value());
  std::vector<std::string> said(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (auto& comm : *comms) {
    threads.emplace_back([&said, &body, &comm] {
      const auto done = body(comm);
      if (!done) said[std::size_t(comm.rank())] = done.error().message();
    });
  }
  for (auto& thread : threads) thread.join();
  return said;
}

DeviceRequirements needs_of(int ranks) {
  return {.blocks = 2, .signals = 2, .counters = 1, .ll128_bytes = Block::bytes(2, ranks)};
}

/// What ranks keep until all threads have ended: a peer may address it.
struct Kept {
  std::vector<Word> memory = std::vector<Word>(10);
  std::optional<Window> window{};
  std::optional<DeviceComm> device{};
  Result<void> make(const Communicator& comm) {
    CCL_TRY(window, Window::create(comm, memory.data(), 80));
    CCL_TRY(device, DeviceComm::create(comm, *window, needs_of(comm.ranks())));
    return {};
  }
};

Error wrong(const std::string& what) {
  return {Errc::internal, what};
}

/// "Kernel" of one block: a ring of puts and an all-reduce of a tile. Returns what is wrong.
std::string kernel(const Team& team, int launch) {
  Session session{Solo{}, team, 0, 1};
  const int me = team.rank(), next = (me + 1) % team.ranks();
  const int before = (me + team.ranks() - 1) % team.ranks();
  const Word word = Word(1000 * launch + me);
  session.put_signal(next, 0, &word, 1, 0);
  if (!session.wait(before, 0)) return "a signal did not come";
  if (*team.window<Word>(me) != Word(1000 * launch + before)) return "a put went wrong";
  alignas(16) float tile[Block::elements];
  for (int i = 0; i < Block::elements; ++i) tile[i] = float(me + i + launch);
  if (!Block{session}.all_reduce(0, tile)) return "a tile did not come";
  for (int i = 0; i < Block::elements; ++i) {
    const int n = team.ranks();
    if (tile[i] != float(n * (n - 1) / 2 + n * (i + launch))) return "a sum is wrong";
  }
  if (!session.barrier()) return "a barrier failed";
  return {};
}

Result<void> run_all(const Communicator& comm, const Window& window) {
  CCL_TRY(const auto device, DeviceComm::create(comm, window, needs_of(comm.ranks())));
  for (int launch = 0; launch < 20; ++launch) {
    if (auto why = kernel(device.team(), launch); !why.empty()) return fail(wrong(why));
  }
  CCL_CHECK(device.status());
  return device.close();
}

}  // namespace

TEST_CASE("a communicator of more ranks than kernels address has no DeviceComm") {
  const auto create = [](const Communicator& comm) -> Result<void> {
    std::vector<Word> memory(10);
    CCL_TRY(const auto window, Window::create(comm, memory.data(), 80));
    const auto device = DeviceComm::create(comm, window, {.blocks = 1, .signals = 1});
    if (device) return fail(wrong("it has one"));
    const Error& error = device.error();
    const bool well = error.code == Errc::not_supported &&
                      test::mentions(error.what, "has 73 ranks (kernels address at most 72)");
    return well ? Result<void>{} : fail(error);
  };
  for (const std::string& text : on_threads(Team::max_ranks + 1, cpu(), create)) CHECK(text == "");
}

TEST_CASE("kernels of ranks of one process address each other") {
  for (const int ranks : {1, 2, 3, 8, 11}) {
    for (const auto& said : on_threads(ranks, cpu(), [](const Communicator& comm) -> Result<void> {
           std::vector<Word> memory(10);
           CCL_TRY(const auto window, Window::create(comm, memory.data(), 80));
           CCL_CHECK(run_all(comm, window));
           return window.close();
         })) {
      CHECK(said == "");
    }
  }
}

TEST_CASE("kernels of ranks in other processes address each other") {
  constexpr int ranks = 3;
  const test::HeldPort port;
  std::vector<pid_t> children;
  for (int r = 0; r < ranks; ++r) {
    const pid_t child = ::fork();
    if (child != 0) {
      children.push_back(child);
      continue;
    }
    ::setenv("RANK", std::to_string(r).c_str(), 1);
    ::setenv("LOCAL_RANK", std::to_string(r).c_str(), 1);
    ::setenv("WORLD_SIZE", std::to_string(ranks).c_str(), 1);
    ::setenv("MASTER_ADDR", "127.0.0.1", 1);
    ::setenv("MASTER_PORT", port.text().c_str(), 1);
    const auto all = []() -> Result<void> {
      CCL_TRY(const auto comm, Communicator::from_env(cpu()));
      CCL_TRY(const auto memory, SharedMemory::allocate(comm, 80));
      CCL_TRY(const auto window, Window::create(comm, memory));
      CCL_CHECK(run_all(comm, window));
      return comm.finalize();
    };
    const auto done = all();
    if (!done) std::fprintf(stderr, "%s\n", done.error().message().c_str());
    std::_Exit(done ? 0 : 1);
  }
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
  }
}

TEST_CASE("kernels run between the communicator's own calls") {
  for (const auto& said : on_threads(3, cpu(), [](const Communicator& comm) -> Result<void> {
         std::vector<Word> memory(10);
         CCL_TRY(const auto window, Window::create(comm, memory.data(), 80));
         CCL_TRY(const auto device, DeviceComm::create(comm, window, needs_of(comm.ranks())));
         CCL_TRY(const auto all_reduce, test::RingSums::create(comm, test::Via::shm));
         for (int launch = 0; launch < 20; ++launch) {
           if (auto why = kernel(device.team(), launch); !why.empty()) return fail(wrong(why));
           std::vector<int> data(100, comm.rank() + launch);
           CCL_CHECK(all_reduce(data.data(), data.data(), 100));
           if (data[99] != 3 + 3 * launch) return fail(wrong("a sum of the communicator"));
         }
         return device.status();
       })) {
    CHECK(said == "");
  }
}

TEST_CASE("what cannot be is refused on all ranks, with a code") {
  const auto codes = [](int ranks, auto create) {
    std::vector<Errc> found(std::size_t(ranks), Errc::ok);
    on_threads(ranks, cpu(), [&](const Communicator& comm) -> Result<void> {
      std::vector<Word> memory(10);
      CCL_TRY(const auto window, Window::create(comm, memory.data(), 80));
      const auto made = create(comm, window);
      if (!made) found[std::size_t(comm.rank())] = made.error().code;
      return {};
    });
    return found;
  };
  using All = std::vector<Errc>;
  CHECK(codes(2, [](const Communicator& comm, const Window& window) {
          return DeviceComm::create(comm, window, {.signals = comm.rank() == 1 ? -1 : 1});
        }) == All(2, Errc::invalid_argument));
  CHECK(codes(1, [](const Communicator& comm, const Window& window) {
          return DeviceComm::create(comm, window, {.blocks = 0});
        }) == All(1, Errc::invalid_argument));
  CHECK(codes(3, [](const Communicator& comm, const Window& window) {
          return DeviceComm::create(comm, window, {.blocks = comm.rank() == 1 ? 3 : 4});
        }) == All(3, Errc::mismatch));
  CHECK(codes(2, [](const Communicator& comm, const Window& window) {
          (void)window.close();
          return DeviceComm::create(comm, window);
        }) == All(2, Errc::invalid_argument));
}

TEST_CASE("a window of another communicator is refused") {
  auto first = Communicator::create_all(1, cpu()), second = Communicator::create_all(1, cpu());
  REQUIRE(first.has_value());
  REQUIRE(second.has_value());
  Word memory[4];
  const auto window = Window::create((*first)[0], memory, sizeof memory);
  REQUIRE(window.has_value());
  const auto made = DeviceComm::create((*second)[0], *window);
  REQUIRE_FALSE(made.has_value());
  CHECK(made.error().code == Errc::invalid_argument);
  // A window of the communicator that covers the same memory does not make it one.
  const auto own = Window::create((*second)[0], memory, sizeof memory);
  REQUIRE(own.has_value());
  const auto still = DeviceComm::create((*second)[0], *window);
  REQUIRE_FALSE(still.has_value());
  CHECK(still.error().code == Errc::invalid_argument);
  CHECK(DeviceComm::create((*second)[0], *own).has_value());
}

TEST_CASE("a closed window is refused, also where an open one covers its memory") {
  const auto comms = Communicator::create_all(1, cpu());
  REQUIRE(comms.has_value());
  const Communicator& comm = (*comms)[0];
  Word memory[4];
  const auto closed = Window::create(comm, memory, sizeof memory);
  const auto open = Window::create(comm, memory, sizeof memory);
  REQUIRE((closed && open && closed->close()));
  const auto made = DeviceComm::create(comm, *closed);
  REQUIRE_FALSE(made.has_value());
  CHECK(made.error().code == Errc::invalid_argument);
  CHECK(DeviceComm::create(comm, *open).has_value());
}

TEST_CASE("the wrong call of a kernel fails the communicator and is typed") {
  Kept kept[2];
  for (const auto& said : on_threads(2, cpu(), [&](const Communicator& comm) -> Result<void> {
         CCL_CHECK(kept[comm.rank()].make(comm));
         const DeviceComm& device = *kept[comm.rank()].device;
         if (!device.check_launch(2) || !device.check_launch(2, 2))
           return fail(wrong("a launch that fits"));
         const auto room = device.check_launch(2, 1);
         if (room || room.error().code != Errc::invalid_argument) return fail(wrong("no room"));
         for (const int blocks : {0, 3}) {
           const auto fits = device.check_launch(blocks);
           if (fits || fits.error().code != Errc::invalid_argument) return fail(wrong("a launch"));
         }
         if (comm.rank() == 1) {
           CCL_CHECK(device.status());
           Session session{Solo{}, device.team(), 0, 1};
           if (!session.wait(0, 1)) return fail(wrong("rank 0 did not begin"));
           session.signal(0, 7);
           const auto status = device.status();
           if (status) return fail(wrong("no failure"));
           if (status.error().code != Errc::invalid_usage) return fail(status.error());
           if (status.error().what.find("signal 7") == std::string::npos)
             return fail(status.error());
           return {};
         }
         // Rank 0 waits for a signal that does not come; the failure of rank 1 ends it.
         Session session{Solo{}, device.team(), 0, 1};
         session.signal(1, 1);
         if (session.wait(1, 0)) return fail(wrong("a signal"));
         const auto status = device.status();
         if (status) return fail(wrong("no failure"));
         if (status.error().code != Errc::aborted ||
             status.error().what.find("signal 7") == std::string::npos)
           return fail(status.error());
         return {};
       })) {
    CHECK(said == "");
  }
}

TEST_CASE("a rank that does not come is named at the deadline") {
  Kept kept[2];
  for (const auto& said : on_threads(2, cpu(0.2), [&](const Communicator& comm) -> Result<void> {
         CCL_CHECK(kept[comm.rank()].make(comm));
         const DeviceComm& device = *kept[comm.rank()].device;
         if (comm.rank() == 1) return {};
         Session session{Solo{}, device.team(), 0, 1};
         if (session.barrier()) return fail(wrong("a barrier without the peer"));
         const auto status = device.status();
         if (status) return fail(wrong("no failure"));
         if (status.error().code != Errc::timed_out || status.error().peer != 1)
           return fail(status.error());
         return {};
       })) {
    CHECK(said == "");
  }
}

TEST_CASE("memory of a rank that drops its handle early stays while peers may write to it") {
  const auto mapped = [] {
    std::ifstream maps{"/proc/self/maps"};
    int found = 0;
    for (std::string line; std::getline(maps, line);)
      found += line.find("ccl-shared") != std::string::npos;
    return found;
  };
  const int before = mapped();
  for (const bool closes : {false, true}) {
    auto comms = Communicator::create_all(2, cpu());
    REQUIRE(comms);
    std::vector<Kept> kept(2);
    std::vector<std::thread> threads;
    for (int r = 0; r < 2; ++r) {
      threads.emplace_back([&, r] {
        (void)kept[std::size_t(r)].make((*comms)[std::size_t(r)]);
        if (closes) (void)kept[std::size_t(r)].device->close();
      });
    }
    for (auto& thread : threads) thread.join();
    const Team team = kept[1].device->team();
    kept[0].device.reset();
    if (!closes) {
      Session session{Solo{}, team, 0, 1};
      session.signal(0, 0);  // into memory of rank 0
    }
    kept.clear();
    CHECK(mapped() == before + (closes ? 0 : 2));
    comms->clear();
    CHECK(mapped() == before);
  }
}

TEST_CASE("a handle that was moved from has no ranks") {
  auto comms = Communicator::create_all(1, cpu());
  REQUIRE(comms.has_value());
  Word memory[4];
  const auto window = Window::create((*comms)[0], memory, sizeof memory);
  REQUIRE(window.has_value());
  auto made = DeviceComm::create((*comms)[0], *window);
  REQUIRE(made.has_value());
  DeviceComm other = *std::move(made);
  CHECK(other.team().ranks() == 1);
  CHECK(made->team().ranks() == 0);
  const auto status = made->status();
  REQUIRE_FALSE(status.has_value());
  CHECK(status.error().code == Errc::invalid_usage);
  CHECK(other.close().has_value());
}
