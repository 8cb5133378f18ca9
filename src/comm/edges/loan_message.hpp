#pragma once

#include <ccl/types/word.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "comm/rank_results.hpp"
#include "transport/fd_server.hpp"

namespace ccl::detail {

/// Tag of requests for memory of the receiver's GPU. The answer to request n has this tag plus n.
/// No edge and no call has them.
constexpr std::uint64_t loan_tag = std::uint64_t{5} << 60;

/// Request of a rank for memory of a GPU that its process does not see.
struct LoanRequest {
  std::uint64_t number = 0;  // of the requests of this rank, from 1 on
  Word bytes = 0;
};

/// Answer of the rank on that GPU.
struct LoanAnswer {
  RankResult result;  // whether there is a loan
  Word bytes = 0;     // at least those that were asked for
  Nonce nonce{};
  UnixName at;      // where the descriptors are
  int dma_buf = 0;  // 1: one of them is a DMA-BUF
  char no_dma_buf[240] = {};
};

/// Read a message. They return nothing, and what does not fit in `why`, if it cannot be one.
std::optional<LoanRequest> read_loan_request(std::span<const std::byte> text, std::string& why);
/// `asked`: bytes of the request.
std::optional<LoanAnswer> read_loan_answer(std::span<const std::byte> text, Word asked,
                                           std::string& why);

}  // namespace ccl::detail
