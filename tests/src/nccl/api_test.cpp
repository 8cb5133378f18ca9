// What a group of calls makes of a function that fails, and the names of all functions.
#include <cstdint>
#include <string>

#include "support/nccl_ranks.hpp"
#include <dlfcn.h>

using namespace ccl::test;

TEST_CASE("a query that fails leaves the thread's group alone") {
  const NcclRanks all{2};
  const float data = 1;
  float sums[2] = {};
  int number = 0;
  REQUIRE(all.group([&](int r, ncclComm_t comm) {
    CHECK(ncclCommCount(nullptr, &number) == ncclInvalidArgument);
    CHECK(ncclCommUserRank(comm, nullptr) == ncclInvalidArgument);
    CHECK(ncclCommGetAsyncError(comm, nullptr) == ncclInvalidArgument);
    CHECK(ncclGetVersion(nullptr) == ncclInvalidArgument);
    CHECK(ncclGetUniqueId(nullptr) == ncclInvalidArgument);
    CHECK(ncclMemAlloc(nullptr, 1) == ncclInvalidArgument);
    CHECK(ncclCommDeregister(comm, &number) == ncclInvalidArgument);
    CHECK(ncclWinGetUserPtr(comm, nullptr, nullptr) == ncclInvalidArgument);
    CHECK(ncclRedOpDestroy(ncclRedOp_t(77), comm) == ncclInvalidArgument);
    return ncclAllReduce(&data, &sums[r], 1, ncclFloat, ncclSum, comm, nullptr);
  }) == ncclSuccess);
  for (const float sum : sums) CHECK(sum == 2);
}

TEST_CASE("CPU ranks ignore the stream") {
  const NcclRanks all{2};
  const auto stream = reinterpret_cast<cudaStream_t>(2);  // cudaStreamPerThread
  const float data[2] = {1, 2};
  float sums[2] = {}, gathered[4] = {}, taken[2] = {};
  REQUIRE(all.group([&](int r, ncclComm_t comm) {
    CHECK(ncclAllReduce(data, &sums[r], 1, ncclFloat, ncclSum, comm, stream) == ncclSuccess);
    CHECK(ncclAllGather(&data[r], &gathered[2 * r], 1, ncclFloat, comm, stream) == ncclSuccess);
    CHECK(ncclSend(&data[r], 1, ncclFloat, 1 - r, comm, stream) == ncclSuccess);
    return ncclRecv(&taken[r], 1, ncclFloat, 1 - r, comm, stream);
  }) == ncclSuccess);
  for (const float sum : sums) CHECK(sum == 2);
  CHECK((gathered[2] == 1 && gathered[3] == 2));
  CHECK((taken[0] == 2 && taken[1] == 1));
}

TEST_CASE("a null buffer is refused before another rank of the group waits") {
  const NcclRanks all{2};
  float data = 1, sums[2] = {};
  const auto refuses = [&](auto call) {
    REQUIRE(ncclGroupStart() == ncclSuccess);
    CHECK(ncclAllReduce(&data, &sums[0], 1, ncclFloat, ncclSum, all[0], nullptr) == ncclSuccess);
    CHECK(call(all[1]) == ncclInvalidArgument);
    CHECK(last_error_has("is null for 1 elements"));
    CHECK(ncclGroupEnd() == ncclInvalidArgument);
  };
  refuses([&](ncclComm_t comm) {
    return ncclAllReduce(nullptr, &sums[1], 1, ncclFloat, ncclSum, comm, nullptr);
  });
  refuses([&](ncclComm_t comm) { return ncclSend(nullptr, 1, ncclFloat, 0, comm, nullptr); });
  refuses([&](ncclComm_t comm) { return ncclRecv(nullptr, 1, ncclFloat, 0, comm, nullptr); });
  refuses([&](ncclComm_t comm) {
    return ncclBroadcast(&data, nullptr, 1, ncclFloat, 0, comm, nullptr);
  });
  refuses([&](ncclComm_t comm) {
    return ncclReduce(nullptr, &sums[1], 1, ncclFloat, ncclSum, 1, comm, nullptr);
  });
  // What only the root has.
  REQUIRE(all.group([&](int r, ncclComm_t comm) {
    CHECK(ncclBroadcast(r == 0 ? &data : nullptr, &sums[r], 1, ncclFloat, 0, comm, nullptr) ==
          ncclSuccess);
    return ncclReduce(&data, r == 0 ? &sums[0] : nullptr, 1, ncclFloat, ncclSum, 0, comm, nullptr);
  }) == ncclSuccess);
  CHECK((sums[0] == 2 && sums[1] == 1));
}

TEST_CASE("inputs that are null are named as inputs") {
  const NcclRanks all{1};
  ncclRedOp_t op{};
  CHECK(ncclRedOpCreatePreMulSum(&op, nullptr, ncclFloat, ncclScalarHostImmediate, all[0]) ==
        ncclInvalidArgument);
  CHECK(last_error_has("scalar is null, and the call reads it"));
  ncclParamHandle_t handle = nullptr;
  CHECK(ncclParamBind(&handle, nullptr) == ncclInvalidArgument);
  CHECK(last_error_has("key is null, and the call reads it"));
}

TEST_CASE("the end of a communicator runs in its place in a group") {
  const NcclRanks all{2};
  const float data = 1;
  float sums[2] = {};
  REQUIRE(all.group([&](int r, ncclComm_t comm) {
    CHECK(ncclAllReduce(&data, &sums[r], 1, ncclFloat, ncclSum, comm, nullptr) == ncclSuccess);
    return ncclCommFinalize(comm);
  }) == ncclSuccess);
  for (const float sum : sums) CHECK(sum == 2);
  CHECK(ncclAllReduce(&data, sums, 1, ncclFloat, ncclSum, all[0], nullptr) == ncclInvalidUsage);
}

TEST_CASE("more elements than memory has are refused") {
  const NcclRanks all{1};
  float data = 1;
  for (const std::size_t count : {SIZE_MAX, SIZE_MAX / 2, SIZE_MAX / 4, std::size_t{1} << 46}) {
    CHECK(ncclAllReduce(&data, &data, count, ncclFloat, ncclSum, all[0], nullptr) ==
          ncclInvalidArgument);
    CHECK(last_error_has("more than memory has"));
    CHECK(ncclAllGather(&data, &data, count, ncclFloat, all[0], nullptr) == ncclInvalidArgument);
  }
}

TEST_CASE("a call of a group that fails is the group's failure") {
  const NcclRanks all{2};
  const float data = 1;
  float sums[2] = {};
  REQUIRE(ncclGroupStart() == ncclSuccess);
  for (int r = 0; r < 2; ++r) {
    CHECK(ncclAllReduce(&data, &sums[r], 1, ncclFloat, ncclSum, all[r], nullptr) == ncclSuccess);
  }
  ncclWindow_t window = nullptr;
  CHECK(ncclCommWindowRegister(all[0], sums, sizeof sums, &window, 64) == ncclInvalidArgument);
  CHECK(ncclGroupEnd() == ncclInvalidArgument);
  for (const float sum : sums) CHECK(sum == 0);
}

namespace {
/// Functions of NCCL 2.32.3, without those of the interface for kernels.
constexpr const char* names[] = {"ncclAllGather",
                                 "ncclAllGatherConfig",
                                 "ncclAllReduce",
                                 "ncclAllReduceConfig",
                                 "ncclAlltoAll",
                                 "ncclAlltoAllConfig",
                                 "ncclBcast",
                                 "ncclBroadcast",
                                 "ncclBroadcastConfig",
                                 "ncclCommAbort",
                                 "ncclCommCount",
                                 "ncclCommCuDevice",
                                 "ncclCommDeregister",
                                 "ncclCommDestroy",
                                 "ncclCommFinalize",
                                 "ncclCommGetAsyncError",
                                 "ncclCommGetUniqueId",
                                 "ncclCommGrow",
                                 "ncclCommInitAll",
                                 "ncclCommInitRank",
                                 "ncclCommInitRankConfig",
                                 "ncclCommInitRankScalable",
                                 "ncclCommMemStats",
                                 "ncclCommRegister",
                                 "ncclCommResume",
                                 "ncclCommRevoke",
                                 "ncclCommShrink",
                                 "ncclCommSplit",
                                 "ncclCommSuspend",
                                 "ncclCommUserRank",
                                 "ncclCommWindowDeregister",
                                 "ncclCommWindowRegister",
                                 "ncclGather",
                                 "ncclGatherConfig",
                                 "ncclGetErrorString",
                                 "ncclGetLastError",
                                 "ncclGetUniqueId",
                                 "ncclGetVersion",
                                 "ncclGroupEnd",
                                 "ncclGroupSimulateEnd",
                                 "ncclGroupStart",
                                 "ncclMemAlloc",
                                 "ncclMemFree",
                                 "ncclParamBind",
                                 "ncclParamDumpAll",
                                 "ncclParamGet",
                                 "ncclParamGetAllParameterKeys",
                                 "ncclParamGetI16",
                                 "ncclParamGetI32",
                                 "ncclParamGetI64",
                                 "ncclParamGetI8",
                                 "ncclParamGetParameter",
                                 "ncclParamGetStr",
                                 "ncclParamGetU16",
                                 "ncclParamGetU32",
                                 "ncclParamGetU64",
                                 "ncclParamGetU8",
                                 "ncclPutSignal",
                                 "ncclRecv",
                                 "ncclRedOpCreatePreMulSum",
                                 "ncclRedOpDestroy",
                                 "ncclReduce",
                                 "ncclReduceConfig",
                                 "ncclReduceScatter",
                                 "ncclReduceScatterConfig",
                                 "ncclResetDebugInit",
                                 "ncclScatter",
                                 "ncclScatterConfig",
                                 "ncclSend",
                                 "ncclSetEncryption",
                                 "ncclSignal",
                                 "ncclWaitSignal",
                                 "ncclWinGetUserPtr"};

template <class Function>
Function* pnccl(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_DEFAULT, name));
}
}  // namespace

TEST_CASE("every function has its name with p, for libraries that stand before it") {
  static_assert(std::size(names) == 73);
  for (const char* const name : names) {
    INFO(name);
    void* const plain = ::dlsym(RTLD_DEFAULT, name);
    CHECK(plain != nullptr);
    void* const other = ::dlsym(RTLD_DEFAULT, (std::string{"p"} + name).c_str());
    CHECK(other != nullptr);
    // Declared for C++ programs, too, so it is a function of its own.
    if (std::string{name} != "ncclResetDebugInit") CHECK(other == plain);
  }
}

TEST_CASE("calls by the names with p are the functions' own") {
  int version = 0;
  CHECK(pnccl<decltype(ncclGetVersion)>("pncclGetVersion")(&version) == ncclSuccess);
  CHECK(version == NCCL_VERSION_CODE);
  const NcclRanks all{2};
  const float data = 1;
  float sums[2] = {};
  auto* const sum = pnccl<decltype(ncclAllReduce)>("pncclAllReduce");
  REQUIRE(pnccl<decltype(ncclGroupStart)>("pncclGroupStart")() == ncclSuccess);
  for (int r = 0; r < 2; ++r) {
    CHECK(sum(&data, &sums[r], 1, ncclFloat, ncclSum, all[r], nullptr) == ncclSuccess);
  }
  REQUIRE(pnccl<decltype(ncclGroupEnd)>("pncclGroupEnd")() == ncclSuccess);
  for (const float got : sums) CHECK(got == 2);
}
