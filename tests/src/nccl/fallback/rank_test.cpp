// What ccl cannot do, by the library that CCL_NCCL_FALLBACK names.
#include <string>
#include <vector>

#include "nccl/abi/device_abi.hpp"
#include "support/environment.hpp"
#include "support/nccl_ranks.hpp"
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace ccl::test;

namespace {

constexpr int ranks = 3;
constexpr const char* library = CCL_TEST_FALLBACK;

/// Number of the library's calls of a kind, or of what it made and has not ended.
int made(const char* what) {
  void* const at = ::dlopen(library, RTLD_NOW | RTLD_NOLOAD);
  if (at == nullptr) return -1;
  const auto count = reinterpret_cast<int (*)(const char*)>(::dlsym(at, "fake_nccl_count"));
  const int now = count(what);
  ::dlclose(at);
  return now;
}

/// Result of a sum of doubles, for which the library of the tests has no code.
ncclResult_t sum(const NcclRanks& all, std::vector<double>& out, ncclRedOp_t op = ncclSum) {
  static const double in[ranks] = {2, 4, 8};
  out.assign(std::size_t(all.count()), 0);
  return all.group([&](int r, ncclComm_t comm) {
    return ncclAllReduce(&in[r], &out[std::size_t(r)], 1, ncclFloat64, op, comm, nullptr);
  });
}

/// True if this library was built without doubles, so that they need the other one.
bool lacks_doubles() {
  const NcclRanks one{1};
  std::vector<double> out;
  return sum(one, out) != ncclSuccess;
}

}  // namespace

TEST_CASE("reductions without code go to the real NCCL, which has a communicator beside ccl's") {
  if (!lacks_doubles()) return;  // a build with every type
  const Environment fallback{"CCL_NCCL_FALLBACK", library};
  {
    const NcclRanks all{ranks};
    CHECK(made("communicators") == ranks);
    std::vector<double> out;
    REQUIRE(sum(all, out) == ncclSuccess);
    CHECK(out == std::vector<double>{14, 14, 14});
    REQUIRE(sum(all, out, ncclProd) == ncclSuccess);
    CHECK(out == std::vector<double>{64, 64, 64});
    double in[ranks] = {1, 2, 3}, part[ranks] = {};
    REQUIRE(all.group([&](int r, ncclComm_t comm) {
      return ncclReduceScatter(in, &part[r], 1, ncclFloat64, ncclSum, comm, nullptr);
    }) == ncclSuccess);
    CHECK((part[0] == 3 && part[1] == 6 && part[2] == 9));
    REQUIRE(all.group([&](int r, ncclComm_t comm) {
      return ncclReduce(in, &part[r], 1, ncclFloat64, ncclSum, 1, comm, nullptr);
    }) == ncclSuccess);
    CHECK((part[0] == 3 && part[1] == 3 && part[2] == 9));
    // What ccl can do, it does.
    const int before = made("reduction");
    float value[ranks] = {1, 1, 1};
    REQUIRE(all.group([&](int r, ncclComm_t comm) {
      return ncclAllReduce(&value[r], &value[r], 1, ncclFloat, ncclSum, comm, nullptr);
    }) == ncclSuccess);
    CHECK(value[2] == 3);
    CHECK(made("reduction") == before);
  }
  CHECK(made("communicators") == 0);
}

TEST_CASE("a scalar before the sum, and communicators that are derived") {
  if (!lacks_doubles()) return;  // a build with every type
  const Environment fallback{"CCL_NCCL_FALLBACK", library};
  const NcclRanks all{ranks};
  std::vector<ncclRedOp_t> half(ranks);
  double scalar = 0.5;
  const ncclScalarResidence_t where = GENERATE(ncclScalarHostImmediate, ncclScalarDevice);
  for (int r = 0; r < ranks; ++r) {
    REQUIRE(ncclRedOpCreatePreMulSum(&half[std::size_t(r)], &scalar, ncclFloat64, where, all[r]) ==
            ncclSuccess);
  }
  const int before = made("reductions made") - made("reductions ended");
  std::vector<double> out;
  REQUIRE(sum(all, out, half[0]) == ncclSuccess);
  CHECK(out == std::vector<double>{7, 7, 7});
  CHECK(made("reductions made") - made("reductions ended") == before);
  std::vector<ncclComm_t> parts(ranks);
  REQUIRE(all.group([&](int r, ncclComm_t comm) {
    return ncclCommSplit(comm, r == 2 ? NCCL_SPLIT_NOCOLOR : 0, r, &parts[std::size_t(r)], nullptr);
  }) == ncclSuccess);
  CHECK(made("communicators") == ranks + 2);
  double in[2] = {1, 2}, sums[2] = {};
  REQUIRE(ncclGroupStart() == ncclSuccess);
  for (int r = 0; r < 2; ++r) {
    CHECK(ncclAllReduce(&in[r], &sums[r], 1, ncclFloat64, ncclSum, parts[std::size_t(r)],
                        nullptr) == ncclSuccess);
  }
  REQUIRE(ncclGroupEnd() == ncclSuccess);
  CHECK((sums[0] == 3 && sums[1] == 3));
  for (int r = 0; r < 2; ++r) CHECK(ncclCommDestroy(parts[std::size_t(r)]) == ncclSuccess);
  CHECK(made("communicators") == ranks);
}

TEST_CASE("windows, signals and the interface for kernels are those of the real NCCL") {
  const Environment fallback{"CCL_NCCL_FALLBACK", library};
  const NcclRanks all{2};
  std::vector<ncclWindow_t> windows(2);
  char memory[2][64] = {};
  REQUIRE(all.group([&](int r, ncclComm_t comm) {
    return ncclCommWindowRegister(comm, memory[r], 64, &windows[std::size_t(r)], NCCL_WIN_GIN_ONLY);
  }) == ncclSuccess);
  REQUIRE(made("windows") == 2);
  void* at = nullptr;
  CHECK(ncclWinGetUserPtr(all[1], windows[1], &at) == ncclSuccess);
  CHECK(at == memory[1]);
  CHECK(ncclGetLsaDevicePointer(windows[0], 8, 1, &at) == ncclSuccess);
  CHECK(at == memory[0] + 9);
  CHECK(ncclPutSignal(memory, 1, ncclInt8, 0, windows[1], 0, 0, 0, 0, all[1], nullptr) ==
        ncclSuccess);
  CHECK(ncclSignal(1, 0, 0, 0, all[0], nullptr) == ncclSuccess);
  ncclWaitSignalDesc_t waits[2] = {{2, 1, 0, 0}, {3, 1, 0, 0}};
  CHECK(ncclWaitSignal(2, waits, all[0], nullptr) == ncclSuccess);
  CHECK((made("puts") == 1 && made("signals") == 1 && made("waits") == 5));
  ncclCommProperties_t properties{};
  CHECK(ncclCommQueryProperties(all[0], &properties) == ncclSuccess);
  CHECK(properties.deviceApiSupport);
  CHECK(ncclTeamLsa(all[1]).stride == 17);
  CHECK(ncclTeamRail(all[1]).nRanks == 1);  // of ccl, because that library has none
  int wants = 0, device = 0;
  int both[2] = {};
  wants = 7;  // which all ranks wait for
  CHECK(all.group([&](int r, ncclComm_t comm) {
    return ncclDevCommCreate(comm, &wants, &both[r]);
  }) == ncclSuccess);
  CHECK((both[0] == 100 && both[1] == 101));
  wants = 0;
  CHECK(ncclDevCommCreate(all[1], &wants, &device) == ncclSuccess);
  CHECK(device == 101);
  CHECK(ncclDevCommDestroy(all[1], &device) == ncclSuccess);
  CHECK(ncclDevCommCreate(all[1], nullptr, &device) == ncclInvalidArgument);
  CHECK(last_error_has("ncclDevCommCreate of the NCCL that CCL_NCCL_FALLBACK names failed"));
  CHECK(last_error_has("as the test wishes"));
  CHECK(ncclGetLsaMultimemDevicePointer(windows[0], 0, &at) == ncclInvalidUsage);
  CHECK(last_error_has("neither ccl nor the NCCL 22903"));
  REQUIRE(all.group([&](int r, ncclComm_t comm) {
    return ncclCommWindowDeregister(comm, windows[std::size_t(r)]);
  }) == ncclSuccess);
  CHECK(made("windows") == 0);
}

TEST_CASE("if the library fails or hangs on one rank, none falls back") {
  const Environment fallback{"CCL_NCCL_FALLBACK", library};
  const Environment soon{"CCL_INIT_TIMEOUT", "1"};
  const Environment fails{GENERATE("FAKE_NCCL_FAILS", "FAKE_NCCL_HANGS"), "1"};
  const NcclRanks all{2};
  CHECK(made("communicators") == 0);
  void* at = nullptr;
  CHECK(ncclDevCommCreate(all[0], &at, &at) == ncclInvalidUsage);
  CHECK(last_error_has("CCL_NCCL_FALLBACK"));
}

TEST_CASE("ranks that differ in CCL_NCCL_FALLBACK go on without") {
  ncclUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  const auto child = ::fork();
  const Environment setting{"CCL_NCCL_FALLBACK", child == 0 ? library : "/nowhere/libnccl.so.2"};
  ncclComm_t comm = nullptr;
  float value = 1;
  bool good = ncclCommInitRank(&comm, 2, id, child == 0 ? 1 : 0) == ncclSuccess;
  good = good && ncclAllReduce(&value, &value, 1, ncclFloat, ncclSum, comm, nullptr) == ncclSuccess;
  good = good && value == 2 && ncclDevCommCreate(comm, &value, &value) == ncclInvalidUsage;
  good = good && ncclCommDestroy(comm) == ncclSuccess;
  if (child == 0) ::_exit(good ? 0 : 1);
  int status = 1;
  CHECK(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(good);
}
