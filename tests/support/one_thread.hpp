#pragma once

// Ranks of libnccl in one thread, as a program for NCCL has them, with data that is easy to check.
#include <vector>

#include "catch.hpp"
#include "nccl/abi/abi.hpp"

namespace ccl::test {

inline constexpr int ranks = 3;
using Floats = std::vector<float>;

/// All ranks in this thread, as ncclCommInitAll makes them.
struct OneThread {
  std::vector<ncclComm_t> comms = std::vector<ncclComm_t>(ranks);
  OneThread() { REQUIRE(ncclCommInitAll(comms.data(), ranks, nullptr) == ncclSuccess); }
  ~OneThread() {
    for (ncclComm_t comm : comms) {
      if (comm != nullptr) CHECK(ncclCommDestroy(comm) == ncclSuccess);
    }
  }
  template <class F>
  ncclResult_t group(F&& f) {
    REQUIRE(ncclGroupStart() == ncclSuccess);
    for (int r = 0; r < ranks; ++r) CHECK(f(r, comms[std::size_t(r)]) == ncclSuccess);
    return ncclGroupEnd();
  }
};

/// Element i of rank r, small enough that sums are exact.
inline float value(int r, int i) {
  return float(r + 1) * float(i % 17 + 1);
}
inline Floats values(int r, int count) {
  Floats all;
  for (int i = 0; i < count; ++i) all.push_back(value(r, i));
  return all;
}
/// f(rank) of all ranks.
template <class F>
std::vector<Floats> each(F&& f) {
  std::vector<Floats> all;
  for (int r = 0; r < ranks; ++r) all.push_back(f(r));
  return all;
}

inline void reload_log() {
  ncclResetDebugInit();
}

}  // namespace ccl::test
