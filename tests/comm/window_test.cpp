// Windows of CPU ranks. Those of GPUs are tested in tests/gpu/copy_engine_test.cu.
#include <ccl/comm/window.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "support/catch.hpp"
#include "support/environment.hpp"
#include "support/growing_limit.hpp"
#include "support/held_port.hpp"
#include <sys/wait.h>
#include <unistd.h>

using namespace ccl;

namespace {

/// One thread for each rank; its failure as text.
std::vector<std::string> on_threads(int ranks,
                                    const std::function<Result<void>(const Communicator&)>& body) {
  Config config;
  config.device = Config::cpu;
  config.timeout_s = 60;
  auto comms = Communicator::create_all(ranks, config);
  if (!comms) return {comms.error().message()};
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

/// Runs one process for each rank. Returns the number of failures; each prints its reason.
int on_processes(int ranks, const std::function<Result<void>(const Communicator&)>& body) {
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
    Config config;
    config.device = Config::cpu;
    config.timeout_s = 60;
    const auto all = [&]() -> Result<void> {
      CCL_TRY(const auto comm, Communicator::from_env(config));
      CCL_CHECK(body(comm));
      return comm.finalize();
    };
    const auto done = all();
    if (!done) std::fprintf(stderr, "%s\n", done.error().message().c_str());
    std::_Exit(done ? 0 : 1);
  }
  int failed = 0;
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    failed += int(!WIFEXITED(status) || WEXITSTATUS(status) != 0);
  }
  return failed;
}

Error wrong(const std::string& what) {
  return {Errc::internal, what};
}

/// Every rank writes into every other's part, and finds what the others wrote.
Result<void> write_around(const Communicator& comm, const Window& window) {
  const int me = comm.rank(), ranks = comm.ranks();
  for (int p = 0; p < ranks; ++p) window.of<int>(p)[std::size_t(me)] = 100 * p + me;
  CCL_CHECK(comm.barrier());
  for (int p = 0; p < ranks; ++p) {
    if (window.of<int>(me)[std::size_t(p)] != 100 * me + p)
      return fail(wrong("not what was written"));
  }
  return comm.barrier();
}

Result<void> share(const Communicator& comm) {
  CCL_TRY(const auto memory, SharedMemory::allocate(comm, 5000));
  if (memory.as<char>()[4999] != 0) return fail(wrong("not zeroed"));
  CCL_TRY(const auto window, Window::create(comm, memory));
  if (window.at(comm.rank()) != memory.data()) return fail(wrong("not this rank's own memory"));
  CCL_CHECK(write_around(comm, window));
  CCL_CHECK(window.close());
  const int other = (comm.rank() + 1) % comm.ranks();
  if (window.at(other) != nullptr || !window.of<int>(other).empty()) {
    return fail(wrong("mapped after close"));
  }
  return {};
}

}  // namespace

TEST_CASE("ranks of one process see each other's memory, whatever it is") {
  for (const auto& said : on_threads(3, [](const Communicator& comm) -> Result<void> {
         std::vector<int> plain(10);
         CCL_TRY(const auto window,
                 Window::create(comm, plain.data(), Index(plain.size() * sizeof(int))));
         CCL_CHECK(write_around(comm, window));
         CCL_CHECK(window.close());
         return share(comm);
       })) {
    CHECK(said == "");
  }
}

TEST_CASE("a rank may close a window long after another") {
  const auto close_late = [](double creation_s) {
    const test::Environment soon{"CCL_INIT_TIMEOUT", std::to_string(creation_s)};
    std::string problem;
    for (const auto& said : on_threads(2, [&](const Communicator& comm) -> Result<void> {
           std::vector<int> plain(10);
           CCL_TRY(const auto window,
                   Window::create(comm, plain.data(), Index(plain.size() * sizeof(int))));
           const std::chrono::duration<double> late{2.5 * creation_s};
           if (comm.rank() == 1) std::this_thread::sleep_for(late);
           CCL_CHECK(window.close());
           return comm.barrier();
         })) {
      problem += said;
    }
    return problem;
  };
  CHECK(test::with_growing_limit(0.25, close_late) == "");
}

TEST_CASE("processes map shared memory, and several windows at once") {
  CHECK(on_processes(3, [](const Communicator& comm) -> Result<void> {
          CCL_CHECK(share(comm));
          CCL_TRY(const auto first, SharedMemory::allocate(comm, 4096));
          CCL_TRY(const auto second, SharedMemory::allocate(comm, 100));
          CCL_TRY(const auto one, Window::create(comm, first));
          CCL_TRY(const auto two, Window::create(comm, second));
          CCL_CHECK(write_around(comm, one));
          return write_around(comm, two);
        }) == 0);
}

TEST_CASE("a part of another size, or memory that cannot be mapped, is refused on all ranks") {
  for (const auto& said : on_threads(2, [](const Communicator& comm) -> Result<void> {
         std::vector<char> plain(64);
         return Window::create(comm, plain.data(), 32 + comm.rank()).and_then([](auto&&) {
           return Result<void>{};
         });
       })) {
    CHECK(said.find("mismatch: the ranks' parts of a window differ") != std::string::npos);
  }
  for (const auto& said : on_threads(2, [](const Communicator& comm) -> Result<void> {
         char one = 0;
         void* const data = comm.rank() == 1 ? nullptr : &one;
         return Window::create(comm, data, 1).and_then([](auto&&) { return Result<void>{}; });
       })) {
    CHECK(said.find("rank 1 gave a window 1 bytes at") != std::string::npos);
  }
  CHECK(on_processes(2, [](const Communicator& comm) -> Result<void> {
          std::vector<char> plain(4096);
          const auto window = Window::create(comm, plain.data(), 4096);
          const std::string said = window ? "made" : window.error().message();
          const bool named = said.find("make the window of SharedMemory") != std::string::npos;
          return named ? Result<void>{} : fail(wrong(said));
        }) == 0);
}

TEST_CASE(
    "shared memory that no address space holds is refused with the rank and what would help") {
  for (const auto& said : on_threads(1, [](const Communicator& comm) -> Result<void> {
         const auto memory = SharedMemory::allocate(comm, Index{1} << 60);
         if (memory || memory.error().code != Errc::out_of_memory || memory.error().rank != 0 ||
             memory.error().what.find("bytes of shared memory") == std::string::npos ||
             memory.error().what.find("slots") != std::string::npos) {
           return fail(wrong(memory ? "made" : memory.error().message()));
         }
         return {};
       })) {
    CHECK(said == "");
  }
}

TEST_CASE("windows and memory that were moved from have no rank and no bytes") {
  for (const auto& said : on_threads(1, [](const Communicator& comm) -> Result<void> {
         CCL_TRY(auto memory, SharedMemory::allocate(comm, 64));
         CCL_TRY(auto window, Window::create(comm, memory));
         const auto own_memory = std::move(memory);
         const auto own = std::move(window);
         // NOLINTBEGIN(bugprone-use-after-move)
         const bool moved_from = window.ranks() == 0 && window.rank() == -1 &&
                                 window.bytes() == 0 && window.at(0) == nullptr &&
                                 window.of<int>(0).empty() && memory.data() == nullptr &&
                                 memory.bytes() == 0;
         if (!moved_from) return fail(wrong("somebody's"));
         const auto closed = window.close();
         if (closed || closed.error().code != Errc::invalid_usage) return fail(wrong("closed"));
         const auto made = Window::create(comm, memory);
         if (made || made.error().code != Errc::invalid_argument) return fail(wrong("made"));
         window = own;
         // NOLINTEND(bugprone-use-after-move)
         return window.at(0) == own_memory.data() ? window.close() : fail(wrong("another memory"));
       })) {
    CHECK(said == "");
  }
}

TEST_CASE("one rank alone has a window of its own memory") {
  for (const auto& said : on_threads(1, [](const Communicator& comm) -> Result<void> {
         CCL_TRY(const auto memory, SharedMemory::allocate(comm, 64));
         CCL_TRY(const auto window, Window::create(comm, memory));
         window.of<int>(0)[3] = 5;
         return memory.as<int>()[3] == 5 ? window.close() : fail(wrong("another memory"));
       })) {
    CHECK(said == "");
  }
}
