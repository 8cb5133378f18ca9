// Functions of ccl beside NCCL's: options of communicators, and what one knows of its ranks.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <string>

#include "nccl/abi/own_abi.hpp"
#include "nccl/abi/rows.hpp"
#include "nccl/api.hpp"
#include "nccl/functions/collectives.hpp"
#include "nccl/functions/creation.hpp"

namespace ccl::detail::nccl {
namespace {

template <class Given>
Result<void> check_size(const Given* given, const char* what) {
  CCL_CHECK(check_input(given, what));
  if (given->size == sizeof *given) return {};
  return fail(Errc::invalid_argument,
              fmt::format("{}.size is {}, and this library's structure has {} bytes; pass its "
                          "sizeof in the header of this library",
                          what, given->size, sizeof *given));
}

void apply(const cclCommOptions_t& given, MemberConfig& config) {
  if (given.timeout_s >= 0) config.timeout_s = given.timeout_s;
  if (given.init_timeout_s >= 0) config.init_timeout_s = given.init_timeout_s;
  if (given.memory_budget_bytes >= 0) config.memory_budget_bytes = given.memory_budget_bytes;
  if (given.check >= 0) config.check = given.check != 0;
  if (given.channels >= 0) config.channels = given.channels;
  if (given.name != nullptr) config.name = given.name;
  if (given.tune_file != nullptr) config.tune_file = given.tune_file;
}

/// Copies as much of `from` as there is room for, with a 0 behind it.
Result<void> copy_text(const std::string& from, char* text, std::size_t bytes) {
  CCL_CHECK(check_given(text, "text"));
  if (bytes == 0) return fail(Errc::invalid_argument, "bytes is 0; pass the size of text");
  const std::size_t length = std::min(from.size(), bytes - 1);
  std::memcpy(text, from.data(), length);
  text[length] = 0;
  return {};
}

/// Runs a call on the rows of a communicator.
Result<void> run_on_rows(ncclComm_t comm, const std::function<Result<void>(RowCalls&)>& call) {
  CCL_TRY(const auto member, member_of(comm));
  CCL_TRY(const auto ready, member->ready());
  return member->use_rows([&](std::unique_ptr<RowCalls>& rows) {
    if (!rows) rows = RowCalls::create(ready);
    return call(*rows);
  });
}

ExchangeCall exchange_of(const void* send, void* recv, const cclCountedRows_t& given,
                         cudaStream_t stream) {
  CountedRows rows;
  rows.row = Index(given.row_bytes);
  rows.send_counts = given.send_counts;
  rows.send_stride = Index(given.send_stride);
  rows.send_rows = given.send_rows;
  rows.recv_counts = given.recv_counts;
  rows.recv_stride = Index(given.recv_stride);
  rows.send_side = given.send_side;
  rows.recv_side = given.recv_side;
  rows.side_bytes = Index(given.side_bytes);
  return {send, recv, rows, stream};
}

}  // namespace
}  // namespace ccl::detail::nccl

using namespace ccl::detail::nccl;

ncclResult_t cclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                             const cclCommOptions_t* options) {
  return answer_in_group([&]() -> ccl::Result<void> {
    CCL_CHECK(check_size(options, "options"));
    return join(comm, ranks, {&id, 1}, rank, nullptr, "cclCommInitRank",
                [&](MemberConfig& config) { apply(*options, config); });
  });
}
ncclResult_t cclCommStatus(ncclComm_t comm) {
  return answer([&]() -> ccl::Result<void> {
    CCL_TRY(const auto member, member_of(comm));
    return member->status();
  });
}
ncclResult_t cclCommReport(ncclComm_t comm, char* text, std::size_t bytes) {
  return answer([&]() -> ccl::Result<void> {
    CCL_TRY(const auto member, member_of(comm));
    CCL_TRY(const auto ready, member->ready());
    return copy_text(ready.report().text(), text, bytes);
  });
}
ncclResult_t cclCommDump(ncclComm_t comm, const char* folder) {
  return answer([&]() -> ccl::Result<void> {
    CCL_CHECK(check_input(folder, "folder"));
    CCL_TRY(const auto member, member_of(comm));
    CCL_TRY(const auto ready, member->ready());
    return ready.dump(folder);
  });
}
ncclResult_t cclCommMemoryUsed(ncclComm_t comm, long long* bytes) {
  return answer([&]() -> ccl::Result<void> {
    CCL_CHECK(check_given(bytes, "bytes"));
    CCL_TRY(const auto member, member_of(comm));
    CCL_TRY(const auto ready, member->ready());
    *bytes = ready.memory_used();
    return {};
  });
}
ncclResult_t cclCommHost(ncclComm_t comm, int rank, char* text, std::size_t bytes) {
  return answer([&]() -> ccl::Result<void> {
    CCL_TRY(const auto member, member_of(comm));
    CCL_TRY(const auto ready, member->ready());
    CCL_CHECK(check_rank(rank, ready.ranks()));
    return copy_text(ready.peer(rank).host, text, bytes);
  });
}
ncclResult_t cclCommBarrier(ncclComm_t comm) {
  return answer([&]() -> ccl::Result<void> {
    CCL_TRY(const auto member, member_of(comm));
    CCL_TRY(const auto ready, member->ready());
    return ready.barrier();
  });
}
ncclResult_t cclAllReduceAddRmsNorm(const void* input, std::size_t rows, std::size_t length,
                                    const void* residual, void* sum, void* out, const void* weight,
                                    float epsilon, ncclDataType_t type, ncclComm_t comm,
                                    cudaStream_t stream) {
  return answer([&]() -> ccl::Result<void> {
    CCL_TRY(const auto element, type_of(type));
    const NormCall call{
        input,   residual, sum, out, weight, epsilon, ccl::Index(rows), ccl::Index(length),
        element, stream};
    return run_on_rows(comm, [&](RowCalls& all) { return all.norm(call); });
  });
}
ncclResult_t cclExchangeRows(const void* send, void* recv, const cclCountedRows_t* rows,
                             ncclComm_t comm, cudaStream_t stream) {
  return answer([&]() -> ccl::Result<void> {
    CCL_CHECK(check_size(rows, "rows"));
    const ExchangeCall call = exchange_of(send, recv, *rows, stream);
    return run_on_rows(comm, [&](RowCalls& all) { return all.exchange(call); });
  });
}
ncclResult_t cclCommEnd(ncclComm_t comm, const char* why) {
  return answer([&]() -> ccl::Result<void> {
    CCL_TRY(const auto member, member_of(comm));
    CCL_TRY(const auto ready, member->ready());
    ready.abort(why != nullptr ? why : "abort was called");
    return {};
  });
}
