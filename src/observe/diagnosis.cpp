#include "observe/diagnosis.hpp"

#include <ccl/comm/report.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "base/report_text.hpp"
#include "observe/diagnosis_text.hpp"

namespace ccl {

using namespace detail;

namespace {

/// True if two operations of one number agree, as they must on all ranks.
bool same(const Operation& a, const Operation& b) {
  return a.composition == b.composition && a.call == b.call && a.count == b.count &&
         a.root == b.root && std::strcmp(a.what, b.what) == 0 && std::strcmp(a.type, b.type) == 0 &&
         std::strcmp(a.redop, b.redop) == 0;
}

/// Reason for which two operations of one number do not agree.
Cause difference(const Operation& a, const Operation& b) {
  if (a.composition != b.composition || a.call != b.call || std::strcmp(a.what, b.what) != 0) {
    return Cause::other_operation;
  }
  if (std::strcmp(a.type, b.type) != 0) return Cause::other_type;
  if (a.count != b.count) return Cause::other_count;
  return std::strcmp(a.redop, b.redop) != 0 ? Cause::other_reduction : Cause::other_root;
}

class Diagnosis {
 public:
  Diagnosis(std::vector<RankStatus> ranks, int asking, std::vector<int> departed)
      : asking_{asking}, departed_{std::move(departed)} {
    report_.ranks = std::move(ranks);
    for (std::size_t r = 0; r < report_.ranks.size(); ++r) {
      RankStatus& of = report_.ranks[r];
      of.rank = int(r);
      if (of.waits.peer >= count()) of.waits.peer = -1;  // a record of another job
    }
    if (asking_ >= count()) asking_ = -1;
  }

  Report run() {
    find_subject();
    if (subject_ == nullptr) {
      if (!silent().empty()) {
        report_.summary = silent_text() + "; nothing runs";
        report_.behind = silent().front();
        report_.cause = Cause::no_answer;
      } else if (!missed_step()) {
        report_.summary = "no operation runs";
      }
      return std::move(report_);
    }
    report_.operation = *subject_;
    if (const auto quiet = silent(); !quiet.empty()) {
      conclude(first_waited_for(quiet), Cause::no_answer, silent_text());
    } else if (const int gone = waited_for(departed_); gone >= 0) {
      conclude(gone, Cause::no_answer, say_departed(at(gone)));
    } else if (!differs() && !missed() && !stuck() && !undelivered() && !held_up()) {
      in_the_same();
    }
    return std::move(report_);
  }

 private:
  const RankStatus& at(int rank) const { return report_.ranks[std::size_t(rank)]; }
  int count() const { return int(report_.ranks.size()); }

  /// Selects the earliest collective that runs on any rank. If none runs, selects a running message
  /// operation, that of the asking rank first.
  void find_subject() {
    for (const RankStatus& of : report_.ranks) {
      for (const Operation& op : of.operations) {
        if (op.state != OpState::running || op.number == 0) continue;
        if (subject_ == nullptr || op.number < subject_->number) subject_ = &op;
      }
    }
    const auto* own = asking_ >= 0 ? at(asking_).running() : nullptr;
    if (own != nullptr && own->number == 0) subject_ = own;
    for (const RankStatus& of : report_.ranks) {
      if (subject_ == nullptr) subject_ = of.running();
    }
  }

  std::vector<int> silent() const {
    std::vector<int> ranks;
    for (const RankStatus& of : report_.ranks) {
      if (!of.answered && !has_departed(of.rank)) ranks.push_back(of.rank);
    }
    return ranks;
  }
  bool has_departed(int rank) const {
    return std::ranges::find(departed_, rank) != departed_.end();
  }
  std::string silent_text() const {
    const auto ranks = silent();
    // None asks where the accounts are from records.
    return asking_ < 0 ? say_no_record(ranks) : say_no_answer(ranks, at(ranks.front()));
  }

  /// Returns the one of `ranks` at the end of a chain of waiting ranks, or -1. The chain from the
  /// asking rank is tried first.
  int waited_for(const std::vector<int>& ranks) const {
    const auto among = [&](int r) {
      return std::find(ranks.begin(), ranks.end(), r) != ranks.end();
    };
    for (int first = -1; first < count(); ++first) {
      int r = first < 0 ? asking_ : first;
      if (r < 0 || at(r).waits.peer < 0) continue;
      for (int hops = 0; hops < count() && r >= 0 && r < count(); ++hops) {
        if (among(r)) return r;
        r = at(r).waits.peer;
      }
    }
    return -1;
  }
  int first_waited_for(const std::vector<int>& ranks) const {
    const int rank = waited_for(ranks);
    return rank >= 0 ? rank : ranks.front();
  }

  /// Names `rank`, and the rank that waits for it: `waiting`, if that is known.
  void conclude(int rank, Cause cause, const std::string& why, int waiting = -1) {
    report_.behind = rank;
    report_.cause = cause;
    report_.waiting = waiting;
    const auto waits = [&](int r) {
      return r != rank && at(r).answered && at(r).waits.peer == rank && at(r).running() != nullptr;
    };
    if (waiting < 0 && asking_ >= 0 && waits(asking_)) report_.waiting = asking_;
    for (int r = 0; r < count() && report_.waiting < 0; ++r) {
      if (waits(r)) report_.waiting = r;
    }
    report_.summary = why;
    if (subject_ != nullptr && why.find(say(*subject_)) == std::string::npos) {
      report_.summary += " in " + say_numbered(*subject_);
    }
    if (report_.waiting < 0) return;
    report_.step = at(report_.waiting).waits.step;
    report_.summary +=
        fmt::format("; rank {} waits for it at step {}", report_.waiting, report_.step);
  }

  /// Finds the first number at which the ranks have called different operations.
  bool differs() {
    // Ranks may remember many operations, which reports of a file do.
    std::map<Word, std::vector<std::pair<const Operation*, int>>> called;
    for (const RankStatus& of : report_.ranks) {
      for (const Operation& op : of.operations) {
        if (op.number != 0) called[op.number].emplace_back(&op, of.rank);
      }
    }
    for (const auto& [number, by_rank] : called) {
      std::vector<std::pair<const Operation*, std::vector<int>>> kinds;
      for (const auto& [op, rank] : by_rank) {
        auto kind = std::find_if(kinds.begin(), kinds.end(),
                                 [&](const auto& k) { return same(*k.first, *op); });
        if (kind == kinds.end()) kind = kinds.insert(kind, {op, {}});
        kind->second.push_back(rank);
      }
      if (kinds.size() < 2) continue;
      const auto size = [](const auto& a, const auto& b) {
        return a.second.size() < b.second.size();
      };
      const auto few = std::min_element(kinds.begin(), kinds.end(), size);
      auto many = std::max_element(kinds.begin(), kinds.end(), size);
      if (many == few) many = few == kinds.begin() ? few + 1 : kinds.begin();
      subject_ = many->first;
      report_.operation = *subject_;
      conclude(few->second.front(), difference(*few->first, *many->first),
               say_other_call(few->second, *few->first, many->second, *many->first));
      return true;
    }
    return false;
  }

  /// Finds the ranks that have not called the subject.
  bool missed() {
    if (subject_->number == 0) return false;
    std::vector<int> late;
    Word least = subject_->number;
    for (const RankStatus& of : report_.ranks) {
      if (of.called >= subject_->number || has_departed(of.rank)) continue;
      if (of.called < least) late.clear();
      least = std::min(least, of.called);
      if (of.called == least) late.push_back(of.rank);
    }
    if (late.empty()) return false;
    int rank = first_waited_for(late);
    Cause cause = Cause::not_called;
    if (const int caught = in_a_circle_of_communicators(late); caught >= 0) {
      rank = caught;
      cause = Cause::communicators;
    } else {
      cause = cause_elsewhere(at(rank));
    }
    conclude(rank, cause, say_not_called(late, at(rank), say_numbered(*subject_)));
    return true;
  }

  /// Cause of a rank that is not in the subject. A call of all ranks in which others have been,
  /// too, is no other call: it takes longer there, as a creation may.
  Cause cause_elsewhere(const RankStatus& of) const {
    if (of.rendezvous.empty()) return Cause::not_called;
    const bool is_late = std::ranges::any_of(report_.ranks, [&](const RankStatus& other) {
      const bool has_left = other.rendezvous.empty()
                                ? other.rendezvous_number >= of.rendezvous_number
                                : other.rendezvous_number > of.rendezvous_number;
      return other.answered && of.rendezvous_number != 0 && has_left;
    });
    return is_late ? Cause::not_called : Cause::other_step;
  }

  /// Finds the ranks that are not in the call of all ranks, such as `finalize`, in which most of
  /// the others are.
  bool missed_step() {
    std::vector<int> idle;
    std::map<std::string, std::vector<int>> steps;
    for (const RankStatus& of : report_.ranks) {
      if (has_departed(of.rank)) continue;
      (of.rendezvous.empty() ? idle : steps[of.rendezvous]).push_back(of.rank);
    }
    if (steps.empty()) return false;
    const auto size = [](const auto& a, const auto& b) {
      return a.second.size() < b.second.size();
    };
    const auto& [what, many] = *std::ranges::max_element(steps, size);
    const Word number = at(many.front()).rendezvous_number;
    std::vector<int> late;
    for (const int rank : idle) {
      if (number == 0 || at(rank).rendezvous_number < number) late.push_back(rank);
    }
    if (!late.empty()) {
      conclude(late.front(), Cause::not_called, say_not_called(late, at(late.front()), what));
    } else if (steps.size() > 1) {
      if (behind_in_steps(steps)) return true;
      const int other = std::ranges::min_element(steps, size)->second.front();
      conclude(other, Cause::other_step, say_other_step(at(other), what));
    } else if (!idle.empty()) {
      conclude(many.front(), Cause::not_called, say_not_left(many, at(many.front()), idle));
      return true;
    } else {
      return false;
    }
    report_.waiting = many.front();
    return true;
  }

  /// Finds ranks in an earlier call of all ranks than others, which those have left.
  bool behind_in_steps(const std::map<std::string, std::vector<int>>& steps) {
    std::map<Word, std::vector<int>> by_number;
    for (const auto& [what, ranks] : steps) {
      for (const int rank : ranks) by_number[at(rank).rendezvous_number].push_back(rank);
    }
    if (by_number.size() < 2 || by_number.begin()->first == 0) return false;
    std::vector<int> late = by_number.begin()->second;
    std::ranges::sort(late);
    const int ahead = by_number.rbegin()->second.front();
    conclude(late.front(), Cause::not_called,
             say_not_called(late, at(late.front()), at(ahead).rendezvous));
    report_.waiting = ahead;
    return true;
  }

  /// Returns one of `late` that waits in another communicator for the process of a rank that runs
  /// the subject, or -1. That rank waits for it, directly or through others.
  int in_a_circle_of_communicators(const std::vector<int>& late) const {
    for (const int rank : late) {
      const OtherOperation& other = at(rank).elsewhere;
      if (other.text.empty()) continue;
      for (const RankStatus& of : report_.ranks) {
        if (of.rank == rank || !runs(of) || of.pid != other.peer_pid ||
            of.host != other.peer_host) {
          continue;
        }
        int r = of.rank;
        for (int hops = 0; hops < count() && r >= 0 && r < count() && r != rank; ++hops) {
          r = at(r).waits.peer;
        }
        if (r == rank) return rank;
      }
    }
    return -1;
  }

  /// Finds a rank whose proxy does not run.
  bool stuck() {
    std::vector<int> ranks;
    for (const RankStatus& of : report_.ranks) {
      if (of.proxy_stuck_s > 0) ranks.push_back(of.rank);
    }
    if (ranks.empty()) return false;
    const int rank = first_waited_for(ranks);
    conclude(rank, Cause::stuck_proxy, say_stuck_proxy(at(rank)));
    return true;
  }

  /// True if `there`, at the other end of the wire `here`, has done what `here` waits for.
  static bool not_delivered(const WireSteps& here, const WireSteps& there) {
    return here.sends ? there.drained > here.drained : there.filled > here.filled;
  }

  /// True if a rank has done the subject, and its status no longer has wires of the composition. A
  /// rank may destroy the composition then; it has sent all.
  bool has_left(const RankStatus& of, int composition) const {
    const Operation* op = subject_->number == 0 ? nullptr : of.find(subject_->number);
    if (op == nullptr || op->state != OpState::done || op->composition != composition) return false;
    return std::none_of(of.steps.begin(), of.steps.end(),
                        [&](const WireSteps& wire) { return wire.composition == composition; });
  }

  /// Finds a wire of a network on which a rank waits for what its peer has sent.
  bool undelivered() {
    for (int n = -1; n < count(); ++n) {
      const int r = n < 0 ? asking_ : n;
      if (r < 0 || !runs(at(r)) || at(r).waits.peer < 0 || waits_for_network(at(r))) continue;
      const RankStatus& waits = at(r);
      const RankStatus& peer = at(waits.waits.peer);
      for (const WireSteps& here : waits.steps) {
        if (!here.proxied || here.peer != peer.rank) continue;
        if (here.composition != waits.running()->composition) continue;
        if (has_left(peer, here.composition)) {
          conclude(peer.rank, Cause::silent_link,
                   say_undelivered(
                       peer, waits,
                       fmt::format(" in {}, its part of which is done", say_numbered(*subject_))),
                   r);
          return true;
        }
        for (const WireSteps& there : peer.steps) {
          if (there.peer != r || there.channel != here.channel || there.sends == here.sends ||
              there.composition != here.composition || !not_delivered(here, there)) {
            continue;
          }
          conclude(
              peer.rank, Cause::silent_link,
              say_undelivered(peer, waits,
                              fmt::format(": step {} of channel {}",
                                          here.sends ? here.drained : here.filled, here.channel)),
              r);
          return true;
        }
      }
    }
    return false;
  }

  /// State of the subject on a rank that has called it. The status of a GPU rank has only the
  /// latest calls of many ahead, and an earlier one may have ended or not, as these.
  OpState state_of_subject(const RankStatus& of) const {
    if (const Operation* const op = of.find(subject_->number)) return op->state;
    const Operation* const running = of.running();
    const bool behind = running == nullptr || running->number < subject_->number;
    const bool ahead = std::ranges::any_of(of.operations, [&](const Operation& op) {
      return op.state == OpState::launched && op.number > subject_->number;
    });
    return ahead && behind ? OpState::launched : OpState::done;
  }

  /// Finds a rank that has called the subject but has not begun it.
  bool held_up() {
    if (subject_->number == 0) return false;
    std::vector<int> late;
    for (const RankStatus& of : report_.ranks) {
      const OpState state = state_of_subject(of);
      if (state == OpState::queued || state == OpState::launched) late.push_back(of.rank);
    }
    int rank = waited_for(late);
    // A launched operation may have completed meanwhile; a queued one has not begun.
    for (std::size_t i = 0; i < late.size() && rank < 0; ++i) {
      if (state_of_subject(at(late[i])) == OpState::queued) rank = late[i];
    }
    if (rank < 0) return false;
    conclude(rank, at(rank).shortage.empty() ? Cause::queued : Cause::no_place,
             say_not_begun(at(rank), *subject_, state_of_subject(at(rank))));
    return true;
  }

  /// True if this rank runs the subject, as far as its status shows.
  bool runs(const RankStatus& of) const {
    const Operation* op = of.running();
    return op != nullptr && (subject_->number == 0 ? op->composition == subject_->composition
                                                   : op->number == subject_->number);
  }

  /// Follows the waiting from each rank that runs the subject, the asking one first. A network that
  /// reduces is behind only if it ends there for all.
  void in_the_same() {
    int head = -1;  // the least far of those that wait for such a network
    for (int n = -1; n < count(); ++n) {
      const int first = n < 0 ? asking_ : n;
      if (first < 0 || !runs(at(first))) continue;
      std::vector<int> chain;
      int r = first;
      while (runs(at(r)) && at(r).waits.peer >= 0 && !waits_for_network(at(r)) &&
             std::find(chain.begin(), chain.end(), r) == chain.end()) {
        chain.push_back(r);
        r = at(r).waits.peer;
      }
      if (!runs(at(r)) || !waits_for_network(at(r))) {
        conclude_chain(std::move(chain), r);
        return;
      }
      if (head < 0 || at(r).waits.step < at(head).waits.step) head = r;
    }
    if (head >= 0) conclude(head, Cause::silent_link, say_unreduced(at(head)));
  }

  /// `chain`: ranks that run the subject, each of which waits for the next, and the last for `end`.
  void conclude_chain(std::vector<int> chain, int end) {
    const auto circle = std::find(chain.begin(), chain.end(), end);
    if (circle != chain.end()) {
      chain.erase(chain.begin(), circle);
      const int least = *std::min_element(chain.begin(), chain.end(), [&](int a, int b) {
        return at(a).waits.step < at(b).waits.step;
      });
      conclude(least, Cause::circle, say_circle(chain, least));
    } else if (runs(at(end))) {
      conclude(end, Cause::working,
               fmt::format("rank {} on {} waits for nobody", end, at(end).host));
    } else {
      conclude(end, cause_elsewhere(at(end)), say_elsewhere(at(end)));
    }
  }

  Report report_;
  int asking_;
  std::vector<int> departed_;
  const Operation* subject_ = nullptr;  // operation that does not complete
};

}  // namespace

Report diagnose(std::vector<RankStatus> ranks, int asking) {
  return Diagnosis{std::move(ranks), asking, {}}.run();
}

Report detail::diagnose(std::vector<RankStatus> ranks, int asking, std::vector<int> departed) {
  return Diagnosis{std::move(ranks), asking, std::move(departed)}.run();
}

}  // namespace ccl
