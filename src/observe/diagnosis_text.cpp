#include "observe/diagnosis_text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/report_text.hpp"

namespace ccl::detail {
namespace {

/// Returns in what a rank is, and its latest operation.
std::string say_last(const RankStatus& of) {
  std::string where = of.rendezvous.empty() ? "" : fmt::format("it is in {}; ", of.rendezvous);
  if (!of.elsewhere.text.empty()) where += fmt::format("it is in {}; ", of.elsewhere.text);
  if (of.operations.empty()) return where + "it has called nothing";
  const Operation& op = of.operations.back();
  const Word since = op.ended_ns != 0 ? op.ended_ns : std::max(op.started_ns, op.queued_ns);
  return fmt::format("{}its last is {}, {}{}", where, say_numbered(op), name(op.state),
                     since == 0 ? "" : fmt::format(" for {:.1f} s", age_s(of, since)));
}

}  // namespace

std::string say_no_answer(const std::vector<int>& ranks, const RankStatus& first) {
  return fmt::format("{}{} {} not answer (stopped, or cut off)", say_ranks(ranks),
                     first.host.empty() ? "" : " on " + first.host,
                     ranks.size() == 1 ? "does" : "do");
}

std::string say_departed(const RankStatus& of) {
  return fmt::format("rank {}{} has departed (its process exited)", of.rank,
                     of.host.empty() ? "" : " on " + of.host);
}

std::string say_no_record(const std::vector<int>& ranks) {
  return say_ranks(ranks) + " left no record (killed, or not asked for one)";
}

std::string say_not_called(const std::vector<int>& late, const RankStatus& one,
                           const std::string& what) {
  const std::string whose = late.size() == 1 ? "" : fmt::format("rank {}: ", one.rank);
  return fmt::format("{} on {} {} not called {} ({}{})", say_ranks(late), one.host,
                     late.size() == 1 ? "has" : "have", what, whose, say_last(one));
}

std::string say_other_call(const std::vector<int>& few, const Operation& theirs,
                           const std::vector<int>& many, const Operation& others) {
  return fmt::format("{} called {} as operation {} where {} called {}", say_ranks(few), say(theirs),
                     theirs.number, say_ranks(many), say(others));
}

std::string say_stuck_proxy(const RankStatus& of) {
  return fmt::format(
      "rank {} on {} has network data to move, and the thread for it has not run for {:.1f} s "
      "(stopped, or without a CPU)",
      of.rank, of.host, of.proxy_stuck_s);
}

std::string say_undelivered(const RankStatus& from, const RankStatus& to,
                            const std::string& where) {
  return fmt::format("the network does not deliver what rank {} on {} has sent to rank {} on {}{}",
                     from.rank, from.host, to.rank, to.host, where);
}

std::string say_unreduced(const RankStatus& of) {
  return fmt::format(
      "the network that reduces between hosts does not return what its heads have sent: rank {} on "
      "{} waits for it at step {}",
      of.rank, of.host, of.waits.step);
}

std::string say_not_begun(const RankStatus& of, const Operation& op, OpState state) {
  const Operation* const before = of.running();
  if (state == OpState::launched && before == nullptr && of.shortage.empty()) {
    return fmt::format(
        "rank {} on {} has launched {}, and its kernel waits for nobody: it is behind other work, "
        "or it computes",
        of.rank, of.host, say_numbered(op));
  }
  return fmt::format("rank {} on {} has not begun {} ({} behind {})", of.rank, of.host,
                     say_numbered(op), name(state),
                     before != nullptr      ? say_numbered(*before)
                     : !of.shortage.empty() ? of.shortage
                                            : "other work");
}

std::string say_circle(const std::vector<int>& ranks, int least) {
  return fmt::format("ranks {} wait for each other in a circle (rank {} is the least far)",
                     fmt::join(ranks, ", "), least);
}

std::string say_elsewhere(const RankStatus& of) {
  return fmt::format("rank {} on {} runs something else or nothing ({})", of.rank, of.host,
                     say_last(of));
}

std::string say_not_left(const std::vector<int>& late, const RankStatus& one,
                         const std::vector<int>& others) {
  return fmt::format("{} on {} {} not left {}, as {} {} (slow, or cut off)", say_ranks(late),
                     one.host, late.size() == 1 ? "has" : "have", one.rendezvous, say_ranks(others),
                     others.size() == 1 ? "has" : "have");
}

std::string say_other_step(const RankStatus& of, const std::string& what) {
  return fmt::format("rank {} on {} is in {} where the others are in {}", of.rank, of.host,
                     of.rendezvous, what);
}

}  // namespace ccl::detail
