#include <ccl/algo/pairwise.hpp>
#include <ccl/collective/all_to_all_v.hpp>
#include <ccl/collective/send_recv.hpp>
#include <ccl/comm/log.hpp>
#include <ccl/detail/choose/auto_collective.hpp>
#include <ccl/detail/choose/tuning.hpp>
#include <ccl/proto/ll.hpp>
#include <ccl/proto/simple.hpp>
#include <ccl/transport/loopback.hpp>

#include <cstdio>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "support/catch.hpp"
#include "support/environment.hpp"
#include "support/on_ranks.hpp"
#include <unistd.h>

using namespace ccl;
using namespace ccl::test;

namespace {

/// A table by which LL is the faster one up to a kilobyte of message, and Simple beyond.
class Table {
 public:
  explicit Table(int ranks) {
    detail::TuningTable table;
    table.machine = "a test";
    for (const char* op : {"send_recv", "all_to_all_v"}) {
      const detail::TuningCase here{op, ranks, 1, "shm", 0, 0};
      const Index bytes = std::string{op} == "send_recv" ? 1 : ranks;
      table.rows.push_back({here, 64 * bytes, {{"Pairwise/LL", 1}, {"Pairwise/Simple", 2}}});
      table.rows.push_back({here, 65536 * bytes, {{"Pairwise/LL", 900}, {"Pairwise/Simple", 3}}});
    }
    std::ofstream{path_} << table.json();
  }
  ~Table() { std::remove(path_.c_str()); }
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_ = "auto_messages_test." + std::to_string(::getpid());
};

using Own = AutoOf<Candidate<Pairwise, LL>, Candidate<Pairwise, Simple>>;
template <class Op>
using Two = Collective<Op, Own, Auto, LoopbackTransport>;

void with_ranks(int ranks, Config config,
                const std::function<Result<void>(int, const Communicator&)>& body) {
  config.timeout_s = 30;
  check_well(
      on_ranks(ranks, config, [&](const Communicator& comm) { return body(comm.rank(), comm); }));
}
Result<void> expect(bool good, const char* what) {
  if (good) return {};
  return fail(Errc::internal, what);
}
int mark(int from, int to, Index i) {
  return from * 1000 + to * 100 + int(i % 97);
}

}  // namespace

TEST_CASE("Auto: messages of one call, each by the candidate for its size") {
  const Table table{3};
  Config config;
  config.tune_file = table.path();
  with_ranks(3, config, [](int rank, const Communicator& comm) -> Result<void> {
    CCL_TRY(const auto pass, Two<SendRecv>::create(comm));
    CCL_CHECK(expect(pass.compositions().size() == 2, "two candidates"));
    CCL_CHECK(expect(pass.plan(100).composition == "Pairwise/LL", "small ones"));
    CCL_CHECK(expect(pass.plan(1 << 20).composition == "Pairwise/Simple", "large ones"));
    const int next = (rank + 1) % 3, last = (rank + 2) % 3;
    // Rank 0 sends little and receives much, so ranks run different compositions.
    const auto count = [](int from) { return from == 0 ? Index{5} : Index{60000} * from; };
    for (int turn = 0; turn < 3; ++turn) {
      std::vector<int> in, out(std::size_t(count(last)), -1);
      for (Index i = 0; i < count(rank); ++i) in.push_back(mark(rank, next, i));
      CCL_CHECK(pass(in.data(), count(rank), next, out.data(), count(last), last));
      for (Index i = 0; i < count(last); ++i) {
        CCL_CHECK(expect(out[std::size_t(i)] == mark(last, rank, i), "send_recv"));
      }
      // Both sizes to one peer, in an order that does not matter between sizes.
      std::vector<int> small(3, -1), large(40000, -1), few(3, rank), many(40000, rank + 10);
      using P = Two<SendRecv>;
      CCL_CHECK(pass.group(
          {P::send_message(many.data(), 40000, next), P::recv_message(small.data(), 3, last),
           P::send_message(few.data(), 3, next), P::recv_message(large.data(), 40000, last)}));
      CCL_CHECK(expect(small[2] == last && large[39999] == last + 10, "group"));
      CCL_CHECK(pass.group({}));
    }

    CCL_TRY(const auto all_to_all_v, Two<AllToAllV>::create(comm));
    const auto size = [](int from, int to) {
      return (from + 2 * to) % 3 == 0 ? Index{0} : from < to ? Index{7} : Index{50000};
    };
    std::vector<Index> counts[2], offsets[2];
    Index total[2] = {0, 0};
    for (int p = 0; p < 3; ++p) {
      for (int side = 0; side < 2; ++side) {
        counts[side].push_back(side == 0 ? size(rank, p) : size(p, rank));
        offsets[side].push_back(total[side]);
        total[side] += counts[side].back();
      }
    }
    std::vector<int> from(std::size_t(total[0] + 1)), to(std::size_t(total[1] + 1), -1);
    for (int p = 0; p < 3; ++p) {
      for (Index i = 0; i < counts[0][std::size_t(p)]; ++i) {
        from[std::size_t(offsets[0][std::size_t(p)] + i)] = mark(rank, p, i);
      }
    }
    CCL_CHECK(all_to_all_v(from.data(), counts[0], offsets[0], to.data(), counts[1], offsets[1]));
    for (int p = 0; p < 3; ++p) {
      for (Index i = 0; i < counts[1][std::size_t(p)]; ++i) {
        CCL_CHECK(expect(to[std::size_t(offsets[1][std::size_t(p)] + i)] == mark(p, rank, i),
                         "all_to_all_v"));
      }
    }
    return expect(to.back() == -1, "an element past the end");
  });
}

TEST_CASE("Auto: messages of two candidates that overlap are refused as those of one are") {
  const Table table{2};
  Config config;
  config.tune_file = table.path();
  with_ranks(2, config, [](int rank, const Communicator& comm) -> Result<void> {
    CCL_TRY(const auto pass, Two<SendRecv>::create(comm));
    CCL_TRY(const auto all_to_all_v, Two<AllToAllV>::create(comm));
    const auto refused = [](const Result<void>& result) {
      return expect(!result && result.error().what.find("overlap") != std::string::npos,
                    result ? "it was fine" : result.error().what.c_str());
    };
    std::vector<int> x(120000, rank);
    using P = Two<SendRecv>;
    const int peer = 1 - rank;
    // A small message arrives where a large one leaves from, before the large one has left.
    CCL_CHECK(refused(
        pass.group({P::send_message(x.data(), 50000, peer), P::recv_message(&x[7], 3, peer)})));
    std::vector<Index> out{3, 3}, in{3, 3}, from{0, 0}, to{60000, 60000};
    out[std::size_t(peer)] = 50000;
    from[std::size_t(rank)] = 110000;
    to[std::size_t(peer)] = 7;
    CCL_CHECK(refused(all_to_all_v(x.data(), out, from, x.data(), in, to)));
    return comm.barrier();
  });
}

TEST_CASE("Auto: where calls are checked, one candidate does for all messages") {
  const Table table{2};
  ::setenv("CCL_CHECK", "1", 1);
  Config config;
  config.tune_file = table.path();
  with_ranks(2, config, [](int rank, const Communicator& comm) -> Result<void> {
    CCL_TRY(const auto pass, Two<SendRecv>::create(comm));
    CCL_CHECK(expect(pass.compositions().size() == 1, "one candidate"));
    const Index mine = rank == 0 ? 3 : 50000, theirs = rank == 0 ? 50000 : 3;
    std::vector<int> in(std::size_t(mine), rank), out(std::size_t(theirs), -1);
    CCL_CHECK(pass(in.data(), mine, 1 - rank, out.data(), theirs, 1 - rank));
    return expect(out.back() == 1 - rank, "send_recv");
  });
  ::unsetenv("CCL_CHECK");
}

TEST_CASE("Auto: ranks of which some compare calls are told that, and no difference of programs") {
  const Table table{2};
  const auto id = create_unique_id();
  REQUIRE(id);
  std::vector<std::string> said(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      Config config;
      config.device = Config::cpu;
      config.tune_file = table.path();
      config.check = rank == 1;
      const auto comm = Communicator::create(*id, rank, 2, config);
      if (!comm) return;
      const auto refused = Two<SendRecv>::create(*comm);
      said[std::size_t(rank)] = refused ? "created" : refused.error().what;
    });
  }
  for (auto& thread : threads) thread.join();
  for (const std::string& what : said) {
    INFO(what);
    CHECK(what.find("(CCL_CHECK or Config::check differs)") != std::string::npos);
  }
}

TEST_CASE("Auto: a table for other ranks gives a warning") {
  const std::string log = "auto_messages_test." + std::to_string(::getpid()) + ".log";
  std::optional<test::Environment> file{std::in_place, "CCL_DEBUG_FILE", log};
  log_reload();
  const Table table{3};
  Config config;
  config.tune_file = table.path();
  const auto create = [](int, const Communicator& comm) -> Result<void> {
    CCL_CHECK(Two<SendRecv>::create(comm));
    return {};
  };
  const auto warnings = [&] {
    std::ifstream in{log};
    int n = 0;
    for (std::string line; std::getline(in, line);) {
      n += int(line.find("send_recv goes by the model: no row of the table of measurements (of "
                         "a test) is of 2 ranks on 1 hosts over shm") != line.npos);
    }
    return n;
  };
  with_ranks(3, config, create);
  CHECK(warnings() == 0);
  with_ranks(2, config, create);
  CHECK(warnings() == 1);  // of one rank
  file.reset();
  log_reload();
  std::remove(log.c_str());
}
