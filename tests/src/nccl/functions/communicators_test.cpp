// Queries of a communicator: right and wrong use.
#include "support/nccl_ranks.hpp"

using namespace ccl::test;

TEST_CASE("a communicator says its device, which CPU ranks do not have") {
  const NcclRanks all{2};
  for (int r = 0; r < 2; ++r) {
    int device = 99;
    CHECK(ncclCommCuDevice(all[r], &device) == ncclSuccess);
    CHECK(device == -1);
  }
}

TEST_CASE("the query of a device refuses null pointers and communicators that have ended") {
  int device = 99;
  ncclComm_t gone = nullptr;
  {
    const NcclRanks all{1};
    gone = all[0];
    CHECK(ncclCommCuDevice(gone, nullptr) == ncclInvalidArgument);
    CHECK(last_error_has("device is null"));
  }
  CHECK(ncclCommCuDevice(gone, &device) == ncclInvalidArgument);
  CHECK(last_error_has("has ended"));
  CHECK(ncclCommCuDevice(nullptr, &device) == ncclInvalidArgument);
  CHECK(last_error_has("communicator is null"));
  CHECK(device == 99);
}
