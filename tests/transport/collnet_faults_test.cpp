// CollNet where a plug-in is missing, refuses, fails or never returns.
#include <ccl/algo/collnet_chain.hpp>
#include <ccl/algo/collnet_direct.hpp>
#include <ccl/collective/all_gather.hpp>
#include <ccl/collective/all_reduce.hpp>
#include <ccl/collective/reduce_scatter.hpp>
#include <ccl/proto/simple.hpp>
#include <ccl/transport/collnet.hpp>

#include <fmt/format.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/collnet_job.hpp"
#include "support/error_matchers.hpp"
#include <unistd.h>

using namespace ccl;
using namespace ccl::test;

namespace {

using Sums = Collective<AllReduce, CollNetChain, Simple, CollNetTransport>;

/// A sum of many steps, so that no rank is through when another fails.
Answer sum_of_ones(const Communicator& comm) {
  Plan plan;
  plan.slot_count = 4;
  plan.slot_bytes = 4096;
  CCL_TRY(const auto call, Sums::create(comm, plan));
  std::vector<int> data(40'000, 1);
  CCL_CHECK(call(data.data(), data.data(), Index(data.size()), Sum{}));
  for (const int value : data) {
    if (value != comm.ranks()) return fail(Errc::internal, "wrong data");
  }
  return std::string{"well"};
}

void check_contain(const std::vector<std::string>& said, const std::string& part) {
  for (std::size_t r = 0; r < said.size(); ++r) {
    INFO("rank " << r << ": " << said[r]);
    CHECK(said[r].find(part) != std::string::npos);
  }
}

/// Rank 1 logs to `path`.
std::function<Variables(int)> with_log(std::function<Variables(int)> more, std::string path) {
  ::unlink(path.c_str());
  return [more = std::move(more), path = std::move(path)](int r) {
    auto all = more(r);
    if (r == 1) all.insert(all.end(), {{"CCL_DEBUG_FILE", path}, {"CCL_DEBUG", "INFO"}});
    return all;
  };
}
std::string text_of(const std::string& path) {
  std::ifstream file{path};
  std::string all{std::istreambuf_iterator<char>{file}, {}};
  ::unlink(path.c_str());
  return all;
}

CollNetJob faulty_job(std::vector<int> hosts, int rank, std::string fault) {
  CollNetJob job{std::move(hosts)};
  job.plug_in = CCL_TEST_COLLNET_V12;
  job.more = [rank, fault = std::move(fault)](int r) {
    return r == rank ? Variables{{"COLLNET_FAULT", fault}} : Variables{};
  };
  return job;
}

}  // namespace

TEST_CASE(
    "CollNet: a function that fails while the network is set up is named, with code and rank") {
  // One job for all: a creation that fails leaves the communicator well.
  CollNetJob job{{2, 1}};
  job.plug_in = CCL_TEST_COLLNET_V12;
  job.more = [](int) { return Variables{{"CCL_INIT_TIMEOUT", "3"}}; };
  const std::vector<std::string> functions{"init",          "devices", "getProperties",
                                           "reduceSupport", "listen",  "regMr"};
  const auto said = job.run([&](const Communicator& comm) -> Answer {
    std::string wrong;
    for (const std::string& function : functions) {
      if (comm.rank() == 0) ::setenv("COLLNET_FAULT", (function + ":0:3").c_str(), 1);
      const auto call = Sums::create(comm);
      ::unsetenv("COLLNET_FAULT");
      const std::string text = call ? "no error" : call.error().message();
      const std::string want = "the CollNet plug-in Faulty (" CCL_TEST_COLLNET_V12
                               ", version 12) failed in " +
                               function + " with 3 (internal error)";
      const bool names = text.find(want) != text.npos && text.find("network: ") != text.npos &&
                         (comm.rank() == 0 || text.find("by rank 0") != text.npos);
      if (!names) wrong += text + "; ";
    }
    CCL_TRY(const std::string after, sum_of_ones(comm));
    return wrong + after;
  });
  for (const std::string& one : said) CHECK(one == "well");
}

TEST_CASE("CollNet: numbers of a plug-in that make no sense are errors on all ranks") {
  const std::vector<std::pair<const char*, const char*>> cases{
      {"devices=0", "has no device on this host"},
      {"devices=-5", "has no device on this host"},
      {"max_reduced_bytes=0", "reduces at most 0 bytes at once on its device 0"},
      {"max_reduced_bytes=-1", "reduces at most 18446744073709551615 bytes at once"},
      {"memory_kinds=0", "does not access host memory on its device 0"},
      {"devices=2147483647", "no error"}};  // it uses 64, and keeps the network from here on
  CollNetJob job{{2, 1}};
  job.plug_in = CCL_TEST_COLLNET_V12;
  job.more = [](int) { return Variables{{"CCL_INIT_TIMEOUT", "3"}}; };
  const auto said = job.run([&](const Communicator& comm) -> Answer {
    std::string wrong;
    for (const auto& [number, why] : cases) {
      if (comm.rank() == 0) ::setenv("COLLNET_SAYS", number, 1);
      const auto call = Sums::create(comm);
      ::unsetenv("COLLNET_SAYS");
      const std::string text = call ? "no error" : call.error().message();
      if (text.find(why) == text.npos) wrong += std::string{number} + ": " + text + "; ";
    }
    CCL_TRY(const std::string after, sum_of_ones(comm));
    return wrong + after;
  });
  for (const std::string& one : said) CHECK(one == "well");
}

TEST_CASE("CollNet: a group that does not connect ends the creation on all ranks") {
  auto job = faulty_job({1, 1}, 1, "connect:0:6");
  const auto more = job.more;
  job.more = [more](int r) {
    auto all = more(r);
    all.emplace_back("CCL_INIT_TIMEOUT", "2");
    return all;
  };
  const auto said = job.run(sum_of_ones);
  CHECK(said[1].find("failed in connect with 6 (remote error)") != std::string::npos);
  CHECK(said[0].find("has not returned from connect for 1 s") != std::string::npos);
  CHECK(said[0].find("timed_out") != std::string::npos);
}

TEST_CASE("CollNet: a function that never returns ends at the deadline") {
  auto job = faulty_job({1, 1}, 1, "listen:0:hangs");
  const auto more = job.more;
  job.more = [more](int r) {
    auto all = more(r);
    all.emplace_back("CCL_INIT_TIMEOUT", "2");
    return all;
  };
  check_contain(job.run(sum_of_ones), "has not returned from listen for 1 s");
}

TEST_CASE("CollNet: an operation that fails ends the call on all ranks") {
  for (const std::string function : {"iallreduce", "test"}) {
    const auto said = faulty_job({2, 1}, 2, function + ":9:3").run(sum_of_ones, false);
    check_contain(said, "the CollNet plug-in Faulty (" CCL_TEST_COLLNET_V12
                        ", version 12) failed in " +
                            function + " with 3 (internal error)");
    check_contain(said, "rank 2 on ");
    CHECK(said[2].find("network: ") != std::string::npos);
    CHECK(said[2].find("transport collnet") != std::string::npos);
  }
}

TEST_CASE("CollNet: a result that never comes ends the call at the deadline") {
  auto job = faulty_job({1, 1}, 1, "test:0:never");
  job.timeout_s = 1;
  const auto said = job.run(sum_of_ones, false);
  check_contain(said, "timed_out");
  check_contain(said, "the network that reduces between hosts");
}

TEST_CASE("CollNet: an operation that never returns ends the call within its limit") {
  for (const std::string function : {"iallreduce", "test"}) {
    INFO(function);
    auto job = faulty_job({2, 1}, 2, function + ":3:hangs");
    job.timeout_s = 6;
    const auto begin = Clock::now();
    const auto said = job.run(sum_of_ones, false);
    CHECK(seconds(Clock::now() - begin) < 30);
    CHECK(said[2].find("timed_out: the CollNet plug-in") != std::string::npos);
    check_contain(said, "the CollNet plug-in Faulty (" CCL_TEST_COLLNET_V12
                        ", version 12) has not returned from " +
                            function + " for ");
    check_contain(said, "rank 2 on ");
  }
}

TEST_CASE("CollNet: an abort ends a call whose operation never returns") {
  for (const std::string function : {"iallreduce", "test"}) {
    INFO(function);
    auto job = faulty_job({1, 1}, 1, function + ":3:hangs");
    job.timeout_s = 0;
    const auto begin = Clock::now();
    const auto said = job.run(
        [](const Communicator& comm) -> Answer {
          std::thread aborts{[&comm] {
            std::this_thread::sleep_for(std::chrono::milliseconds{300});
            if (comm.rank() == 0) comm.abort();
          }};
          const Answer sum = sum_of_ones(comm);
          aborts.join();
          return sum;
        },
        false);
    CHECK(seconds(Clock::now() - begin) < 30);
    check_contain(said, "aborted: ");
  }
}

TEST_CASE("CollNet: a gather or scatter that never returns ends the call within its limit") {
  for (const std::string function : {"iallgather", "ireducescatter"}) {
    INFO(function);
    auto job = faulty_job({1, 1}, 1, function + ":1:hangs");
    job.timeout_s = 6;
    const auto said = job.run(
        [](const Communicator& comm) -> Answer {
          Plan plan;
          plan.slot_count = 4;
          plan.slot_bytes = 4096;
          using Gathers = Collective<AllGather, CollNetDirect, Simple, CollNetTransport>;
          using Scatters = Collective<ReduceScatter, CollNetDirect, Simple, CollNetTransport>;
          CCL_TRY(const auto gathers, Gathers::create(comm, plan));
          CCL_TRY(const auto scatters, Scatters::create(comm, plan));
          std::vector<int> one(20'000, 1), all(40'000, 1);
          CCL_CHECK(gathers(one.data(), all.data(), Index(one.size())));
          CCL_CHECK(scatters(all.data(), one.data(), Index(one.size()), Sum{}));
          return std::string{"well"};
        },
        false);
    check_contain(said, "version 12) has not returned from " + function + " for ");
  }
}

TEST_CASE("CollNet: a function that fails at the end is a line of the log") {
  for (const std::string function : {"deregMr", "closeColl", "closeListen", "finalize"}) {
    INFO(function);
    const std::string path = fmt::format("/tmp/ccl.collnet_end.{}", ::getpid());
    auto job = faulty_job({1, 1}, 1, function + ":0:3");
    job.more = with_log(job.more, path);
    check_contain(job.run(sum_of_ones), "well");
    CHECK(text_of(path).find("the CollNet plug-in Faulty (" CCL_TEST_COLLNET_V12
                             ", version 12) failed in " +
                             function + " with 3 (internal error)") != std::string::npos);
  }
}

TEST_CASE("CollNet: a function that never returns at the end is left to itself") {
  for (const std::string function : {"deregMr", "closeColl", "closeListen", "finalize"}) {
    INFO(function);
    const std::string path = fmt::format("/tmp/ccl.collnet_end.{}", ::getpid());
    auto job = faulty_job({1, 1}, 1, function + ":0:hangs");
    job.more = with_log(job.more, path);
    const auto begin = Clock::now();
    check_contain(job.run(sum_of_ones), "well");
    CHECK(seconds(Clock::now() - begin) < 40);
    const std::string log = text_of(path);
    CHECK((log.find("has not closed a group for 10 s") != log.npos ||
           log.find("has not returned from finalize for 10 s") != log.npos));
  }
}

TEST_CASE("CollNet: a type that one rank's network refuses is refused on all ranks") {
  CollNetJob job{{1, 2}};
  job.plug_in = CCL_TEST_COLLNET_V12;
  job.more = [](int r) { return r == 2 ? Variables{{"COLLNET_REFUSES", "7"}} : Variables{}; };
  const auto said = job.run([](const Communicator& comm) -> Answer {
    CCL_TRY(const std::string well, sum_of_ones(comm));
    CCL_TRY(const auto call, Sums::create(comm));
    std::vector<float> data(10);
    const auto refused = call(data.data(), data.data(), 10, Max{});
    return well + (refused ? "no error" : refused.error().message());
  });
  check_contain(said, "wellrank");
  check_contain(said,
                "not_supported: all_reduce/CollNetChain/Simple/collnet cannot reduce this (the "
                "CollNet plug-in Faulty (");
  check_contain(said, "makes no maxima of float)");
}

TEST_CASE("CollNet: what is missing or differs is named on all ranks") {
  const auto with = [](Variables of_rank_1, std::vector<int> hosts = {1, 1}) {
    CollNetJob job{std::move(hosts)};
    job.more = [of_rank_1](int r) { return r == 1 ? of_rank_1 : Variables{}; };
    return job.run(sum_of_ones);
  };
  check_contain(with({{"CCL_COLLNET_ENABLE", "0"}}),
                "CollNet is off (CCL_COLLNET_ENABLE is not 1)");
  check_contain(with({{"CCL_NET_PLUGIN", "none"}}), "CCL_NET_PLUGIN is none");
  check_contain(with({{"CCL_NET_PLUGIN", "absent,libc.so.6"}}), "absent: ");
  check_contain(with({{"CCL_NET_PLUGIN", "libc.so.6"}}), "libc.so.6: it has none of ncclCollNet");
  const auto different = with({{"CCL_NET_PLUGIN", CCL_TEST_COLLNET_V11}});
  check_contain(different, "mismatch: rank ");
  check_contain(different, "Eleven of version 11");
  check_contain(with({}, {2}),
                "CollNet reduces between hosts (there are 1, and "
                "CCL_COLLNET_NODE_THRESHOLD is 2)");
}
