// Calls that ranks compare, calls of forked processes, and ranks that are late.
#include <ccl/algo/pairwise.hpp>
#include <ccl/algo/tree.hpp>

#include <fmt/format.h>

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "comm/state.hpp"
#include "support/calls/rings.hpp"
#include "support/checked_ranks.hpp"
#include "support/growing_limit.hpp"
#include <sys/wait.h>
#include <unistd.h>

using namespace ccl;
using namespace ccl::test;

namespace {

template <class R>
Result<void> is_mismatch(const R& result, std::string_view mentions) {
  return expect(!result && result.error().code == Errc::mismatch &&
                    result.error().what.find(mentions) != std::string::npos,
                result ? "it was fine" : result.error().message());
}

}  // namespace

TEST_CASE("every rank gets the error of a mismatch, whoever leaves first") {
  for (int again = 0; again < 10; ++again) {
    auto comms = make(5, checking());
    std::vector<std::thread> threads;
    std::vector<Result<void>> results(comms.size()), after(comms.size());
    for (std::size_t r = 0; r < comms.size(); ++r) {
      threads.emplace_back([&, r, comm = std::move(comms[r])]() mutable {
        auto sum = RingSums::create(comm, Via::loopback);
        float x[4] = {}, y[4] = {};
        if (sum) results[r] = (*sum)(x, y, r == 2 ? 3 : 4);
        after[r] = comm.status();
        sum = fail(Errc::internal, "dropped");
        comm = detail::Access::communicator(nullptr);  // leaves
      });
    }
    for (auto& t : threads) t.join();
    for (std::size_t r = 0; r < results.size(); ++r) {
      INFO("rank " << r << ": " << (results[r] ? "fine" : results[r].error().message()));
      REQUIRE_FALSE(results[r].has_value());
      CHECK(results[r].error().code == Errc::mismatch);
      REQUIRE_FALSE(after[r].has_value());
      CHECK(after[r].error().code == Errc::mismatch);
    }
  }
}

TEST_CASE("ranks that differ in a failed communicator get its failure") {
  auto comms = make(2, checking());
  detail::CommState& state = *detail::Access::state(comms[0]);
  state.rendezvous.fail_all({Errc::peer_lost, "rank 7 is gone"});
  const auto reported = state.rendezvous.disagree("rank 1 creates another", 1);
  REQUIRE_FALSE(reported);
  CHECK(reported.error().code == Errc::peer_lost);
  CHECK(reported.error().what.find("rank 7 is gone") != std::string::npos);
}

TEST_CASE("ranks that create different compositions get an error") {
  Config config;
  config.timeout_s = config.init_timeout_s = 60;
  on_all(make(3, config), [](const Communicator& comm) -> Result<void> {
    if (comm.rank() == 1) {
      CCL_CHECK(is_mismatch(Over<AllReduce, Tree>::create(comm), "all_reduce/Tree"));
    } else {
      CCL_CHECK(
          is_mismatch(RingSums::create(comm, Via::loopback), "rank 1 creates all_reduce/Tree"));
    }
    return expect(!comm.status().has_value(), "the communicator is well");
  });
}

TEST_CASE("the error of compositions called in another order names them") {
  on_all(make(3, checking()), [](const Communicator& comm) -> Result<void> {
    CCL_TRY(const auto ring, (RingSums::create(comm, Via::loopback)));
    CCL_TRY(const auto tree, (Over<AllReduce, Tree>::create(comm)));
    float x = 1;
    const auto first = comm.rank() == 1 ? tree(&x, &x, 1) : ring(&x, &x, 1);
    CCL_CHECK(is_mismatch(first, "calls all_reduce/Tree/Simple/loopback, number 2"));
    return is_mismatch(first, "calls all_reduce/Ring/Simple/loopback, number 1");
  });
}

TEST_CASE("checking that is on on some ranks alone is an error") {
  const auto id = create_unique_id().value();
  std::vector<Result<void>> results(3, fail(Errc::internal, "not run"));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      const auto run = [&]() -> Result<void> {
        Config config;
        config.timeout_s = config.init_timeout_s = 60;
        config.check = rank == 1;
        CCL_TRY(const auto comm, Communicator::create(id, rank, 3, config));
        return is_mismatch(RingSums::create(comm, Via::loopback), "CCL_CHECK or Config::check");
      };
      results[std::size_t(rank)] = run();
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& result : results) {
    INFO((result ? std::string{} : result.error().message()));
    CHECK(result.has_value());
  }
}

TEST_CASE("with checking on, messages are compared by the ranks that have them") {
  const auto exchange = [](int sent, int taken) {
    return [sent, taken](const Communicator& comm) -> Result<void> {
      const auto made = Over<SendRecv, Pairwise>::create(comm);
      // A rank that takes no part can get the mismatch at once.
      if (!made && sent != taken && comm.rank() % 2 == 0) return {};
      CCL_TRY(auto pass, made);
      std::vector<int> x(1000, comm.rank()), y(1000, -1);
      for (int call = 0; call < 2; ++call) {  // the other two do not take part
        Result<void> done;
        if (comm.rank() == 1) done = pass.send(x.data(), sent, 3);
        if (comm.rank() == 3) done = pass.recv(y.data(), taken, 1);
        if (sent != taken && comm.rank() == 3) {
          return is_mismatch(
              done, fmt::format("rank 1 sends {} bytes, rank 3 takes {}", 4 * sent, 4 * taken));
        }
        if (sent == taken) CCL_CHECK(done);
      }
      if (comm.rank() == 3) CCL_CHECK(expect(y[99] == 1 && y[100] == -1, "wrong data"));
      return sent == taken ? comm.finalize() : Result<void>{};
    };
  };
  on_all(make(4, checking()), exchange(100, 100));
  on_all(make(4, checking()), exchange(100, 7));
  on_all(make(4, checking()), exchange(7, 100));
}

TEST_CASE("with checking on, the counts of AllToAllV are compared by pairs") {
  for (const Index wrong : {Index{5}, Index{0}, Index{3}}) {
    on_all(make(3, checking()), [wrong](const Communicator& comm) -> Result<void> {
      const auto made = Over<AllToAllV, Pairwise>::create(comm);
      // The other two may be further than this rank, and have failed.
      if (!made && wrong != 3 && comm.rank() == 1) return is_mismatch(made, "rank 2 takes");
      CCL_TRY(auto swap, made);
      const std::vector<Index> offsets{0, 10, 20};
      std::vector<Index> out{3, 3, 3}, in{3, 3, 3};
      if (comm.rank() == 2) in[0] = wrong;
      std::vector<int> x(30, 1), y(30, 0);
      const auto done = swap(x.data(), out, offsets, y.data(), in, offsets);
      if (wrong == 3) return done;
      if (comm.rank() == 2) {
        CCL_CHECK(
            is_mismatch(done, fmt::format("rank 0 sends 12 bytes, rank 2 takes {}", 4 * wrong)));
      }
      // The other ranks can have completed by then, but they get the error.
      while (comm.status()) std::this_thread::yield();
      return is_mismatch(comm.status(), "rank 2 takes");
    });
  }
}

TEST_CASE("a forked process gets an error, because the communicator is not its own") {
  Config config;
  config.timeout_s = 60;
  const auto comms = make(2, config);
  std::vector<Result<RingSums>> sums(2, fail(Errc::internal, "not created"));
  on_all(comms, [&](const Communicator& comm) -> Result<void> {
    auto& mine = sums[std::size_t(comm.rank())];
    mine = RingSums::create(comm, Via::loopback);
    return mine ? Result<void>{} : fail(mine.error());
  });
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    float x = 1;
    const auto misuse = [](const auto& r) {
      return !r && r.error().code == Errc::invalid_usage &&
             r.error().what.find("create one after fork") != std::string::npos;
    };
    const bool reported = misuse((*sums[0])(&x, &x, 1)) && misuse(comms[0].barrier()) &&
                          misuse(comms[0].finalize()) && misuse(comms[1].split(0, 0));
    ::_exit(reported ? 0 : 1);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  on_all(comms, [&](const Communicator& comm) -> Result<void> {
    float x = 1;
    CCL_CHECK((*sums[std::size_t(comm.rank())])(&x, &x, 1));
    CCL_CHECK(expect(x == 2, "wrong sum"));
    return comm.finalize();
  });
}

TEST_CASE("a forked process that drops its parent's handles leaves the parent's ranks alone") {
  auto comms = make(2, checking());
  std::vector<std::optional<RingSums>> sums(2);
  const auto sum = [&](const Communicator& comm) -> Result<void> {
    auto& mine = sums[std::size_t(comm.rank())];
    if (!mine) {
      CCL_TRY(mine, RingSums::create(comm, Via::socket));
    }
    float x = 1;
    CCL_CHECK((*mine)(&x, &x, 1));
    return expect(x == 2, "wrong sum");
  };
  on_all(comms, sum);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    comms[0].abort("a child's whim");
    const bool silent = comms[1].report().ranks.empty();
    const auto waited = comms[1].wait();
    const bool reported = !waited && waited.error().code == Errc::invalid_usage;
    sums.clear();
    comms.clear();
    ::_exit(silent && reported ? 0 : 1);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  on_all(comms, [&](const Communicator& comm) -> Result<void> {
    for (int i = 0; i < 3; ++i) CCL_CHECK(sum(comm));
    return comm.finalize();
  });
}

TEST_CASE("a rank that is late for a barrier or the end is no error, but for CCL_TIMEOUT") {
  Config config;
  config.check = true;
  config.timeout_s = 0;
  const auto with_late_rank = [&](double init_s) {  // in which ranks must find each other
    config.init_timeout_s = init_s;
    const auto comms = Communicator::create_all(2, config);
    if (!comms) return comms.error().message();
    const auto late = [&] {
      std::this_thread::sleep_for(std::chrono::duration<double>{1.6 * init_s});
    };
    return first_problem(on_ranks(*comms, [&](const Communicator& comm) -> Result<void> {
      CCL_TRY(auto sum, (RingSums::create(comm, Via::loopback)));
      float x = 1;
      if (comm.rank() == 1) late();
      CCL_CHECK(sum(&x, &x, 1));
      if (comm.rank() == 1) late();
      CCL_CHECK(comm.barrier());
      if (comm.rank() == 1) late();
      return comm.finalize();
    }));
  };
  CHECK(with_growing_limit(0.25, with_late_rank) == "");
  config.init_timeout_s = 60;
  config.timeout_s = 0.3;
  on_all(make(2, config), [](const Communicator& comm) -> Result<void> {
    if (comm.rank() == 1) {
      while (comm.status()) std::this_thread::yield();
      return expect(comm.status().error().code == Errc::timed_out, "another failure");
    }
    const auto joined = comm.barrier();
    CCL_CHECK(expect(!joined && joined.error().code == Errc::timed_out, "no time-out"));
    CCL_CHECK(expect(joined.error().peer == 1, joined.error().message()));
    return expect(joined.error().what.find("CCL_TIMEOUT") != std::string::npos,
                  joined.error().what);
  });
}
