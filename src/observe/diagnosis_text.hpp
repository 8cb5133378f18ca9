#pragma once

#include <ccl/comm/report.hpp>

#include <string>
#include <vector>

// Sentences of reports, one for each finding.
namespace ccl::detail {

/// `first` is one of the silent ranks.
std::string say_no_answer(const std::vector<int>& ranks, const RankStatus& first);
/// The process of `of` has exited.
std::string say_departed(const RankStatus& of);
std::string say_no_record(const std::vector<int>& ranks);
/// `one` is one of the late ranks, and `what` names an operation or a call of all ranks.
std::string say_not_called(const std::vector<int>& late, const RankStatus& one,
                           const std::string& what);
/// Ranks that made different calls under one number.
std::string say_other_call(const std::vector<int>& few, const Operation& theirs,
                           const std::vector<int>& many, const Operation& others);
std::string say_stuck_proxy(const RankStatus& of);
/// `where` names the step that has not arrived, or the operation that `from` has done.
std::string say_undelivered(const RankStatus& from, const RankStatus& to, const std::string& where);
/// `of` is a head, which waits for a network that reduces.
std::string say_unreduced(const RankStatus& of);
/// `state` is that of the operation, which `of` has called.
std::string say_not_begun(const RankStatus& of, const Operation& op, OpState state);
std::string say_circle(const std::vector<int>& ranks, int least);
std::string say_elsewhere(const RankStatus& of);
/// Ranks that are still in the call of all ranks of `one`, which the others have left.
std::string say_not_left(const std::vector<int>& late, const RankStatus& one,
                         const std::vector<int>& others);
/// Call of all ranks in which `of` is, where the others are in `what`.
std::string say_other_step(const RankStatus& of, const std::string& what);

}  // namespace ccl::detail
