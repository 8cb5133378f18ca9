#include "bootstrap/progress_wait.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "bootstrap/core.hpp"
#include "net/auth.hpp"

namespace ccl::detail {

using namespace net;

namespace {

/// Says that a late rank may be one of the callers that this process has refused.
std::string say_refused(const Lock&, unsigned before) {
  const RefusedCallers& of = refused_callers();
  const unsigned number = of.number - before;
  if (number == 0) return {};
  return fmt::format("; {} caller{} refused, the last from {}", number,
                     number == 1 ? " was" : "s were", of.why);
}

// Without progress: what a rank sent before it departed may still travel through other ranks.
constexpr double last_words_s = 2;
constexpr double others_find_s = 3;  // for another rank to report a stopped rank

std::string say_late(const std::vector<int>& late, const char* setting) {
  if (late.empty()) return fmt::format("somebody is late; {} sets the limit", setting);
  std::string list;
  for (size_t i = 0; i < std::min<size_t>(late.size(), 8); ++i) list += fmt::format(" {}", late[i]);
  return fmt::format("nothing from rank{}{}{}; start them, or raise {}", late.size() > 1 ? "s" : "",
                     list, late.size() >= 8 ? " ..." : "", setting);
}

}  // namespace

ProgressWait::ProgressWait(Bootstrap::Core& core)
    : core_(core), refused_before_(refused_callers().number) {}

Deadline ProgressWait::deadline(const Lock& lock, const Wait& wait) const {
  return wait.limit_s ? Deadline::after(wait.max_s) : core_.formation().deadline(lock);
}

int ProgressWait::departed_of(int needed) const {
  const Status& status = core_.status();
  if (!status.any_departed()) return -1;
  if (needed == all_ranks) return status.departed().front();
  return status.has_departed(needed) ? needed : -1;
}

Result<void> ProgressWait::wait(Lock& lock, const std::function<bool()>& done, const char* what,
                                const std::function<std::vector<int>()>& missing,
                                std::optional<double> limit_s, const char* setting, int needed) {
  const bool endless = limit_s && *limit_s == 0;
  const double max_s = limit_s.value_or(core_.membership().deadline_s);
  Wait wait{done, what, limit_s, setting, max_s, progress_};
  auto until = deadline(lock, wait);
  std::optional<Deadline> last_words;
  for (;;) {
    CCL_CHECK(core_.status().result());
    if (done()) return {};
    CCL_CHECK(core_.shutdown().usable(lock));
    if (wait.seen != progress_) {
      wait.seen = progress_;
      until = deadline(lock, wait);
      last_words.reset();
    }
    if (const int rank = departed_of(needed); rank >= 0) {
      if (!last_words) last_words = Deadline::after(last_words_s);
      if (last_words->passed()) core_.shutdown().lose_departed(lock, rank);
      CCL_CHECK(core_.shutdown().usable(lock));
    }
    if (!endless && until.passed()) {
      std::vector<int> late = core_.formation().missing(lock);
      if (late.empty() && missing) late = missing();
      CCL_TRY(const Overdue end, overdue(lock, wait, late));
      if (end == Overdue::done) return {};
      if (end == Overdue::progressed) continue;
      Error e;
      e.code = Errc::timed_out;
      e.peer = late.empty() ? -1 : late.front();
      e.what = fmt::format("no progress for {} s in {} ({}{})", max_s, what,
                           say_late(late, limit_s ? setting : "CCL_INIT_TIMEOUT"),
                           limit_s ? "" : say_refused(lock, refused_before_));
      core_.membership().complete(e);
      return fail(std::move(e));
    }
    sleep(lock, std::chrono::milliseconds(50));
  }
}

// A late rank of a creation may itself wait for a stopped rank. The error names the stopped rank.
Result<ProgressWait::Overdue> ProgressWait::overdue(Lock& lock, const Wait& wait,
                                                    const std::vector<int>& late) {
  if (wait.limit_s) return Overdue::timed_out;
  if (!core_.sockets().has_ring(lock)) {
    auto root = core_.formation().stopped_root(lock);
    CCL_CHECK(core_.status().result());
    if (wait.done()) return Overdue::done;
    if (wait.seen != progress_) return Overdue::progressed;
    if (!root) return Overdue::timed_out;
    root->what += fmt::format(": no progress for {} s in {}", wait.max_s, wait.what);
    core_.membership().complete(*root);
    return fail(*std::move(root));
  }
  const auto [stopped, asked_all] = core_.statuses().find_unresponsive(lock, late);
  CCL_CHECK(core_.status().result());
  if (wait.done()) return Overdue::done;
  if (wait.seen != progress_) return Overdue::progressed;
  if (!stopped) {
    // The neighbors of a stopped rank find it within the same time. A rank that comes meanwhile was
    // late all the same.
    if (!asked_all) {
      sleep(lock, others_find_s,
            [&] { return !core_.status().ok() || wait.done() || wait.seen != progress_; });
      CCL_CHECK(core_.status().result());
    }
    return Overdue::timed_out;
  }
  Error e;
  e.code = Errc::timed_out;
  e.peer = stopped->rank;
  e.what = fmt::format("{} does not answer (stopped, or cut off): no progress for {} s in {}",
                       describe(*stopped), wait.max_s, wait.what);
  core_.membership().complete(e);
  return fail(std::move(e));
}

}  // namespace ccl::detail
