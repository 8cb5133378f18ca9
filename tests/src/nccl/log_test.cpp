// Lines of NCCL's log that tools look for, in that of libnccl.
#include <fstream>
#include <iterator>
#include <regex>
#include <string>

#include "nccl/abi/abi.hpp"
#include "support/catch.hpp"
#include "support/environment.hpp"
#include "support/one_thread.hpp"
#include <unistd.h>

using namespace ccl::test;

TEST_CASE("the version and the subsystems that NCCL has are logged") {
  const auto log_of = [](const char* level, const char* parts, const char* transport) {
    const std::string path = "/tmp/ccl.parts." + std::to_string(::getpid());
    {
      const ccl::test::Environment log{{{"NCCL_DEBUG", level},
                                        {"NCCL_DEBUG_SUBSYS", parts},
                                        {"NCCL_DEBUG_FILE", path},
                                        {"CCL_TRANSPORT", transport}}};
      reload_log();
      OneThread all;
      float data[ranks] = {};
      CHECK(all.group([&](int r, ncclComm_t comm) {  // makes connections
        return ncclAllReduce(&data[r], &data[r], 1, ncclFloat, ncclSum, comm, nullptr);
      }) == ncclSuccess);
    }
    reload_log();
    std::ifstream file{path};
    const std::string text{std::istreambuf_iterator<char>{file}, {}};
    ::unlink(path.c_str());
    return text;
  };
  const std::string first = log_of("VERSION", "CALL,INIT,REG", "shm");  // once for the process
  CHECK(first.find("NCCL version 2.32.3") != std::string::npos);
  CHECK(first.find("NCCL_DEBUG_SUBSYS names CALL, REG, which ccl accepts") != std::string::npos);
  CHECK(log_of("INFO", "SHM", "shm").find(" INFO SHM edge ") != std::string::npos);
  CHECK(log_of("TRACE", "ALLOC", "shm").find(" TRACE ALLOC ") != std::string::npos);
  CHECK(log_of("INFO", "PROXY", "socket").find(" INFO PROXY ") != std::string::npos);
  const std::string net = log_of("INFO", "NET", "shm,socket");
  INFO(net);
  CHECK(net.find(" SHM ") == std::string::npos);
  const auto contains = [&](const char* line) { return std::regex_search(net, std::regex{line}); };
  CHECK(contains("NCCL INFO NET/(IB : No device found.|IB : Using .0.[a-z0-9_]+:1/(IB|RoCE))"));
  CHECK(contains("NCCL INFO NET/Socket : Using .0.[^: ]+:[^ ]+<0>"));
  CHECK(contains("NCCL INFO Using network Socket"));
}

TEST_CASE("networks, rings and what made a communicator are logged as NCCL does") {
  const std::string path = "/tmp/ccl.networks." + std::to_string(::getpid());
  {
    const ccl::test::Environment log{{{"NCCL_DEBUG", "INFO"},
                                      {"NCCL_DEBUG_SUBSYS", "INIT,GRAPH,NET"},
                                      {"NCCL_DEBUG_FILE", path},
                                      {"CCL_ALGO", "Ring"},
                                      {"CCL_TRANSPORT", "socket"}}};
    reload_log();
    OneThread all;
    float data[ranks] = {};
    CHECK(all.group([&](int r, ncclComm_t comm) {
      return ncclAllReduce(&data[r], &data[r], 1, ncclFloat, ncclSum, comm, nullptr);
    }) == ncclSuccess);
    ncclComm_t parts[ranks] = {};
    CHECK(all.group([&](int r, ncclComm_t comm) {  // rank 2 has no part
      return ncclCommSplit(comm, r == 2 ? NCCL_SPLIT_NOCOLOR : 1, 0, &parts[r], nullptr);
    }) == ncclSuccess);
    for (ncclComm_t part : parts) CHECK(ncclCommDestroy(part) == ncclSuccess);
    CHECK(all.group([&](int r, ncclComm_t comm) {
      return ncclCommSplit(comm, 0, r, &parts[r], nullptr);
    }) == ncclSuccess);
    CHECK(ncclGroupStart() == ncclSuccess);
    for (ncclComm_t part : parts) CHECK(ncclCommDestroy(part) == ncclSuccess);
    CHECK(ncclGroupEnd() == ncclSuccess);
  }
  reload_log();
  std::ifstream file{path};
  const std::string text{std::istreambuf_iterator<char>{file}, {}};
  ::unlink(path.c_str());
  INFO(text);
  const auto contains = [&](const char* line) { return std::regex_search(text, std::regex{line}); };
  CHECK(contains("NCCL INFO Ring 00 : [0-9]+ -> 0 -> [0-9]+"));
  CHECK(contains("NCCL INFO Connected all rings"));
  for (const char* const stage : {"START", "COMPLETE"}) {
    CHECK(
        contains(("NCCL INFO ncclCommSplit comm 0x[0-9a-f]+ rank 2 nranks 3 .* commId 0x[0-9a-f]+ "
                  "parent 0x[0-9a-f]+ childCount 2 color 0 key 2 - Init " +
                  std::string{stage})
                     .c_str()));
  }
}

TEST_CASE("creations of derived communicators are logged when they begin") {
  const std::string path = "/tmp/ccl.derived." + std::to_string(::getpid());
  {
    const ccl::test::Environment log{{{"NCCL_DEBUG", "INFO"},
                                      {"NCCL_DEBUG_SUBSYS", "INIT"},
                                      {"NCCL_DEBUG_FILE", path},
                                      {"CCL_TRANSPORT", "shm"}}};
    reload_log();
    OneThread all;
    ncclComm_t made[ranks] = {};
    int excluded = 1;
    CHECK(all.group([&](int r, ncclComm_t comm) {
      if (r == excluded) return ncclSuccess;
      return ncclCommShrink(comm, &excluded, 1, &made[r], nullptr, NCCL_SHRINK_DEFAULT);
    }) == ncclSuccess);
    for (ncclComm_t comm : made) CHECK(ncclCommDestroy(comm) == ncclSuccess);
    ncclUniqueId id;
    REQUIRE(ncclCommGetUniqueId(all.comms[0], &id) == ncclSuccess);
    ncclComm_t grown[ranks + 1] = {};
    REQUIRE(ncclGroupStart() == ncclSuccess);
    for (int r = 0; r < ranks; ++r) {
      CHECK(ncclCommGrow(all.comms[std::size_t(r)], ranks + 1, nullptr, -1, &grown[r], nullptr) ==
            ncclSuccess);
    }
    CHECK(ncclCommGrow(nullptr, ranks + 1, &id, ranks, &grown[ranks], nullptr) == ncclSuccess);
    REQUIRE(ncclGroupEnd() == ncclSuccess);
    for (ncclComm_t comm : grown) CHECK(ncclCommDestroy(comm) == ncclSuccess);
  }
  reload_log();
  std::ifstream file{path};
  const std::string text{std::istreambuf_iterator<char>{file}, {}};
  ::unlink(path.c_str());
  INFO(text);
  const auto contains = [&](const char* line) { return std::regex_search(text, std::regex{line}); };
  CHECK(
      contains("NCCL INFO ncclCommShrink comm 0x[0-9a-f]+ rank 1 nranks 2 .* parent 0x[0-9a-f]+ "
               "childCount 1 color 0 key 2 - Init START"));
  CHECK(
      contains("NCCL INFO .Rank 2. ncclCommGrow comm 0x[0-9a-f]+ rank 2 nranks 4 cudaDev -1 "
               "nvmlDev -1 busId 0 commId 0x[0-9a-f]+ - Init START"));
  CHECK(
      contains("NCCL INFO .Rank 3. ncclCommGrow comm 0x[0-9a-f]+ rank 3 nranks 4 cudaDev -1 "
               "nvmlDev -1 busId 0 commId 0x[0-9a-f]+ - Init START"));
  CHECK(
      contains("NCCL INFO ncclCommGrow comm 0x[0-9a-f]+ rank 2 nranks 4 .* parent 0x[0-9a-f]+ "
               "childCount 2 color 0 key 0 - Init COMPLETE"));
}

TEST_CASE("lines that tools look for in NCCL's log are there") {
  const std::string path = "/tmp/ccl.lines." + std::to_string(::getpid());
  const ccl::test::Environment log{{{"NCCL_DEBUG", "INFO"},
                                    {"NCCL_DEBUG_SUBSYS", "INIT,COLL,TUNING"},
                                    {"NCCL_DEBUG_FILE", path},
                                    {"CCL_TRANSPORT", "shm"}}};
  reload_log();
  float data[ranks] = {};
  {
    OneThread all;
    CHECK(all.group([&](int r, ncclComm_t comm) {
      return ncclAllReduce(&data[r], &data[r], 1, ncclFloat, ncclMax, comm, nullptr);
    }) == ncclSuccess);
  }
  std::ifstream file{path};
  const std::string text{std::istreambuf_iterator<char>{file}, {}};
  ::unlink(path.c_str());
  INFO(text);
  const auto contains = [&](const char* line) { return std::regex_search(text, std::regex{line}); };
  const char* const of_rank =
      ":[0-9]+:[0-9]+ .-1. NCCL INFO ncclCommInitAll comm 0x[0-9a-f]+ rank 0 nranks [0-9]+ "
      "cudaDev -1 nvmlDev -1 busId 0 commId 0x[0-9a-f]+ - Init COMPLETE";
  CHECK(contains(of_rank));
  CHECK(
      contains("NCCL INFO .Rank 0. ncclCommInitAll comm 0x[0-9a-f]+ rank 0 nranks [0-9]+ .* - Init "
               "START"));
  CHECK(
      contains("NCCL INFO AllReduce: opCount 0 sendbuff 0x[0-9a-f]+ recvbuff 0x[0-9a-f]+ count 1 "
               "datatype 7 op 2 root 0 comm 0x[0-9a-f]+ .nranks=[0-9]+. stream "));
  CHECK(contains(
      "NCCL INFO AllReduce: 4 Bytes -> Algo [A-Z0-9]+ proto [A-Z0-9]+ channel.Lo..Hi.=.0.."));
  CHECK(contains("NCCL INFO Channel 00/0 : 0.-1. -> 1.-1. via SHM/direct"));
  CHECK(contains("NCCL INFO Channel 00/0[0-9] : +0 +[0-9]"));
  CHECK(contains("NCCL INFO Trees .0. [0-9-]+/[0-9-]+/[0-9-]+->0->[0-9-]+"));
  CHECK(contains("NCCL INFO [1-9][0-9]* coll channels"));
  CHECK_FALSE(contains("NCCL INFO Using network"));  // CCL_TRANSPORT is shm
  CHECK(contains("NCCL INFO comm 0x[0-9a-f]+ rank 0 nranks .* - Destroy COMPLETE"));
}
