// Ranks whose settings are refused before they join: the others learn why, and need not wait.
#include "bootstrap/decline.hpp"

#include <ccl/comm/communicator.hpp>

#include <fmt/format.h>

#include <cstdlib>
#include <future>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/error_matchers.hpp"
#include "support/held_port.hpp"
#include "support/processes.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {

constexpr int ranks = 3, bad = 1;
constexpr double init_s = 60, soon_s = 20;

Config config_of(int rank) {
  Config config;
  config.device = Config::cpu;
  config.init_timeout_s = init_s;
  if (rank == bad) config.timeout_s = -2;
  return config;
}

/// True if `error`, of a rank that is well, says that the bad rank does not join, and why.
bool names_bad(const Error& error, const char* why, Errc code = Errc::bad_setting, int rank = bad) {
  return error.code == code && error.peer == rank &&
         mentions(error.what, fmt::format("rank {} on ", rank).c_str()) &&
         mentions(error.what, "does not join") && mentions(error.what, why);
}

}  // namespace

TEST_CASE("threads: a rank that refuses its settings fails the others at once") {
  for (const int ids : {1, 2}) {
    std::vector<UniqueId> all;
    for (int n = 0; n < ids; ++n) all.push_back(create_unique_id().value());
    const auto begin = Clock::now();
    std::vector<std::future<Result<Communicator>>> made;
    for (int rank = 0; rank < ranks; ++rank) {
      made.push_back(std::async(std::launch::async, [&, rank] {
        return Communicator::create(all, rank, ranks, config_of(rank));
      }));
    }
    for (int rank = 0; rank < ranks; ++rank) {
      const auto comm = made[std::size_t(rank)].get();
      REQUIRE(!comm);
      INFO(comm.error().message());
      CHECK((rank == bad ? comm.error().code == Errc::bad_setting
                         : names_bad(comm.error(), "timeout_s is -2")));
    }
    CHECK(seconds(Clock::now() - begin) < soon_s);
  }
}

TEST_CASE("processes: the others fail at once, also if they come later") {
  for (const double late_s : {0., 0.5}) {
    const UniqueId id = create_unique_id().value();  // the root is here
    const auto begin = Clock::now();
    std::vector<pid_t> pids;
    for (int rank = 0; rank < ranks; ++rank) {
      pids.push_back(start_process([&] {
        if (rank != bad) sleep_s(late_s);
        const auto comm = Communicator::create(id, rank, ranks, config_of(rank));
        if (comm) return 1;
        if (rank == bad) return comm.error().code == Errc::bad_setting ? 0 : 2;
        return names_bad(comm.error(), "timeout_s is -2") ? 0 : 3;
      }));
    }
    CHECK(reap(pids, init_s));
    CHECK(seconds(Clock::now() - begin) < soon_s);
  }
}

TEST_CASE("a launch: a bad variable of one rank, the root's too, is an error of all") {
  const int wrong = GENERATE(0, 1);
  const HeldPort port;
  const auto begin = Clock::now();
  std::vector<pid_t> pids;
  for (int rank = 0; rank < ranks; ++rank) {
    pids.push_back(start_process([&] {
      const auto put = [](const char* name, const std::string& value) {
        ::setenv(name, value.c_str(), 1);
      };
      put("RANK", std::to_string(rank));
      put("WORLD_SIZE", std::to_string(ranks));
      put("CCL_COMM_ID", "127.0.0.1:" + std::to_string(port.number()));
      if (rank == wrong) put("CCL_CHECK", "perhaps");
      Config config;
      config.device = Config::cpu;
      config.init_timeout_s = init_s;
      const auto comm = Communicator::from_env(config);
      if (comm) return 1;
      if (rank == wrong) return comm.error().code == Errc::bad_setting ? 0 : 2;
      if (names_bad(comm.error(), "CCL_CHECK", Errc::bad_setting, wrong)) return 0;
      std::fprintf(stderr, "rank %d: %s\n", rank, comm.error().message().c_str());
      return 3;
    }));
  }
  CHECK(reap(pids, init_s));
  CHECK(seconds(Clock::now() - begin) < soon_s);
}

TEST_CASE("a launch: a rank without an interface fails the others at once, the root's rank, too") {
  const int without = GENERATE(0, 1);
  const HeldPort port;
  const auto begin = Clock::now();
  std::vector<pid_t> pids;
  for (int rank = 0; rank < ranks; ++rank) {
    pids.push_back(start_process([&] {
      ::setenv("RANK", std::to_string(rank).c_str(), 1);
      ::setenv("WORLD_SIZE", std::to_string(ranks).c_str(), 1);
      ::setenv("CCL_COMM_ID", ("127.0.0.1:" + std::to_string(port.number())).c_str(), 1);
      if (rank == without) ::setenv("CCL_SOCKET_IFNAME", "nosuch", 1);
      Config config;
      config.device = Config::cpu;
      config.init_timeout_s = init_s;
      const auto comm = Communicator::from_env(config);
      if (comm) return 1;
      const char* const why = "no network interface fits (CCL_SOCKET_IFNAME=\"nosuch\"";
      if (rank == without) return mentions(comm.error().what, why) ? 0 : 2;
      if (names_bad(comm.error(), why, Errc::network, without)) return 0;
      std::fprintf(stderr, "rank %d: %s\n", rank, comm.error().message().c_str());
      return 3;
    }));
  }
  CHECK(reap(pids, init_s));
  CHECK(seconds(Clock::now() - begin) < soon_s);
}
