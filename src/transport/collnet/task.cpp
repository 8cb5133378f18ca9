#include <ccl/detail/lanes/host_memory.hpp>
#include <ccl/detail/runtime/proxy_engine.hpp>
#include <ccl/transport/proxy_task.hpp>

#include <algorithm>
#include <cstddef>
#include <deque>
#include <utility>

#include "transport/collnet/rail.hpp"

namespace ccl::detail::collnet {
namespace {

/// Drives the steps of one channel, in order: posted by the lanes, started, done, posted to the
/// lanes. A step that is larger than one operation of the network takes several.
///
/// A step starts when the slot of its result is free, so a result never waits for one. A
/// reduce-scatter of another host's part has none here.
class RailTask final : public ProxyTask {
 public:
  explicit RailTask(std::shared_ptr<Rail> rail) : rail_{std::move(rail)} {
    const Device& device = rail_->network->devices()[std::size_t(rail_->device)];
    most_ = Index(std::min<std::size_t>(device.max_reduced_bytes, collnet::max_bytes));
    goes_first = true;
    calls_library = true;
    call_limit_s_ = rail_->context.proxy->operation_limit_s() / 2;
  }

  Progress progress(ProxyCounters& counters) override {
    const bool closing = ending();  // before the check of `posted`: no more steps are posted
    if (!works()) return closing ? Progress::ended : Progress::none;
    const bool moved = complete(counters);
    const bool began = works() && start();
    if (closing && (done_ == posted() || !works())) return Progress::ended;
    return moved || began ? Progress::some : Progress::none;
  }
  ProxyInterest interest() const override {
    ProxyInterest interest;
    if (!works()) {
      interest.pending = ending();
      return interest;
    }
    interest.pending = ending() || (!refused_ && may_start());
    interest.polled = (rail_->polled && !ending()) || !requests_.empty() || refused_;
    return interest;
  }
  Error left_in_call(const char* function, double seconds, bool) override {
    return rail_->left_in_call(function, seconds);
  }
  Word undelivered() const override { return works() ? posted() - done_ : 0; }
  bool ending() const override { return rail_->closing.load(std::memory_order_acquire); }

 private:
  /// An operation of the network. A null request: it had nothing to do.
  struct Request {
    void* handle = nullptr;
    bool is_last = true;  // of its step
  };
  bool works() const { return !failed_ && rail_->healthy(); }
  void fail_with(const char* function, int code) {
    failed_ = true;
    if (!ending()) rail_->fail_with(function, code);
  }
  Word posted() const { return HostMemory::load_acquire(rail_->up.posted); }
  Word& size_at(const Wire& wire, Word step) const {
    return wire.sizes[step & Word(wire.slot_count - 1)];
  }
  bool is_mine(const NetworkStep& step) const { return step.host == rail_->host_index; }
  bool has_result(const NetworkStep& step) const {
    return step.move != NetworkMove::reduce_scatter || is_mine(step);
  }
  bool may_start() const {
    if (started_ == posted()) return false;
    if (!has_result(NetworkStep::of(size_at(rail_->up, started_)))) return true;
    return placed_ - HostMemory::load_credit(rail_->down.drained) < Word(rail_->down.slot_count);
  }

  /// Starts what may start. Returns true if something has begun.
  bool start() {
    bool began = false;
    refused_ = false;
    while (may_start()) {
      const NetworkStep step = NetworkStep::of(size_at(rail_->up, started_));
      const Index size = size_of(network_types[std::size_t(step.type)]);
      const Index piece = std::min(step.bytes - sent_, std::max(most_ / size, Index{1}) * size);
      void* handle = nullptr;
      if (piece > 0 && !begin(step, piece, handle)) break;
      sent_ += piece;
      const bool is_last = sent_ == step.bytes;
      requests_.push_back({handle, is_last});
      began = true;
      if (!is_last) continue;
      ++started_, sent_ = 0;
      if (has_result(step)) ++placed_;
    }
    return began;
  }
  /// Begins an operation. Returns false if the network takes none now, or has failed. The parts of
  /// all hosts are as long as that of the step, and the window is the piece of it.
  bool begin(const NetworkStep& step, Index piece, void*& handle) {
    const Rail& rail = *rail_;
    const auto at = [&](const Wire& wire, Word slot) {
      return reinterpret_cast<std::byte*>(wire.slot(slot)) + sent_;
    };
    const auto each = std::size_t(step.bytes);
    const PlugIn::Piece whole{at(rail.up, started_),
                              at(rail.down, placed_),
                              rail.up_memory,
                              rail.down_memory,
                              std::size_t(piece),
                              each,
                              each * std::size_t(step.host) + std::size_t(sent_),
                              step.type,
                              int(step.op)};
    const char* const function = function_of(step.move);
    const int code = rail.calls->run(function, call_limit_s_, [&] {
      return rail.network->plug_in().begin(step.move, rail.group, whole, &handle);
    });
    if (code != 0) fail_with(function, code);
    refused_ = code == 0 && handle == nullptr;
    return handle != nullptr && code == 0;
  }

  /// Takes the results that have come. Returns true if there was one.
  bool complete(ProxyCounters& counters) {
    bool any = false;
    while (!requests_.empty()) {
      const Request& first = requests_.front();
      int finished = first.handle == nullptr ? 1 : 0, bytes = 0;
      if (first.handle != nullptr) {
        const int code = rail_->calls->run("test", call_limit_s_, [&] {
          return rail_->network->plug_in().group().test(first.handle, &finished, &bytes);
        });
        if (code != 0) {
          fail_with("test", code);
          return any;
        }
      }
      if (finished == 0) break;
      const bool is_last = first.is_last;
      requests_.pop_front();
      if (is_last) give(counters);
      any = true;
    }
    return any;
  }
  /// Posts the result of the oldest step to the lanes, and gives them the slot of its input.
  void give(ProxyCounters& counters) {
    const NetworkStep step = NetworkStep::of(size_at(rail_->up, done_));
    if (has_result(step)) {
      size_at(rail_->down, given_) = Word(step.bytes);
      HostMemory::store_release(rail_->down.posted, ++given_);
    }
    HostMemory::store_credit(rail_->up.drained, ++done_);
    ++counters.steps;
    counters.bytes += Word(step.bytes);
  }

  const std::shared_ptr<Rail> rail_;
  double call_limit_s_ = 0;      // of a call to the plug-in; 0: none
  Index most_ = 0;               // bytes of one operation
  Word started_ = 0, done_ = 0;  // steps
  Word placed_ = 0, given_ = 0;  // results of steps that have started, and of those that are done
  Index sent_ = 0;               // bytes of step `started_` that are under way
  bool failed_ = false;          // the plug-in is not called again
  bool refused_ = false;         // the network took no operation at the last try
  std::deque<Request> requests_;
};

}  // namespace

std::shared_ptr<ProxyTask> make_rail_task(std::shared_ptr<Rail> rail) {
  return std::make_shared<RailTask>(std::move(rail));
}

}  // namespace ccl::detail::collnet
