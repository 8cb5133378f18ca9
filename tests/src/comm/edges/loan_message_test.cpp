#include "comm/edges/loan_message.hpp"

#include <cstring>
#include <span>
#include <string>

#include "support/catch.hpp"
#include "support/error_matchers.hpp"

using namespace ccl;
using namespace ccl::detail;
using ccl::test::mentions;

namespace {
std::string refusal(const LoanRequest& request) {
  std::string why;
  const auto read = read_loan_request(std::as_bytes(std::span{&request, 1}), why);
  CHECK(read.has_value() == why.empty());
  if (read) CHECK(read->number == request.number);
  return why;
}
std::string refusal(const LoanAnswer& answer, Word asked) {
  std::string why;
  const auto read = read_loan_answer(std::as_bytes(std::span{&answer, 1}), asked, why);
  CHECK(read.has_value() == why.empty());
  if (read) CHECK(read->bytes == answer.bytes);
  return why;
}
}  // namespace

TEST_CASE("a request for GPU memory has a number and asks for some bytes") {
  CHECK(refusal(LoanRequest{1, 1}) == "");
  CHECK(mentions(refusal(LoanRequest{0, 1}), "number of a request is 0, not from 1"));
  CHECK(mentions(refusal(LoanRequest{1, 0}), "number of bytes is 0, not from 1"));
  CHECK(mentions(refusal(LoanRequest{1, Word{1} << 63}), "number of bytes is"));
  std::string why;
  CHECK(!read_loan_request({}, why));
  CHECK(mentions(why, "length of a request for GPU memory is 0"));
}

TEST_CASE("an answer lends at least what was asked for, or says why not") {
  LoanAnswer answer;
  answer.bytes = 4096;
  CHECK(refusal(answer, 4096) == "");
  CHECK(refusal(answer, 1) == "");
  CHECK(mentions(refusal(answer, 4097), "number of bytes is 4096, not from 4097"));
  answer.dma_buf = 2;
  CHECK(mentions(refusal(answer, 1), "DMA-BUF is 2, not from 0 to 1"));
  answer.dma_buf = 1;
  std::memset(answer.no_dma_buf, 'x', sizeof answer.no_dma_buf);
  CHECK(mentions(refusal(answer, 1), "reason for no DMA-BUF has no end"));
  answer.no_dma_buf[0] = 0;
  answer.bytes = 0;
  answer.result = result_of(fail(Errc::out_of_memory, "full"));
  CHECK(refusal(answer, 1) == "");
  answer.result.code = -1;
  CHECK(mentions(refusal(answer, 1), "result: error code is -1"));
  std::string why;
  const std::byte few[4] = {};
  CHECK(!read_loan_answer(few, 1, why));
  CHECK(mentions(why, "length of an answer about GPU memory is 4"));
}
