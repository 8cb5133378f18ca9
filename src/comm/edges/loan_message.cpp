#include "comm/edges/loan_message.hpp"

#include <cstring>

#include "base/field_check.hpp"
#include "comm/part_rules.hpp"

namespace ccl::detail {

namespace {
constexpr std::int64_t max_bytes = std::int64_t{1} << 40;
constexpr std::int64_t max_number = std::int64_t{1} << 40;  // below the next tag that is in use
}  // namespace

std::optional<LoanRequest> read_loan_request(std::span<const std::byte> text, std::string& why) {
  LoanRequest request;
  FieldCheck check;
  check.in_range("length of a request for GPU memory", text.size(), sizeof request, sizeof request);
  if (check.good()) {
    std::memcpy(&request, text.data(), sizeof request);
    check.in_range("number of a request", request.number, 1, max_number)
        .in_range("number of bytes", request.bytes, 1, max_bytes);
  }
  why = check.why();
  if (!why.empty()) return {};
  return request;
}

std::optional<LoanAnswer> read_loan_answer(std::span<const std::byte> text, Word asked,
                                           std::string& why) {
  LoanAnswer answer;
  FieldCheck check;
  check.in_range("length of an answer about GPU memory", text.size(), sizeof answer, sizeof answer);
  if (check.good()) {
    std::memcpy(static_cast<void*>(&answer), text.data(), sizeof answer);
    check.part("result", wrong_rank_result(answer.result))
        .flag("DMA-BUF", answer.dma_buf)
        .text("reason for no DMA-BUF", answer.no_dma_buf);
    if (answer.result.code == 0) {
      check.in_range("number of bytes", answer.bytes, std::int64_t(asked), max_bytes);
    }
  }
  why = check.why();
  if (!why.empty()) return {};
  return answer;
}

}  // namespace ccl::detail
