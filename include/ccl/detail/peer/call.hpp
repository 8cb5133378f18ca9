#pragma once

#include <ccl/detail/launch/call_arguments.hpp>
#include <ccl/detail/launch/recorder.hpp>
#include <ccl/detail/peer/launch.hpp>
#include <ccl/detail/peer/registry.hpp>

namespace ccl::detail {

/// Call over peer memory that a group makes, on GPUs.
template <class Op, class Algo, class Proto, class R>
class PeerCall final : public RecordedCall {
 public:
  using Work = PeerWork<R>;
  PeerCall(std::shared_ptr<Connections> connections, const CallInfo& info,
           const CallArguments<R>& given)
      : RecordedCall{std::move(connections), info}, given_{given} {}

  /// Returns the packets of the call, or 0 if the call is several launches or none.
  Index wants() const override {
    const auto packets = PeerKernels<Op, Algo, Proto, R>::packets_in_group;
    if (packets == nullptr || given_.layout.count < 1) return 0;
    return packets(peer_work<Op, Algo>(connections(), given_));
  }
  Index capacity() const override { return connections().peer_memory().view().half_packets; }
  void run_on_host(Launch&) override {}  // not reached: `create` refused
  /// Returns the work of its share. The work has no elements if the call shares no kernel.
  Work work_on_device() const {
    Work shared = peer_work<Op, Algo>(connections(), given_);
    shared.watch.ticket = ticket();
    shared.first_packet = share.begin;
    if (share.size == 0) shared.layout.count = 0;
    return shared;
  }

 private:
  CallArguments<R> given_;
};

}  // namespace ccl::detail
