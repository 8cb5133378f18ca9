#include "nccl/plug_in/proxy_events.hpp"

#include <ccl/detail/lanes/host_memory.hpp>

#include <algorithm>
#include <limits>
#include <map>
#include <mutex>
#include <utility>

#include "base/exceptions.hpp"
#include <unistd.h>

namespace ccl::detail::nccl {
namespace {

using Event = Profile::Event;
using Call = ProxyEvents::Call;
using CallPtr = ProxyEvents::CallPtr;
constexpr Word no_end = std::numeric_limits<Word>::max();

/// Steps of a line that one call moves.
struct LineCall {
  CallPtr of;
  Event event;
  std::map<Word, Event> steps;  // on their way
  Word until = no_end;          // first step of the next call, once it is known
  Word seen = 0;                // one more than the last step that has moved
  bool is_over() const { return steps.empty() && seen >= until; }
};

/// The event of the call that has this line's steps; null if it is not of the call. The lines of a
/// level of the communicator have no composition that a call could name.
const ProxyEvents::Parent* parent_of(const Call& call, const TransferLine& line) {
  const auto& compositions = call.compositions;
  const bool narrow = !compositions.empty() && line.composition >= 0;
  if (narrow && !std::ranges::count(compositions, line.composition)) return nullptr;
  const auto found = std::ranges::find_if(call.parents, [&](const ProxyEvents::Parent& one) {
    return one.peer < 0 || (one.peer == line.peer && one.sends == line.sends);
  });
  return found == call.parents.end() ? nullptr : &*found;
}

}  // namespace

/// State that the lines share, which may outlive the communicator's calls.
struct ProxyEvents::State {
  explicit State(Profile& of) : profile{&of} {}

  /// The running call that moves steps over a line, or null. Calls that are known to use the line
  /// come first.
  CallPtr call_on(const TransferLine& line) const {
    for (const bool known : {true, false}) {
      for (const CallPtr& one : running) {
        if (one->compositions.empty() != known && parent_of(*one, line) != nullptr) return one;
      }
    }
    return nullptr;
  }
  void turn(ProxyTurn to, int tasks) {
    EventStateArguments more{};
    more.proxy_ops = tasks;
    switch (to) {
      case ProxyTurn::idle:
        return begin_control().record(state_proxy_idle, more);
      case ProxyTurn::active:
        return begin_control().record(state_proxy_active, more);
      case ProxyTurn::sleeps:
        sleep = begin_control();
        return sleep.record(state_proxy_sleep, more);
      case ProxyTurn::woken:
        sleep.record(state_proxy_wakeup, more);
        sleep = {};
        return;
      case ProxyTurn::adds:
        addition = begin_control();
        return addition.record(state_proxy_append, more);
      case ProxyTurn::added:
        addition.record(state_proxy_append_end, more);
        addition = {};
        return;
    }
  }

  /// Event that a network plug-in has begun for a step of a line.
  struct OfPlugIn {
    const Line* line;
    Event event;
  };

  std::mutex mutex;
  Profile* profile;              // null: closed
  std::vector<CallPtr> running;  // in the order of their begin
  std::vector<Line*> lines;
  Event sleep, addition;  // of the proxy's thread
  std::map<Word, OfPlugIn> of_plug_in;
  Word numbers = 0;  // of those

 private:
  Event begin_control() {
    if (!profiler_wants(event_proxy_ctrl)) return {};
    return {*profile, profile->description(event_proxy_ctrl, nullptr)};
  }
};

class ProxyEvents::Line final : public LineListener {
 public:
  Line(std::shared_ptr<State> state, const TransferLine& of, Index slot_bytes,
       const LineCounts& counts)
      : state_{std::move(state)}, of_{of}, slot_bytes_{slot_bytes}, counts_{counts} {
    const std::lock_guard lock{state_->mutex};
    state_->lines.push_back(this);
  }
  ~Line() override { leave(); }

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
      LineCall* const call = call_with(step);
      if (call == nullptr) return;
      if (!of_.sends) {
        record(*call, step, state_recv_flush_wait, bytes);
        record(*call, step, state_recv_gpu_wait, 0);
      }
      call->steps.erase(step);
      call->seen = std::max(call->seen, step + 1);
      end_calls();
    });
  }
  void closed() noexcept override { leave(); }

  Word begin_of_plug_in(Word step, std::int64_t kind, void* data) noexcept override {
    Word number = 0;
    report([&] {
      LineCall* const call = profiler_wants(event_net) ? call_with(step) : nullptr;
      void* const parent = call == nullptr ? nullptr : call->steps.find(step)->second.handle();
      if (parent == nullptr) return;
      EventDescription what = state_->profile->description(event_net, parent);
      what.net = {kind, data};
      Event event{*state_->profile, what};
      if (event.handle() == nullptr) return;
      number = ++state_->numbers;
      state_->of_plug_in.try_emplace(number, State::OfPlugIn{this, std::move(event)});
    });
    return number;
  }
  void update_of_plug_in(Word event, void* data) noexcept override {
    report([&] {
      const auto found = state_->of_plug_in.find(event);
      if (found == state_->of_plug_in.end()) return;
      EventStateArguments more{};
      more.data = data;
      found->second.event.record(state_net_update, more);
    });
  }
  void end_of_plug_in(Word event) noexcept override {
    report([&] { state_->of_plug_in.erase(event); });
  }

  // The caller of these holds the mutex.
  /// A call begins, and no other runs: what is posted before is not of it.
  void call_begins() {
    if (of_.sends && counts_.posted != nullptr) from_ = HostMemory::load_acquire(counts_.posted);
  }
  /// The lanes of the call have ended.
  void call_ended(const CallPtr& of) {
    const Word* const count = of_.sends ? counts_.posted : counts_.drained;
    if (count == nullptr) return;
    const Word until = HostMemory::load_acquire(count);
    LineCall* open = open_call();
    if (open == nullptr && until > std::max(next_, from_)) {
      // The task has seen none of its steps yet.
      const Parent* const parent = parent_of(*of, of_);
      if (parent != nullptr) {
        const Word first = std::max(next_, from_);
        open = &make_call(of, *parent, until - first);
      }
    }
    if (open == nullptr || open->of != of) return;
    open->until = until;
    end_calls();
  }
  void clear() { calls_.clear(); }

 private:
  template <class F>
  void report(F&& f) noexcept {
    (void)completes([&] {
      const std::lock_guard lock{state_->mutex};
      if (state_->profile != nullptr) f();
    });
  }
  void leave() noexcept {
    const std::lock_guard lock{state_->mutex};
    std::erase(state_->lines, this);
    std::erase_if(state_->of_plug_in, [this](const auto& one) { return one.second.line == this; });
    calls_.clear();
    counts_ = {};
  }
  /// Returns the part of the call that has not ended, or null.
  LineCall* open_call() {
    return calls_.empty() || calls_.back().until != no_end ? nullptr : &calls_.back();
  }
  /// The call with this step on its way, or null. Its end may show that the step is behind its last
  /// one.
  LineCall* call_with(Word step) {
    const auto found = std::ranges::find_if(
        calls_, [=](const LineCall& call) { return call.steps.contains(step); });
    return found == calls_.end() ? nullptr : &*found;
  }
  /// Returns what the line moves for the call that has this step, and begins it if such a call
  /// runs; else null. `steps`: how many are known.
  LineCall* call_of(Word step, Word steps) {
    const auto known =
        std::ranges::find_if(calls_, [=](const LineCall& call) { return step < call.until; });
    if (known != calls_.end()) return &*known;
    const CallPtr of = step < from_ ? nullptr : state_->call_on(of_);
    return of == nullptr ? nullptr : &make_call(of, *parent_of(*of, of_), steps);
  }
  LineCall& make_call(const CallPtr& of, const Parent& parent, Word steps) {
    EventDescription what = state_->profile->description(event_proxy_op, parent.event);
    what.proxy_op = {::getpid(), std::uint8_t(of_.channel), of_.peer,
                     int(steps), int(slot_bytes_),          of_.sends};
    LineCall& call = calls_.emplace_back();
    call.of = of;
    call.event = {*state_->profile, what};
    call.event.record(state_proxy_op_in_progress);
    return call;
  }
  void begin(LineCall& call, Word step) {
    if (!profiler_wants(event_proxy_step | event_net) || call.event.handle() == nullptr) {
      call.steps.try_emplace(step);  // counted all the same
      return;
    }
    if (call.steps.contains(step)) return;
    EventDescription what = state_->profile->description(event_proxy_step, call.event.handle());
    what.proxy_step.step = int(step);
    const auto at = call.steps.try_emplace(step, Event{*state_->profile, what}).first;
    if (of_.sends) at->second.record(state_send_peer_wait);
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
  LineCounts counts_;            // null: the task has ended
  std::vector<LineCall> calls_;  // oldest first
  Word next_ = 0;                // one more than the last step that the task has seen
  Word from_ = 0;                // first step that a running call may have posted
};

ProxyEvents::ProxyEvents(Profile& profile) : state_{std::make_shared<State>(profile)} {}

ProxyEvents::~ProxyEvents() {
  close();
}

std::shared_ptr<LineListener> ProxyEvents::line(const TransferLine& of, Index slot_bytes,
                                                const LineCounts& counts) {
  // Of several streams, the first one has a part of every step.
  if (of.stream != 0) return nullptr;
  return std::make_shared<Line>(state_, of, slot_bytes, counts);
}

void ProxyEvents::turned(ProxyTurn to, int tasks) noexcept {
  const bool ends = to == ProxyTurn::woken || to == ProxyTurn::added;
  if (!ends && !profiler_wants(event_proxy_ctrl)) return;
  const std::lock_guard lock{state_->mutex};
  if (state_->profile != nullptr) state_->turn(to, tasks);
}

bool ProxyEvents::has_lines() const {
  const std::lock_guard lock{state_->mutex};
  return !state_->lines.empty();
}

void ProxyEvents::begin(const CallPtr& call) {
  const std::lock_guard lock{state_->mutex};
  std::erase_if(call->parents, [](const Parent& one) { return one.event == nullptr; });
  if (state_->profile == nullptr || call->over || call->parents.empty()) return;
  if (state_->running.empty()) {
    for (Line* const line : state_->lines) line->call_begins();
  }
  state_->running.push_back(call);
}

void ProxyEvents::narrow(const CallPtr& call, std::vector<int> compositions) {
  const std::lock_guard lock{state_->mutex};
  call->compositions = std::move(compositions);
}

void ProxyEvents::end(const CallPtr& call) {
  const std::lock_guard lock{state_->mutex};
  call->over = true;
  if (std::erase(state_->running, call) == 0) return;
  for (Line* const line : state_->lines) line->call_ended(call);
}

void ProxyEvents::close() {
  const std::lock_guard lock{state_->mutex};
  state_->of_plug_in.clear();
  state_->sleep = {};
  state_->addition = {};
  for (Line* const line : state_->lines) line->clear();
  state_->profile = nullptr;
  state_->running.clear();
}

}  // namespace ccl::detail::nccl
