// What the operations of libnccl add to ccl's: minimum and maximum in one kernel, calls in place,
// and messages that overlap.
#include <algorithm>
#include <cstddef>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <tuple>
#include <vector>

#include "support/environment.hpp"
#include "support/nccl_ranks.hpp"
#include <unistd.h>

using namespace ccl::test;

namespace {

using Floats = std::vector<float>;

/// Values of a rank. Each rank has the least and the most of some elements.
Floats values(int rank, std::size_t count) {
  Floats all;
  for (std::size_t i = 0; i < count; ++i) {
    all.push_back(float((i * 7 + std::size_t(rank) * 13) % 31) - 15);
  }
  return all;
}

std::string log_of(const std::function<void()>& body) {
  const std::string path = "/tmp/ccl.operations." + std::to_string(::getpid());
  {
    const Environment log{"CCL_DEBUG_FILE", path};
    ncclResetDebugInit();
    body();
  }
  ncclResetDebugInit();
  std::ifstream file{path};
  const std::string text{std::istreambuf_iterator<char>{file}, {}};
  ::unlink(path.c_str());
  return text;
}

}  // namespace

TEST_CASE("minimum and maximum share their code, and ranks that differ in them are told so") {
  constexpr int ranks = 3;
  const Environment compares{"CCL_CHECK", "1"};
  NcclRanks all{ranks};
  const auto reduced = [&](auto op_of) {
    std::vector<Floats> out(ranks, Floats(1000));
    std::vector<Floats> in;
    for (int r = 0; r < ranks; ++r) in.push_back(values(r, 1000));
    const auto done = all.group([&](int r, ncclComm_t comm) {
      const auto at = std::size_t(r);
      return ncclAllReduce(in[at].data(), out[at].data(), 1000, ncclFloat, op_of(r), comm, nullptr);
    });
    return std::tuple{done, in, out};
  };
  for (const bool max : {false, true}) {
    const auto [done, in, out] = reduced([&](int) { return max ? ncclMax : ncclMin; });
    REQUIRE(done == ncclSuccess);
    int wrong = 0;
    for (std::size_t i = 0; i < 1000; ++i) {
      const auto [least, most] = std::minmax({in[0][i], in[1][i], in[2][i]});
      for (const Floats& of_rank : out) wrong += of_rank[i] != (max ? most : least);
    }
    CHECK(wrong == 0);
  }
  const auto mixed = std::get<0>(reduced([](int r) { return r == 1 ? ncclMin : ncclMax; }));
  CHECK(mixed != ncclSuccess);
  CHECK(last_error_has("min"));
  CHECK(last_error_has("max"));
  for (ncclComm_t& comm : all.comms) {
    CHECK(ncclCommAbort(comm) == ncclSuccess);
    comm = nullptr;
  }
}

TEST_CASE("an all-to-all may run in place") {
  constexpr int ranks = 3;
  const NcclRanks all{ranks};
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{70000}}) {
    std::vector<Floats> data;
    for (int r = 0; r < ranks; ++r) {
      for (Floats& of_rank = data.emplace_back(); of_rank.size() < count * ranks;) {
        of_rank.push_back(float(r * ranks) + float(of_rank.size() / count));
      }
    }
    REQUIRE(all.group([&](int r, ncclComm_t comm) {
      float* const at = data[std::size_t(r)].data();
      return ncclAlltoAll(at, at, count, ncclFloat, comm, nullptr);
    }) == ncclSuccess);
    long wrong = 0;
    for (int r = 0; r < ranks; ++r) {
      for (std::size_t i = 0; i < count * ranks; ++i) {
        wrong += data[std::size_t(r)][i] != float(int(i / count) * ranks + r);
      }
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("messages of a group that overlap are let pass, with one warning") {
  const NcclRanks all{2};
  Floats data[2] = {Floats(64, 1), Floats(64, 2)};
  const auto exchange = [&](std::size_t apart) {
    return all.group([&](int r, ncclComm_t comm) {
      const auto sent = ncclSend(data[r].data(), 16, ncclFloat, 1 - r, comm, nullptr);
      if (sent != ncclSuccess) return sent;
      return ncclRecv(data[r].data() + apart, 16, ncclFloat, 1 - r, comm, nullptr);
    });
  };
  const std::string none = log_of([&] { CHECK(exchange(16) == ncclSuccess); });
  CHECK(none.find("left to chance") == none.npos);
  CHECK((data[0][16] == 2 && data[1][31] == 1));
  const std::string once = log_of([&] {
    CHECK(exchange(8) == ncclSuccess);
    CHECK(exchange(0) == ncclSuccess);
  });
  const auto at = once.find("left to chance");
  CHECK(at != once.npos);
  CHECK(once.find("left to chance", at + 1) == once.npos);
}
