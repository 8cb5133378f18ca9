#pragma once

#include <ccl/comm/report.hpp>

#include <string>
#include <vector>

// What verdicts and reports say alike.
namespace ccl::detail {

/// "all_reduce/Ring/LL128/any, 1000 float, sum, root 2".
std::string say(const Operation& op);
/// "operation 7 (all_reduce/...)"; of messages, which have no number, "call 3 of send_recv/...".
std::string say_numbered(const Operation& op);
/// "ranks 0-3, 5".
std::string say_ranks(const std::vector<int>& ranks);
/// How long ago this was when the rank spoke; 0: it has not been.
double age_s(const RankStatus& of, Word then_ns);

}  // namespace ccl::detail
