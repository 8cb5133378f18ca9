// Reductions that this library has no code for, by the library that CCL_NCCL_FALLBACK names.
#include "nccl/fallback/reductions.hpp"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "nccl/abi/own_abi.hpp"
#include "support/environment.hpp"
#include "support/nccl_fallback.hpp"
#include "support/nccl_ranks.hpp"
#include "support/plug_in_lines.hpp"
#include "support/skip.hpp"

using namespace ccl::test;

namespace {

constexpr int ranks = 3;
constexpr const char* library = CCL_TEST_FALLBACK;

/// Result of a sum of doubles, for which the library of the tests has no code.
ncclResult_t sum(const NcclRanks& all, std::vector<double>& out,
                 const std::vector<ncclRedOp_t>& ops) {
  static const double in[ranks] = {2, 4, 8};
  out.assign(std::size_t(all.count()), 0);
  return all.group([&](int r, ncclComm_t comm) {
    return ncclAllReduce(&in[r], &out[std::size_t(r)], 1, ncclFloat64, ops[std::size_t(r)], comm,
                         nullptr);
  });
}
ncclResult_t sum(const NcclRanks& all, std::vector<double>& out, ncclRedOp_t op = ncclSum) {
  return sum(all, out, std::vector<ncclRedOp_t>(std::size_t(all.count()), op));
}

/// True if this library was built without doubles, so that they need the other one.
bool lacks_doubles() {
  const NcclRanks one{1};
  std::vector<double> out;
  return sum(one, out) != ncclSuccess;
}

constexpr const char* every_type = "this library has every type, and leaves nothing to another";

/// As `sum`, of integers, and with a configuration of the call.
template <class T>
ncclResult_t sum_with(const NcclRanks& all, std::vector<T>& out, const ncclCollConfig_t* config) {
  static const T in[ranks] = {2, 4, 8};
  out.assign(std::size_t(all.count()), 0);
  const auto type = std::is_same_v<T, double> ? ncclFloat64 : ncclInt64;
  return all.group([&](int r, ncclComm_t comm) {
    return ncclAllReduceConfig(&in[r], &out[std::size_t(r)], 1, type, ncclSum, comm, nullptr,
                               config);
  });
}

/// Text of what a rank's flight recorder holds.
std::string records_of(ncclComm_t comm) {
  const auto folder = std::filesystem::temp_directory_path() / "ccl_reductions_test";
  std::filesystem::create_directories(folder);
  REQUIRE(cclCommDump(comm, folder.c_str()) == ncclSuccess);
  std::string text;
  for (const auto& file : std::filesystem::recursive_directory_iterator{folder}) {
    if (!file.is_regular_file()) continue;
    std::ifstream stream{file.path()};
    text.append(std::istreambuf_iterator<char>{stream}, {});
  }
  std::filesystem::remove_all(folder);
  return text;
}

}  // namespace

// First of all, because a process looks for plug-ins once.
TEST_CASE("a profiler plug-in gets the events of what the real NCCL runs") {
  constexpr const char* plug_in = CCL_TEST_PROFILER_PLUG_IN;
  const std::string all = plug_in_lines(
      plug_in, {{"NCCL_PROFILER_PLUGIN", plug_in}, {"CCL_NCCL_FALLBACK", library}}, [] {
        const NcclRanks both{2};
        std::vector<double> out;
        return sum(both, out) == ncclSuccess;
      });
  INFO(all);
  if (!lacks_doubles()) return ccl::test::skip(every_type);
  for (const int rank : {0, 1}) {
    const auto lines = lines_of(all, rank);
    REQUIRE(lines.size() == 1 + 9 + 1);  // as of a call that ccl runs
    CHECK(lines[3].starts_with("start coll AllReduce 0 1 ncclFloat64 root 0 NCCL NCCL"));
    CHECK(lines[5] == "timed");
  }
}

TEST_CASE("reductions without code go to the real NCCL, which has a communicator beside ccl's") {
  if (!lacks_doubles()) return ccl::test::skip(every_type);
  const Environment fallback{"CCL_NCCL_FALLBACK", library};
  {
    const NcclRanks all{ranks};
    CHECK(made_by(library, "communicators") == ranks);
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
    const int before = made_by(library, "reduction");
    float value[ranks] = {1, 1, 1};
    REQUIRE(all.group([&](int r, ncclComm_t comm) {
      return ncclAllReduce(&value[r], &value[r], 1, ncclFloat, ncclSum, comm, nullptr);
    }) == ncclSuccess);
    CHECK(value[2] == 3);
    CHECK(made_by(library, "reduction") == before);
  }
  CHECK(made_by(library, "communicators") == 0);
}

TEST_CASE("a scalar before the sum, and communicators that are derived") {
  if (!lacks_doubles()) return ccl::test::skip(every_type);
  const Environment fallback{"CCL_NCCL_FALLBACK", library};
  const NcclRanks all{ranks};
  std::vector<ncclRedOp_t> half(ranks);
  double scalar = 0.5;
  const ncclScalarResidence_t where = GENERATE(ncclScalarHostImmediate, ncclScalarDevice);
  for (int r = 0; r < ranks; ++r) {
    REQUIRE(ncclRedOpCreatePreMulSum(&half[std::size_t(r)], &scalar, ncclFloat64, where, all[r]) ==
            ncclSuccess);
  }
  const int before = made_by(library, "reductions made") - made_by(library, "reductions ended");
  std::vector<double> out;
  REQUIRE(sum(all, out, half) == ncclSuccess);
  CHECK(out == std::vector<double>{7, 7, 7});
  CHECK(made_by(library, "reductions made") - made_by(library, "reductions ended") == before);
  std::vector<ncclComm_t> parts(ranks);
  REQUIRE(all.group([&](int r, ncclComm_t comm) {
    return ncclCommSplit(comm, r == 2 ? NCCL_SPLIT_NOCOLOR : 0, r, &parts[std::size_t(r)], nullptr);
  }) == ncclSuccess);
  CHECK(made_by(library, "communicators") == ranks + 2);
  double in[2] = {1, 2}, sums[2] = {};
  REQUIRE(ncclGroupStart() == ncclSuccess);
  for (int r = 0; r < 2; ++r) {
    CHECK(ncclAllReduce(&in[r], &sums[r], 1, ncclFloat64, ncclSum, parts[std::size_t(r)],
                        nullptr) == ncclSuccess);
  }
  REQUIRE(ncclGroupEnd() == ncclSuccess);
  CHECK((sums[0] == 3 && sums[1] == 3));
  for (int r = 0; r < 2; ++r) CHECK(ncclCommDestroy(parts[std::size_t(r)]) == ncclSuccess);
  CHECK(made_by(library, "communicators") == ranks);
}

TEST_CASE("one order of additions is not asked of a library that has none") {
  if (!lacks_doubles()) return ccl::test::skip(every_type);
  const Environment fallback{"CCL_NCCL_FALLBACK", library};
  ncclConfigExt_t option{nullptr, {0x63636c, 1}, {1}};
  ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
  const bool of_process = GENERATE(true, false);
  if (!of_process) config.ext = &option;
  const Environment one_order{"CCL_DETERMINISTIC", of_process ? "1" : "0"};
  const NcclRanks all{ranks};
  const int before = made_by(library, "reduction");
  std::vector<double> out;
  CHECK(sum_with(all, out, &config) == ncclInvalidUsage);
  CHECK(last_error_has("no code for sum of double"));
  CHECK(last_error_has(of_process ? "CCL_DETERMINISTIC=1" : "option 1"));
  CHECK(made_by(library, "reduction") == before);
  // The bits of integers do not depend on the order.
  std::vector<std::int64_t> exact;
  CHECK(sum_with(all, exact, &config) == ncclSuccess);
  CHECK(exact == std::vector<std::int64_t>{14, 14, 14});
  CHECK(made_by(library, "reduction") == before + ranks);
}

TEST_CASE("the configuration of a call is passed on, as far as the library takes one") {
  if (!lacks_doubles()) return ccl::test::skip(every_type);
  const Environment fallback{"CCL_NCCL_FALLBACK", library};
  const NcclRanks all{ranks};
  ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
  config.algSelection = "tree";
  config.maxCTAs = 2;
  const int configured = made_by(library, "configured");
  std::vector<double> out;
  CHECK(sum_with(all, out, &config) == ncclSuccess);
  CHECK(out == std::vector<double>{14, 14, 14});
  CHECK(made_by(library, "configured") == configured + ranks);
  CHECK(made_by(library, "trees") == ranks);
  CHECK(made_by(library, "blocks") == 2 * ranks);
  // It has no such function of ncclReduce.
  const double in = 1;
  const auto reduce = [&](int r, ncclComm_t comm) {
    return ncclReduceConfig(&in, &out[std::size_t(r)], 1, ncclFloat64, ncclSum, 1, comm, nullptr,
                            &config);
  };
  CHECK(all.group(reduce) == ncclInvalidUsage);
  CHECK(last_error_has("needs NCCL 2.31"));
  config.forceAlgSelection = 0;
  CHECK(all.group(reduce) == ncclSuccess);
  CHECK(out[1] == 3);
}

TEST_CASE("the communicator's records have what the real NCCL runs") {
  if (!lacks_doubles()) return ccl::test::skip(every_type);
  const Environment fallback{"CCL_NCCL_FALLBACK", library};
  const NcclRanks all{ranks};
  std::vector<double> out;
  CHECK(records_of(all[1]).find("NCCL/NCCL") == std::string::npos);
  REQUIRE(sum(all, out, ncclProd) == ncclSuccess);
  const std::string well = records_of(all[1]);
  INFO(well);
  const auto at = well.find("all_reduce/NCCL/NCCL");
  REQUIRE(at != well.npos);
  CHECK(well.find("prod", at) != well.npos);
  CHECK(well.find("done", at) != well.npos);
  CHECK(well.find("failed", at) == well.npos);
  const Environment fails{"FAKE_NCCL_REDUCES_NOT", "1"};
  REQUIRE(sum(all, out) == ncclInternalError);
  CHECK(records_of(all[1]).find("failed", at) != well.npos);
}
