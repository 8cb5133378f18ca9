// Functions of ccl beside NCCL's.
#include <atomic>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "nccl/abi/own_abi.hpp"
#include "support/nccl_ranks.hpp"

using namespace ccl::test;

namespace {

constexpr int ranks = 3;

cclCommOptions_t options() {
  return {sizeof(cclCommOptions_t), -1, -1, -1, -1, -1, nullptr, nullptr};
}

/// Ranks with options, each created and used in a thread of its own.
template <class Body>
void each_rank(const cclCommOptions_t& given, Body&& body) {
  ncclUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  std::vector<std::string> wrong(ranks);
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      ncclComm_t comm = nullptr;
      if (cclCommInitRank(&comm, ranks, id, r, &given) != ncclSuccess) {
        wrong[std::size_t(r)] = ncclGetLastError(nullptr);
        return;
      }
      wrong[std::size_t(r)] = body(r, comm);
      ncclCommDestroy(comm);
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& text : wrong) CHECK(text == "");
}

std::string report_of(ncclComm_t comm, std::size_t bytes = 1 << 16) {
  std::string text(bytes, 'x');
  CHECK(cclCommReport(comm, text.data(), bytes) == ncclSuccess);
  return text.c_str();
}

}  // namespace

TEST_CASE("options reach the communicator: a late rank is named at its deadline") {
  cclCommOptions_t given = options();
  given.timeout_s = 0.5;
  std::atomic<int> here{0};
  each_rank(given, [&](int rank, ncclComm_t comm) -> std::string {
    const float one = 1;
    float sum = 0;
    std::string wrong, text;
    const auto run = [&] {
      return ncclAllReduce(&one, &sum, 1, ncclFloat, ncclSum, comm, nullptr);
    };
    if (run() != ncclSuccess) wrong = "the first call failed";
    if (rank != 2) {
      const bool failed = run() != ncclSuccess;
      text = ncclGetLastError(comm);
      if (!failed || text.find("rank 2") == text.npos) wrong = "not named: " + text;
    }
    ++here;
    while (here < ranks) std::this_thread::yield();
    return wrong;
  });
}

TEST_CASE("memory, hosts, state and records of a rank") {
  const NcclRanks all{ranks};
  const float one = 1;
  std::vector<float> sums(ranks);
  REQUIRE(all.group([&](int r, ncclComm_t comm) {
    return ncclAllReduce(&one, &sums[std::size_t(r)], 1, ncclFloat, ncclSum, comm, nullptr);
  }) == ncclSuccess);
  long long bytes = -1;
  CHECK(cclCommMemoryUsed(all[0], &bytes) == ncclSuccess);
  CHECK(bytes > 0);
  char host[64] = {};
  CHECK(cclCommHost(all[0], 1, host, sizeof host) == ncclSuccess);
  CHECK(host[0] != 0);
  CHECK(cclCommHost(all[0], ranks, host, sizeof host) == ncclInvalidArgument);
  CHECK(cclCommStatus(all[0]) == ncclSuccess);
  CHECK(report_of(all[0]).find("rank") != std::string::npos);
  CHECK(report_of(all[0], 5).size() == 4);
  const auto folder = std::filesystem::temp_directory_path() / "ccl_own_test";
  std::filesystem::create_directories(folder);
  CHECK(cclCommDump(all[0], folder.c_str()) == ncclSuccess);
  CHECK(!std::filesystem::is_empty(folder));
  std::filesystem::remove_all(folder);
  CHECK(cclCommDump(all[0], "/nowhere/at/all") == ncclSystemError);
  std::vector<std::thread> threads;
  for (int r = 1; r < ranks; ++r) threads.emplace_back([&all, r] { cclCommBarrier(all[r]); });
  CHECK(cclCommBarrier(all[0]) == ncclSuccess);
  for (auto& thread : threads) thread.join();
}

TEST_CASE("a rank ends the operations of all ranks, with its reason") {
  each_rank(options(), [](int rank, ncclComm_t comm) -> std::string {
    const float one = 1;
    float sum = 0;
    const auto run = [&] {
      return ncclAllReduce(&one, &sum, 1, ncclFloat, ncclSum, comm, nullptr);
    };
    const bool first = run() == ncclSuccess;  // rank 0 may end it for the others
    if (rank == 0 && cclCommEnd(comm, "the test ends it") != ncclSuccess) return "not ended";
    if (first && run() == ncclSuccess) return "the call ran";
    if (cclCommStatus(comm) == ncclSuccess) return "no status";
    const std::string text = ncclGetLastError(comm);
    return text.find("the test ends it") != text.npos ? "" : text;
  });
}

TEST_CASE("rows travel by counts that are in memory") {
  each_rank(options(), [](int rank, ncclComm_t comm) -> std::string {
    constexpr std::size_t stride = 4, row = 4;
    std::vector<int> counts, got(ranks, -1);
    std::vector<float> send, arrived(ranks * stride, -1);
    for (int to = 0; to < ranks; ++to) {
      counts.push_back(rank + to);
      for (std::size_t i = 0; i < stride; ++i)
        send.push_back(float(100 * rank + 10 * to) + float(i));
    }
    cclCountedRows_t rows{};
    rows.size = sizeof rows;
    rows.row_bytes = row;
    rows.send_counts = counts.data();
    rows.send_stride = rows.recv_stride = stride;
    rows.recv_counts = got.data();
    if (cclExchangeRows(send.data(), arrived.data(), &rows, comm, nullptr) != ncclSuccess) {
      return ncclGetLastError(comm);
    }
    for (int from = 0; from < ranks; ++from) {
      if (got[std::size_t(from)] != from + rank) return "counts";
      for (std::size_t i = 0; i < stride; ++i) {
        const bool counted = int(i) < from + rank;
        const float expected = counted ? float(100 * from + 10 * rank) + float(i) : -1;
        if (arrived[std::size_t(from) * stride + i] != expected) return "rows";
      }
    }
    return "";
  });
}

TEST_CASE("wrong arguments are refused by name") {
  cclCommOptions_t old = options();
  old.size -= 8;
  ncclUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  ncclComm_t comm = nullptr;
  CHECK(cclCommInitRank(&comm, 1, id, 0, &old) == ncclInvalidArgument);
  CHECK(last_error_has("options.size"));
  CHECK(cclCommInitRank(&comm, 1, id, 0, nullptr) == ncclInvalidArgument);
  const NcclRanks one{1};
  CHECK(cclCommReport(one[0], nullptr, 8) == ncclInvalidArgument);
  char text[1];
  CHECK(cclCommReport(one[0], text, 0) == ncclInvalidArgument);
  CHECK(cclCommReport(nullptr, text, 1) == ncclInvalidArgument);
  cclCountedRows_t rows{};
  CHECK(cclExchangeRows(text, text, &rows, one[0], nullptr) == ncclInvalidArgument);
  CHECK(last_error_has("rows.size is 0"));
  const auto norm = [&](ncclDataType_t type) {
    return cclAllReduceAddRmsNorm(text, 1, 8, nullptr, nullptr, text, nullptr, 0, type, one[0],
                                  nullptr);
  };
  CHECK(norm(ncclFloat64) == ncclInvalidUsage);
  CHECK(last_error_has("no fused RMSNorm of double"));
}
