#include "nccl/plug_in/proxy_call.hpp"

#include <algorithm>
#include <utility>

#include "base/exceptions.hpp"
#include "comm/state.hpp"
#include "nccl/device/host_calls.hpp"

namespace ccl::detail::nccl {
namespace {
constexpr Word max_operations = 64;  // of a call, such as the stages of a hierarchical one

const FlightRecorder* recorder_of(const Communicator& comm) {
  return Access::state(comm)->observers.recorder();
}
}  // namespace

/// Begin or end of a call on its stream. Outlives the call, and perhaps the communicator.
struct ProxyCall::Mark {
  std::shared_ptr<ProxyEvents> proxies;
  ProxyEvents::CallPtr call;
  bool begins;
  static void reached(void* at) {
    (void)completes([&] {
      const std::unique_ptr<const Mark> mark{static_cast<const Mark*>(at)};
      mark->begins ? mark->proxies->begin(mark->call) : mark->proxies->end(mark->call);
    });
  }
};

ProxyCall::ProxyCall(std::shared_ptr<ProxyEvents> proxies, const Communicator& comm,
                     cudaStream_t stream, std::vector<ProxyEvents::Parent> parents)
    : proxies_{std::move(proxies)},
      comm_{comm},
      stream_{stream},
      on_cpu_{comm.peer(comm.rank()).device < 0} {
  // A composition that goes over a network has its lines before a GPU rank calls it.
  if (!on_cpu_ && proxies_ != nullptr && !proxies_->has_lines()) proxies_ = nullptr;
  if (proxies_ == nullptr) return;
  call_ = std::make_shared<ProxyEvents::Call>(ProxyEvents::Call{std::move(parents)});
  if (on_cpu_) {
    proxies_->begin(call_);
    return;
  }
  const FlightRecorder* const recorder = recorder_of(comm_);
  if (recorder != nullptr) before_ = recorder->latest_ticket();
  if (!put_mark(true)) proxies_ = nullptr;
}

ProxyCall::~ProxyCall() {
  if (proxies_ == nullptr) return;
  const bool later =
      !on_cpu_ && completes([this] { proxies_->narrow(call_, compositions()); }) && put_mark(false);
  if (!later) proxies_->end(call_);
}

bool ProxyCall::put_mark(bool begins) {
  bool put = false;
  (void)completes([&] {
    auto mark = std::make_unique<Mark>(Mark{proxies_, call_, begins});
    put = bool(call_behind(stream_, Mark::reached, mark.get()));
    if (put) (void)mark.release();
  });
  return put;
}

/// The compositions that the call has used; empty if that is not known.
std::vector<int> ProxyCall::compositions() const {
  std::vector<int> all;
  const FlightRecorder* const recorder = recorder_of(comm_);
  if (recorder == nullptr) return all;
  const Word latest = recorder->latest_ticket();
  if (latest - before_ > max_operations) return all;
  for (Word ticket = before_ + 1; ticket <= latest; ++ticket) {
    Operation op;
    if (!recorder->read(ticket, op)) return {};
    if (op.composition >= 0 && !std::ranges::count(all, op.composition)) {
      all.push_back(op.composition);
    }
  }
  return all;
}

}  // namespace ccl::detail::nccl
