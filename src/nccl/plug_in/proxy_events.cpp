#include "nccl/plug_in/proxy_events.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <mutex>
#include <utility>

#include "base/exceptions.hpp"
#include <unistd.h>

namespace ccl::detail::nccl {
namespace {

constexpr Word no_end = std::numeric_limits<Word>::max();

/// Steps of a line that one call moves.
struct LineCall {
  Profile::Event event;
  std::map<Word, Profile::Event> steps;  // on their way
  Word until = no_end;                   // first step of the next call, once it is known
  Word seen = 0;                         // one more than the last step that has moved
  bool is_over() const { return steps.empty() && seen >= until; }
};

}  // namespace

/// State that the lines share, which may outlive the communicator's calls.
struct ProxyEvents::State {
  explicit State(Profile& of) : profile{&of} {}
  std::mutex mutex;
  Profile* profile;             // null: closed
  std::vector<Parent> parents;  // of the call that runs
  std::vector<Line*> lines;
};

class ProxyEvents::Line final : public LineListener {
 public:
  Line(std::shared_ptr<State> state, const TransferLine& of, Index slot_bytes)
      : state_{std::move(state)}, of_{of}, slot_bytes_{slot_bytes} {
    const std::lock_guard lock{state_->mutex};
    state_->lines.push_back(this);
  }
  ~Line() override {
    const std::lock_guard lock{state_->mutex};
    std::erase(state_->lines, this);
    calls_.clear();
  }

  void posted(Word from, Word until) noexcept override {
    report([&] {
      next_ = std::max(next_, until);
      for (Word step = from; step < until; ++step) {
        if (LineCall* const call = call_of(step, until - step)) begin(*call, step);
      }
    });
  }
  void begun(Word step, Word bytes) noexcept override {
    report([&] {
      next_ = std::max(next_, step + 1);
      LineCall* const call = call_of(step, 1);
      if (call == nullptr) return;
      if (!of_.sends) begin(*call, step);
      record(*call, step, of_.sends ? state_send_wait : state_recv_wait, of_.sends ? bytes : 0);
    });
  }
  void ended(Word step, Word bytes) noexcept override {
    report([&] {
      // A call that has returned in between may know of steps behind its last one.
      const auto has_step = [&](const LineCall& one) { return one.steps.contains(step); };
      const auto call = std::ranges::find_if(calls_, has_step);
      if (call == calls_.end()) return;
      if (!of_.sends) {
        record(*call, step, state_recv_flush_wait, bytes);
        record(*call, step, state_recv_gpu_wait, 0);
      }
      call->steps.erase(step);
      call->seen = std::max(call->seen, step + 1);
      end_calls();
    });
  }

  // The caller of these holds the mutex.
  const TransferLine& of() const { return of_; }
  /// Ends what has no step on its way, whatever it lacks: a further call begins.
  void end_idle() {
    std::erase_if(calls_, [](const LineCall& call) { return call.steps.empty(); });
  }
  /// The call has returned, and has moved all steps before `until`, of which the task may have seen
  /// none yet.
  void limit(Word until) {
    if (until > next_ && !has_call()) (void)call_of(next_, until - next_);
    for (LineCall& call : calls_) {
      if (call.until == no_end) call.until = until;
    }
    end_calls();
  }
  bool has_call() const { return !calls_.empty() && calls_.back().until == no_end; }
  void clear() { calls_.clear(); }

 private:
  template <class F>
  void report(F&& f) noexcept {
    (void)completes([&] {
      const std::lock_guard lock{state_->mutex};
      if (state_->profile != nullptr) f();
    });
  }
  /// Returns what the line moves for the call that has this step; null if nothing has begun.
  LineCall* known_call(Word step) {
    const auto found =
        std::ranges::find_if(calls_, [&](const LineCall& call) { return step < call.until; });
    return found == calls_.end() ? nullptr : &*found;
  }
  /// As `known_call`, and begins it if a call of this line runs. `steps`: how many are known.
  LineCall* call_of(Word step, Word steps) {
    if (LineCall* const known = known_call(step)) return known;
    const auto parent = std::ranges::find_if(state_->parents, [&](const Parent& one) {
      return one.peer < 0 || (one.peer == of_.peer && one.sends == of_.sends);
    });
    if (parent == state_->parents.end()) return nullptr;
    EventDescription what = state_->profile->description(event_proxy_op, parent->event);
    what.proxy_op = {::getpid(), std::uint8_t(of_.channel), of_.peer,
                     int(steps), int(slot_bytes_),          of_.sends};
    LineCall& call = calls_.emplace_back();
    call.event = {*state_->profile, what};
    call.event.record(state_proxy_op_in_progress);
    return &call;
  }
  void begin(LineCall& call, Word step) {
    if (!profiler_wants(event_proxy_step) || call.event.handle() == nullptr) {
      call.steps.try_emplace(step);  // counted all the same
      return;
    }
    EventDescription what = state_->profile->description(event_proxy_step, call.event.handle());
    what.proxy_step.step = int(step);
    const auto [at, is_new] = call.steps.try_emplace(step, Profile::Event{*state_->profile, what});
    if (is_new && of_.sends) at->second.record(state_send_peer_wait);
  }
  static void record(LineCall& call, Word step, EventState state, Word bytes) {
    const auto found = call.steps.find(step);
    if (found == call.steps.end()) return;
    EventStateArguments more{};
    more.bytes = std::size_t(bytes);
    found->second.record(state, more);
  }
  void end_calls() {
    std::erase_if(calls_, [](const LineCall& call) { return call.is_over(); });
  }

  const std::shared_ptr<State> state_;
  const TransferLine of_;
  const Index slot_bytes_;
  std::vector<LineCall> calls_;  // oldest first
  Word next_ = 0;                // one more than the last step that the task has seen
};

ProxyEvents::ProxyEvents(Profile& profile) : state_{std::make_shared<State>(profile)} {}

ProxyEvents::~ProxyEvents() {
  close();
}

std::shared_ptr<LineListener> ProxyEvents::line(const TransferLine& of, Index slot_bytes) {
  // Of several streams, the first one has a part of every step.
  if (of.stream != 0) return nullptr;
  return std::make_shared<Line>(state_, of, slot_bytes);
}

void ProxyEvents::begin_call(std::vector<Parent> parents) {
  const std::lock_guard lock{state_->mutex};
  for (Line* const line : state_->lines) line->end_idle();
  std::erase_if(parents, [](const Parent& one) { return one.event == nullptr; });
  state_->parents = std::move(parents);
}

void ProxyEvents::end_call(std::span<const WireSteps> steps) {
  const std::lock_guard lock{state_->mutex};
  for (Line* const line : state_->lines) {
    const TransferLine& of = line->of();
    const auto found = std::ranges::find_if(steps, [&](const WireSteps& one) {
      return one.composition == of.composition && one.channel == of.channel &&
             one.peer == of.peer && one.sends == of.sends;
    });
    if (found != steps.end()) line->limit(of.sends ? found->filled : found->drained);
  }
  state_->parents.clear();
}

void ProxyEvents::close() {
  const std::lock_guard lock{state_->mutex};
  for (Line* const line : state_->lines) line->clear();
  state_->profile = nullptr;
  state_->parents.clear();
}

}  // namespace ccl::detail::nccl
