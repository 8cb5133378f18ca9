// Wrong use of the collectives and messages: each is refused by its arguments, and says why.
#include <functional>
#include <string>
#include <vector>

#include "support/nccl_ranks.hpp"

using namespace ccl::test;

namespace {

/// Arguments of a call, right ones until a test changes one.
struct Given {
  void* send;
  void* recv;
  ncclComm_t comm;
  std::size_t count = 1;
  ncclDataType_t type = ncclFloat;
  ncclRedOp_t op = ncclSum;
  int root = 0;
  const ncclCollConfig_t* config = nullptr;
};

struct Function {
  const char* name;
  bool sends, receives;  // buffers that every rank has
  bool reduces, rooted, configured;
  std::function<ncclResult_t(const Given&)> call;
};

std::vector<Function> functions() {
  using G = const Given&;
  const auto none = cudaStream_t{};
  return {
      {"ncclReduceScatter", true, true, true, false, false,
       [=](G g) { return ncclReduceScatter(g.send, g.recv, g.count, g.type, g.op, g.comm, none); }},
      {"ncclBcast", false, true, false, true, false,
       [=](G g) { return ncclBcast(g.recv, g.count, g.type, g.root, g.comm, none); }},
      {"ncclAlltoAll", true, true, false, false, false,
       [=](G g) { return ncclAlltoAll(g.send, g.recv, g.count, g.type, g.comm, none); }},
      {"ncclGather", true, false, false, true, false,
       [=](G g) { return ncclGather(g.send, g.recv, g.count, g.type, g.root, g.comm, none); }},
      {"ncclScatter", false, true, false, true, false,
       [=](G g) { return ncclScatter(g.send, g.recv, g.count, g.type, g.root, g.comm, none); }},
      {"ncclRecv", false, true, false, true, false,
       [=](G g) { return ncclRecv(g.recv, g.count, g.type, g.root, g.comm, none); }},
      {"ncclAllReduceConfig", true, true, true, false, true,
       [=](G g) {
         return ncclAllReduceConfig(g.send, g.recv, g.count, g.type, g.op, g.comm, none, g.config);
       }},
      {"ncclReduceScatterConfig", true, true, true, false, true,
       [=](G g) {
         return ncclReduceScatterConfig(g.send, g.recv, g.count, g.type, g.op, g.comm, none,
                                        g.config);
       }},
      {"ncclReduceConfig", true, false, true, true, true,
       [=](G g) {
         return ncclReduceConfig(g.send, g.recv, g.count, g.type, g.op, g.root, g.comm, none,
                                 g.config);
       }},
      {"ncclAllGatherConfig", true, true, false, false, true,
       [=](G g) {
         return ncclAllGatherConfig(g.send, g.recv, g.count, g.type, g.comm, none, g.config);
       }},
      {"ncclBroadcastConfig", false, true, false, true, true,
       [=](G g) {
         return ncclBroadcastConfig(g.send, g.recv, g.count, g.type, g.root, g.comm, none,
                                    g.config);
       }},
      {"ncclAlltoAllConfig", true, true, false, false, true,
       [=](G g) {
         return ncclAlltoAllConfig(g.send, g.recv, g.count, g.type, g.comm, none, g.config);
       }},
      {"ncclGatherConfig", true, false, false, true, true,
       [=](G g) {
         return ncclGatherConfig(g.send, g.recv, g.count, g.type, g.root, g.comm, none, g.config);
       }},
      {"ncclScatterConfig", false, true, false, true, true,
       [=](G g) {
         return ncclScatterConfig(g.send, g.recv, g.count, g.type, g.root, g.comm, none, g.config);
       }},
  };
}

}  // namespace

TEST_CASE("each collective and message refuses wrong arguments, and the next call is right") {
  const NcclRanks all{2};
  float in[2] = {1, 2}, out[2] = {};
  for (const Function& f : functions()) {
    INFO(f.name);
    const Given right{in, out, all[0]};
    const auto refuses = [&](const char* words, auto change,
                             ncclResult_t code = ncclInvalidArgument) {
      Given given = right;
      change(given);
      INFO(words);
      CHECK(f.call(given) == code);
      CHECK(last_error_has(words));
    };
    refuses("communicator is null", [](Given& g) { g.comm = nullptr; });
    refuses("there is no type 99", [](Given& g) { g.type = ncclDataType_t(99); });
    refuses("there is no type -1", [](Given& g) { g.type = ncclDataType_t(-1); });
    refuses("more than memory has", [](Given& g) { g.count = std::size_t{1} << 62; });
    if (f.sends) refuses("sendbuff is null for 1 elements", [](Given& g) { g.send = nullptr; });
    if (f.receives) refuses("recvbuff is null for 1 elements", [](Given& g) { g.recv = nullptr; });
    if (f.rooted) {
      refuses("rank 2", [](Given& g) { g.root = 2; });
      refuses("rank -1", [](Given& g) { g.root = -1; });
    }
    if (f.reduces) refuses("77", [](Given& g) { g.op = ncclRedOp_t(77); });
    if (f.configured) {
      ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
      config.magic = 1;
      refuses("was not begun with NCCL_COLLCONFIG_INITIALIZER",
              [&](Given& g) { g.config = &config; });
      config = NCCL_COLLCONFIG_INITIALIZER;
      config.CTAPolicy = 9;
      refuses("CTAPolicy is 9", [&](Given& g) { g.config = &config; });
      config = NCCL_COLLCONFIG_INITIALIZER;
      config.forceAlgSelection = 2;
      refuses("forceAlgSelection is 2", [&](Given& g) { g.config = &config; });
    }
  }
  float sums[2] = {};
  REQUIRE(all.group([&](int r, ncclComm_t comm) {
    return ncclAllReduce(in, &sums[r], 1, ncclFloat, ncclSum, comm, nullptr);
  }) == ncclSuccess);
  for (const float sum : sums) CHECK(sum == 2);
}

TEST_CASE("a refused call of a group is the group's failure, and no rank waits") {
  const NcclRanks all{2};
  float in[2] = {1, 2}, out[2] = {};
  for (const Function& f : functions()) {
    INFO(f.name);
    REQUIRE(ncclGroupStart() == ncclSuccess);
    CHECK(f.call({in, out, all[0]}) == ncclSuccess);
    CHECK(f.call({in, out, all[1], 1, ncclDataType_t(99)}) == ncclInvalidArgument);
    CHECK(ncclGroupEnd() == ncclInvalidArgument);
  }
}
