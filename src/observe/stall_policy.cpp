#include "comm/observe/stall_policy.hpp"

#include <algorithm>
#include <cmath>

#include "base/report_text.hpp"

namespace ccl::detail {
namespace {
constexpr double early_s = 2.5;    // of the first question
constexpr double rank_s = 0.02;    // of the first question, for each rank of a large job
constexpr double confirm_s = 1;    // between two answers that state the same certain cause
constexpr int max_candidates = 5;  // that are asked about again at once
constexpr double slot_s = 0.5;     // between the first questions of two ranks
constexpr int slots = 2;           // that the first question waits at most
constexpr double min_yield_s = 10;
constexpr double min_pause_s = 1;  // shorter pauses say nothing
constexpr double margin = 2;       // between the pauses of the history and an unusual one
constexpr double half_life_s =
    7200;  // of the longest pause: one that does not come again is forgotten
}  // namespace

double StallPolicy::bound_s() const {
  return std::max(limit_s_, margin * longest_s(since_s_));
}

double StallPolicy::longest_s(double now_s) const {
  return longest_s_ * std::exp2(-(now_s - longest_at_s_) / half_life_s);
}

double StallPolicy::first_look_s() const {
  // The typical pause counts, so that one long pause does not delay later questions.
  auto sorted = pauses_;
  std::nth_element(sorted.begin(), sorted.begin() + sorted.size() / 2, sorted.end());
  const double typical_s = sorted[sorted.size() / 2];
  const double soon_s = std::max(early_s, rank_s * ranks_);
  return std::min(bound_s(), std::max(std::min(soon_s, limit_s_), margin * typical_s));
}

void StallPolicy::begin(double now_s, Word ticket, Word moved) {
  end(now_s);
  ++pause_count_;
  ticket_ = ticket;
  moved_ = moved;
  since_s_ = now_s;  // as of which the history counts
  distance_s_ = first_look_s();
  next_s_ = now_s + distance_s_ + slot_s * std::min(rank_, slots);
}

void StallPolicy::end(double now_s) {
  const double pause_s = quiet_s(now_s);
  if (pause_s >= min_pause_s) {
    pauses_[next_pause_++ % pauses_.size()] = pause_s;
    longest_s_ = std::max(longest_s(now_s), pause_s);
    longest_at_s_ = now_s;
  }
  ticket_ = moved_ = 0;
  leads_ = false;
  candidate_ = logged_ = {};
  candidates_ = 0;
}

bool StallPolicy::look(double now_s, Word ticket, Word moved) {
  if (ticket == 0) {
    end(now_s);
    return false;
  }
  if (ticket == ticket_ && moved_ == 0) moved_ = moved;  // the first look does not read it
  if (ticket != ticket_ || moved > moved_) {
    begin(now_s, ticket, moved);
    return false;
  }
  if (asking_ || now_s < next_s_) return false;
  asking_ = leads_ = true;
  asked_s_ = now_s;
  return true;
}

void StallPolicy::yield(double now_s) {
  if (ticket_ == 0) return;
  next_s_ = std::max(next_s_, now_s + std::max(min_yield_s, margin * quiet_s(now_s)));
}

void StallPolicy::schedule(double now_s) {
  const double bound = since_s_ + bound_s();
  distance_s_ *= 2;
  next_s_ = now_s + distance_s_;
  if (now_s < bound) next_s_ = std::min(next_s_, bound);
}

StallPolicy::Finding StallPolicy::finding_of(const Report& report) {
  Finding finding{report.cause, report.behind, report.waiting, report.operation.number,
                  report.step};
  if (report.behind < 0) finding.cause = Cause::none;
  if (report.cause == Cause::silent_link && finding.behind >= 0) {
    // The head that waits for a network that reduces is named itself.
    const bool is_head = waits_for_network(report.ranks[std::size_t(report.behind)]);
    const int waiting = is_head ? report.behind : report.waiting;
    if (waiting >= 0) finding.network_bytes = report.ranks[std::size_t(waiting)].network_bytes;
  }
  return finding;
}

bool StallPolicy::differs_from_logged(const Finding& finding) const {
  return logged_.cause != finding.cause || logged_.behind != finding.behind ||
         logged_.number != finding.number;
}

bool StallPolicy::judge(double now_s, const Report& report) {
  asking_ = false;
  if (ticket_ == 0) return false;
  const Finding finding = finding_of(report);
  if (certain(finding.cause) && finding != candidate_) {
    candidate_ = finding;
    if (++candidates_ > max_candidates) {
      schedule(now_s);
    } else {
      next_s_ = asked_s_ + confirm_s;
    }
    return false;
  }
  if (!certain(finding.cause)) candidate_ = {};
  const bool logs = finding.cause != Cause::none && differs_from_logged(finding) &&
                    (certain(finding.cause) || quiet_s(now_s) >= bound_s());
  if (logs) logged_ = finding;
  schedule(now_s);
  return logs;
}

void StallPolicy::give_up(double now_s) {
  asking_ = false;
  schedule(now_s);
}

}  // namespace ccl::detail
