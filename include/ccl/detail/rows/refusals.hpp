#pragma once

#include <ccl/comm/communicator.hpp>
#include <ccl/types/error.hpp>
#include <ccl/types/word.hpp>

#include <string>

namespace ccl::detail {

// Texts of the errors of `Fused`.
std::string rows_not_aligned(Index length, const void* input);
std::string rows_beyond_scratch(Index scratch_bytes, Index row_bytes);
std::string rows_too_long(Index length, Index most);
Error rows_refused(const std::string& name, const Communicator& comm, const std::string& what,
                   const char* help);

}  // namespace ccl::detail
