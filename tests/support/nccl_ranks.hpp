#pragma once

// All ranks of a communicator of libnccl in one thread.
#include <string>
#include <thread>
#include <vector>

#include "catch.hpp"
#include "nccl/abi/abi.hpp"

namespace ccl::test {

struct NcclRanks {
  std::vector<ncclComm_t> comms;

  explicit NcclRanks(int ranks, ncclConfig_t* config = nullptr)
      : comms(static_cast<std::size_t>(ranks)) {
    ncclUniqueId id;
    REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
    REQUIRE(ncclGroupStart() == ncclSuccess);
    for (int r = 0; r < ranks; ++r) {
      CHECK(ncclCommInitRankConfig(&comms[std::size_t(r)], ranks, id, r, config) == ncclSuccess);
    }
    const auto made = ncclGroupEnd();
    REQUIRE((made == ncclSuccess || made == ncclInProgress));
    for (ncclComm_t comm : comms) REQUIRE(end_of(comm) == ncclSuccess);
  }
  ~NcclRanks() {
    for (ncclComm_t comm : comms) {
      if (comm != nullptr) CHECK(ncclCommDestroy(comm) == ncclSuccess);
    }
  }
  NcclRanks(const NcclRanks&) = delete;
  NcclRanks& operator=(const NcclRanks&) = delete;

  int count() const { return int(comms.size()); }
  ncclComm_t operator[](int rank) const { return comms[std::size_t(rank)]; }

  /// f(rank, communicator) of all ranks in one group.
  template <class F>
  ncclResult_t group(F&& f) const {
    REQUIRE(ncclGroupStart() == ncclSuccess);
    for (int r = 0; r < count(); ++r) CHECK(f(r, (*this)[r]) == ncclSuccess);
    return ncclGroupEnd();
  }

  /// Waits until the communicator's calls have ended, and returns their result.
  static ncclResult_t end_of(ncclComm_t comm) {
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress) {
      if (ncclCommGetAsyncError(comm, &state) != ncclSuccess) FAIL("no such communicator");
      std::this_thread::yield();
    }
    return state;
  }
};

/// True if the text of this thread's last error has these words.
inline bool last_error_has(const char* words) {
  const std::string text = ncclGetLastError(nullptr);
  INFO(text);
  return text.find(words) != text.npos;
}

}  // namespace ccl::test
