#include "nccl/plug_in/profiler.hpp"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "support/catch.hpp"
#include "support/error_matchers.hpp"
#include "support/net_plug_in.hpp"
#include "support/plug_in_lines.hpp"

using namespace ccl::test;

namespace {

constexpr const char* path = CCL_TEST_PROFILER_PLUG_IN;
using Lines = std::vector<std::string>;

bool sum_and_send() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.commName = "named";
  const NcclRanks all{2, &config};
  ncclCollConfig_t tagged = NCCL_COLLCONFIG_INITIALIZER;
  tagged.userProfilerTag = 42;
  float in[2] = {1, 2}, out[2] = {};
  bool good = true;
  for (int call = 0; call < 2; ++call) {
    good = good && all.group([&](int r, ncclComm_t comm) {
      return ncclAllReduceConfig(&in[r], &out[r], 1, ncclFloat, ncclSum, comm, nullptr, &tagged);
    }) == ncclSuccess;
  }
  good = good && out[0] == 3 && out[1] == 3;
  good = good && all.group([&](int r, ncclComm_t comm) {
    return ncclBroadcast(&in[r], &out[r], 1, ncclInt32, 1, comm, nullptr);
  }) == ncclSuccess;
  return good && all.group([&](int r, ncclComm_t comm) {
    return r == 0 ? ncclSend(in, 2, ncclInt8, 1, comm, nullptr)
                  : ncclRecv(out, 2, ncclInt8, 0, comm, nullptr);
  }) == ncclSuccess;
}

}  // namespace

TEST_CASE("a profiler plug-in gets events of groups, calls, what runs, and its time") {
  const std::string all = plug_in_lines(path, {{"NCCL_PROFILER_PLUGIN", path}}, sum_and_send);
  INFO(all);
  const Lines lines = lines_of(all, 0);
  REQUIRE(lines.size() == 1 + 3 * 9 + 9 + 1);
  CHECK(lines[0] == "init named 1/2");
  const auto sum = [&](std::size_t at, const char* number) {
    CHECK(lines[at] == "start group");
    CHECK(lines[at + 1] == "start api AllReduce tag 42 in 256");
    CHECK(mentions(
        lines[at + 2],
        ("start coll AllReduce " + std::string{number} + " 1 ncclFloat32 root 0 ").c_str()));
    CHECK(mentions(lines[at + 2], " in 512"));
    CHECK(lines[at + 3] == "start channel in 2");
    CHECK(lines[at + 4] == "timed");
    CHECK(Lines(lines.begin() + long(at) + 5, lines.begin() + long(at) + 9) ==
          Lines{"stop 64", "stop 2", "stop 512", "stop 256"});
  };
  sum(1, "0");
  sum(10, "1");
  CHECK(mentions(lines[21], "start coll Broadcast 0 1 ncclInt32 root 1 "));
  CHECK(lines[29] == "start api Send in 256");
  CHECK(lines[30] == "start p2p Send 2 ncclInt8 peer 1 in 1024");
  CHECK(lines.back().starts_with("end, open "));
  CHECK(all.find("1 end, open 0\n") + all.find("0 end, open 0\n") != std::string::npos);
  CHECK(lines_of(all, 1).size() == lines.size());
}

TEST_CASE("a profiler plug-in gets events of what proxies move for a call") {
  const std::string all = plug_in_lines(path,
                                        {{"NCCL_PROFILER_PLUGIN", path},
                                         {"CCL_TEST_PROFILER", "proxies"},
                                         {"CCL_TRANSPORT", "socket"}},
                                        sum_and_send);
  INFO(all);
  long received = 0;
  for (const int rank : {0, 1}) {
    const Lines lines = lines_of(all, rank);
    const auto count = [&](const std::string& begin) {
      return std::ranges::count_if(lines, [&](const auto& one) { return one.starts_with(begin); });
    };
    const std::string peer = std::to_string(1 - rank);
    // Two sums go both ways, the broadcast from rank 1 and the message from rank 0.
    CHECK(count("start sends to " + peer + " in 2") == (rank == 1 ? 3 : 2));
    CHECK(count("start sends to " + peer + " in 4") == (rank == 0 ? 1 : 0));
    received += count("start receives from " + peer + " in 2");
    CHECK(count("start step 0 in 8") >= 2);
    const auto steps = count("start step ");
    CHECK(count("stop 16") == steps);
    CHECK(count("stop 8") == count("state 19 of 8"));
    CHECK(count("state 20 of 16") + count("state 10 of 16") == steps);
    CHECK(count("state 9 of 16 with bytes") == count("state 20 of 16"));
    CHECK(count("state 11 of 16 with bytes") == count("state 10 of 16"));
    CHECK(count("start something else") == 0);
  }
  CHECK(received >= 2);  // what comes before the call has no event, which one rank's may do
  CHECK_FALSE(mentions(all, "that is over"));
  CHECK_FALSE(mentions(all, "nothing"));
  CHECK(all.find("1 end, open 0\n") + all.find("0 end, open 0\n") != std::string::npos);
}

TEST_CASE("a profiler plug-in gets events of what the proxy's thread does, and no others") {
  const auto sum_and_rest = [] {
    const NcclRanks all{2};
    float in[2] = {1, 2}, out[2] = {};
    const auto done = all.group([&](int r, ncclComm_t comm) {
      return ncclAllReduce(&in[r], &out[r], 1, ncclFloat, ncclSum, comm, nullptr);
    });
    // Both proxies sleep when they have nothing to do.
    const bool sleep = wait_until(
        [] {
          const std::string lines = lines_of_plug_in(path);
          return mentions(lines, "0 state 15 of 32") && mentions(lines, "1 state 15 of 32");
        },
        60);
    return done == ncclSuccess && sleep;
  };
  const std::string all = plug_in_lines(path,
                                        {{"NCCL_PROFILER_PLUGIN", path},
                                         {"CCL_TEST_PROFILER", "control"},
                                         {"CCL_TRANSPORT", "socket"}},
                                        sum_and_rest);
  INFO(all);
  for (const int rank : {0, 1}) {
    const Lines lines = lines_of(all, rank);
    const auto count = [&](const char* begin) {
      return std::ranges::count_if(lines, [&](const auto& one) { return one.starts_with(begin); });
    };
    CHECK(count("start control") > 0);
    CHECK(count("start ") == count("start control"));  // no parent either
    CHECK(count("stop ") == count("start "));
    CHECK(count("stop 32") == count("start "));
    const auto sleeps = count("state 15 of 32, tasks 0"),
               additions = count("state 17 of 32, tasks 0");
    CHECK(sleeps > 0);
    // The end of the communicator may wake it no more.
    CHECK(sleeps - count("state 16 of 32, tasks 0") <= 1);
    CHECK(additions >= 2);  // from the other rank and to it
    CHECK(count("state 18 of 32, tasks 1") == additions);
    // In turns: it is idle before it is active again.
    const auto idle = count("state 13 of 32, tasks 0"), active = count("state 14 of 32, tasks 0");
    CHECK(std::abs(idle - active) <= 1);
    CHECK(count("start ") == sleeps + additions + idle + active);
  }
  CHECK(all.find("1 end, open 0\n") + all.find("0 end, open 0\n") != std::string::npos);
}

TEST_CASE("a profiler plug-in gets events of network plug-ins in the steps that they send") {
  for (const char* const version : {"10", "11", "12"}) {
    const std::string net = std::string{CCL_TEST_NET} + version + ".so";
    const std::string all = plug_in_lines(path,
                                          {{"NCCL_PROFILER_PLUGIN", path},
                                           {"CCL_TEST_PROFILER", "net"},
                                           {"CCL_TRANSPORT", "plugin"},
                                           {"NCCL_NET_PLUGIN", net}},
                                          sum_and_send);
    INFO(all);
    for (const int rank : {0, 1}) {
      const Lines lines = lines_of(all, rank);
      const auto count = [&](const std::string& begin) {
        return std::ranges::count_if(lines,
                                     [&](const auto& one) { return one.starts_with(begin); });
      };
      const auto sent = count("state 20 of 16");  // steps
      CHECK(sent > 0);
      CHECK(count("start net 458753 says 1 in 16") == sent);
      CHECK(count("start net ") == sent);
      CHECK(count("state 21 of 128 says 2") == sent);
      CHECK(count("stop 128") == sent);
    }
    CHECK_FALSE(mentions(all, "that is over"));
    CHECK(all.find("1 end, open 0\n") + all.find("0 end, open 0\n") != std::string::npos);
  }
}

TEST_CASE("events of a network plug-in end with a call that fails") {
  const std::string path_of_net = std::string{CCL_TEST_NET} + "12.so";
  const auto fails = [] {
    const TestNet net{12};
    net.fail("isend", 7, 6);  // ncclRemoteError, after some steps
    NcclRanks all{2};
    std::vector<float> in(100'000, 1), out[2]{in, in};
    bool good = true;
    for (int call = 0; call < 20 && good; ++call) {
      good = all.group([&](int r, ncclComm_t comm) {
        return ncclAllReduce(in.data(), out[r].data(), in.size(), ncclFloat, ncclSum, comm,
                             nullptr);
      }) == ncclSuccess;
    }
    for (ncclComm_t& comm : all.comms) good = ncclCommAbort(std::exchange(comm, nullptr)) || good;
    return !good;
  };
  const std::string all = plug_in_lines(path,
                                        {{"NCCL_PROFILER_PLUGIN", path},
                                         {"CCL_TEST_PROFILER", "net"},
                                         {"CCL_TRANSPORT", "plugin"},
                                         {"NCCL_NET_PLUGIN", path_of_net}},
                                        fails);
  INFO(all);
  for (const int rank : {0, 1}) {
    const Lines lines = lines_of(all, rank);
    const auto count = [&](const char* begin) {
      return std::ranges::count_if(lines, [&](const auto& one) { return one.starts_with(begin); });
    };
    CHECK(count("start net ") == count("stop 128"));
    CHECK(count("start ") == count("stop "));
  }
  CHECK(mentions(all, "start net"));
  CHECK(all.find("1 end, open 0\n") + all.find("0 end, open 0\n") != std::string::npos);
}

TEST_CASE("a network plug-in that knows no events carries the wires") {
  const std::string all = plug_in_lines(path,
                                        {{"NCCL_PROFILER_PLUGIN", path},
                                         {"CCL_TEST_PROFILER", "net"},
                                         {"CCL_TRANSPORT", "plugin"},
                                         {"NCCL_NET_PLUGIN", std::string{CCL_TEST_NET} + "9.so"}},
                                        sum_and_send);
  INFO(all);
  CHECK(mentions(all, "state 20 of 16"));
  CHECK_FALSE(mentions(all, "start net"));
}

TEST_CASE("each channel of a CPU rank's call has an event with its own times") {
  constexpr int elements = 1 << 20;
  const auto sums = [] {
    const NcclRanks all{2};
    std::vector<float> in(elements, 1), out[2]{in, in};
    bool good = true;
    for (int call = 0; call < 3; ++call) {
      good = good && all.group([&](int r, ncclComm_t comm) {
        return ncclAllReduce(in.data(), out[r].data(), elements, ncclFloat, ncclSum, comm, nullptr);
      }) == ncclSuccess;
    }
    return good && out[0][elements - 1] == 2;
  };
  const std::string all = plug_in_lines(path,
                                        {{"NCCL_PROFILER_PLUGIN", path},
                                         {"CCL_TRANSPORT", "socket"},
                                         {"NCCL_ALGO", "Ring"},
                                         {"NCCL_MIN_CTAS", "3"},
                                         {"NCCL_MAX_CTAS", "3"}},
                                        sums);
  INFO(all);
  for (const int rank : {0, 1}) {
    const Lines lines = lines_of(all, rank);
    CHECK(std::ranges::count(lines, "start channel in 2") == 9);
    CHECK(std::ranges::count(lines, "timed") == 9);
    CHECK(std::ranges::count(lines, "stop 64") == 9);
    for (const char* const call : {"0", "1", "2"}) {
      const auto line = std::string{"call AllReduce "} + call + ": 3/3 channels at 3 times";
      CHECK(std::ranges::count(lines, line) == 1);
    }
  }
  CHECK(all.find("1 end, open 0\n") + all.find("0 end, open 0\n") != std::string::npos);
}

TEST_CASE("algorithms and protocols have NCCL's names") {
  const std::string all = plug_in_lines(
      path, {{"NCCL_PROFILER_PLUGIN", path}, {"NCCL_ALGO", "allreduce:tree"}}, sum_and_send);
  INFO(all);
  const auto at = all.find("coll AllReduce 0 1 ncclFloat32 root 0 TREE ");
  REQUIRE(at != all.npos);
  const auto line = all.substr(at, all.find('\n', at) - at);
  CHECK((mentions(line, " LL in 512") || mentions(line, " SIMPLE in 512")));
}

TEST_CASE("a profiler plug-in that refuses fails no call") {
  const auto with = [&](const char* what) {
    return plug_in_lines(path, {{"NCCL_PROFILER_PLUGIN", path}, {"CCL_TEST_PROFILER", what}},
                         sum_and_send);
  };
  CHECK(with("init").empty());
  CHECK(with("context").empty());  // its `finalize` would fail without a context
  const std::string beginning_and_end = with("start");
  CHECK(lines_of(beginning_and_end, 1).size() == 2);
  CHECK(lines_of(with("events"), 0) == lines_of(beginning_and_end, 0));
  CHECK(mentions(with("events"), "0 init named 1/2\n"));
  CHECK_FALSE(mentions(with("events"), "start"));
}

TEST_CASE("without a plug-in of that name there is none") {
  CHECK(plug_in_lines(path, {{"NCCL_PROFILER_PLUGIN", "none"}}, sum_and_send) == "not loaded");
  CHECK(plug_in_lines(path, {{"NCCL_PROFILER_PLUGIN", "no-such"}}, sum_and_send) == "not loaded");
  CHECK(plug_in_lines(path, {}, sum_and_send) == "not loaded");
  // The first of a list that can be loaded.
  CHECK(mentions(
      plug_in_lines(path, {{"NCCL_PROFILER_PLUGIN", std::string{"no-such,"} + path}}, sum_and_send),
      "init"));
}
