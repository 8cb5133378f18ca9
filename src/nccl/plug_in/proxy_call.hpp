#pragma once

#include <ccl/comm/communicator.hpp>

#include <memory>
#include <vector>

#include "nccl/plug_in/proxy_events.hpp"
#include <driver_types.h>

namespace ccl::detail::nccl {

/// Tells the proxy's events where a call begins and ends, during the lifetime of this object.
///
/// Calls of CPU ranks run meanwhile. On a GPU the begin and the end are host functions on its
/// stream, before and behind the call. So the counts of the wires at the end are those that the
/// call's kernels left. A call that is captured tells nothing, because its replays have no events.
class ProxyCall {
 public:
  /// `proxies`: null for a call without such events.
  ProxyCall(std::shared_ptr<ProxyEvents> proxies, const Communicator& comm, cudaStream_t stream,
            std::vector<ProxyEvents::Parent> parents);
  ~ProxyCall();
  ProxyCall(const ProxyCall&) = delete;
  ProxyCall& operator=(const ProxyCall&) = delete;

 private:
  struct Mark;
  bool put_mark(bool begins);
  std::vector<int> compositions() const;

  std::shared_ptr<ProxyEvents> proxies_;  // null: it tells nothing
  const Communicator& comm_;
  const cudaStream_t stream_;
  const bool on_cpu_;
  ProxyEvents::CallPtr call_;
  Word before_ = 0;  // the latest operation in the flight recorder
};

}  // namespace ccl::detail::nccl
