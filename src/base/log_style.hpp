#pragma once

#include <ccl/comm/log.hpp>

#include <string_view>

namespace ccl::detail {

/// Makes all later lines of this library's log begin as those of NCCL, for tools that read them:
/// "host:pid:thread [device] NCCL INFO text". Texts of ccl begin with their subject, and end with
/// the rank in parentheses. `device` returns the thread's device; -1: there is none.
void use_nccl_log_style(int (*device)()) noexcept;

/// True after `use_nccl_log_style`.
bool is_nccl_log_style() noexcept;

/// Writes a line whose text is one of NCCL's, without subject and rank.
void log_as_nccl(LogLevel level, LogPart part, std::string_view text) noexcept;

}  // namespace ccl::detail
