#pragma once

#include <ccl/comm/report.hpp>

#include <string>
#include <vector>

// Texts that rank results and reports share.
namespace ccl::detail {

/// "all_reduce/Ring/LL128/any, 1000 float, sum, root 2".
std::string say(const Operation& op);
/// "operation 7 (all_reduce/...)", or "call 3 of send_recv/..." for messages, which have no number.
std::string say_numbered(const Operation& op);
/// "ranks 0-3, 5".
std::string say_ranks(const std::vector<int>& ranks);
/// " for 1.250 s" for an operation that runs; empty if nobody knows since when.
std::string say_running_time(const RankStatus& of, const Operation& op);
/// True if the rank waits for a network that reduces, to which its wires to itself lead.
bool waits_for_network(const RankStatus& of);
/// "rank 3", or the network that `of` waits for.
std::string say_awaited(const RankStatus& of);
/// Age in seconds of an event when the rank published its status; 0 if there was none.
double age_s(const RankStatus& of, Word then_ns);

}  // namespace ccl::detail
