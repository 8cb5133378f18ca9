// The library that CCL_NCCL_FALLBACK names, where the process has loaded it before ccl does.
#include <string>
#include <vector>

#include "support/environment.hpp"
#include "support/nccl_fallback.hpp"
#include "support/nccl_ranks.hpp"

using namespace ccl::test;

namespace {

constexpr int ranks = 2;
constexpr const char* library = CCL_TEST_FALLBACK;

/// Product of doubles, for which the library of the tests has no code.
ncclResult_t product(const NcclRanks& all, std::vector<double>& out) {
  static const double in[ranks] = {3, 5};
  out.assign(ranks, 0);
  return all.group([&](int r, ncclComm_t comm) {
    return ncclAllReduce(&in[r], &out[std::size_t(r)], 1, ncclFloat64, ncclProd, comm, nullptr);
  });
}

}  // namespace

TEST_CASE("the functions of a library that the process has loaded call each other") {
  void* const loaded = ::dlopen(library, RTLD_NOW | RTLD_LOCAL);
  REQUIRE(loaded != nullptr);
  const Environment environment{"CCL_NCCL_FALLBACK", library};
  {
    const NcclRanks all{ranks};
    std::vector<double> out;
    REQUIRE(product(all, out) == ncclSuccess);
    CHECK(out == std::vector<double>(ranks, 15));
  }
  // Another one was asked.
  CHECK(made_by(library, "reduction") == 0);
  CHECK(::dlclose(loaded) == 0);
}
