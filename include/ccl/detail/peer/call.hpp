#pragma once

#include <ccl/detail/launch/call_arguments.hpp>
#include <ccl/detail/launch/recorder.hpp>
#include <ccl/detail/peer/registry.hpp>

namespace ccl::detail {

/// A call over a peer view that a group makes, on GPUs.
template <class Op, class Algo, class Proto, class R>
class PeerCall final : public RecordedCall {
 public:
  using Work = PeerWork<R>;
  PeerCall(std::shared_ptr<Connections> connections, const CallInfo& info,
           const CallArguments<R>& given)
      : RecordedCall{std::move(connections), info}, given_{given} {}

  /// What is a launch or none on its own.
  Index wants() const override {
    const auto packets = PeerKernels<Op, Algo, Proto, R>::packets_in_group;
    if (packets == nullptr || given_.layout.count < 1) return 0;
    return packets(peer_work<Op, Algo>(connections(), given_));
  }
  Index contains() const override { return connections().peers().half_packets; }
  void run_on_host() override {}  // not reached: `create` refused
  /// Without elements if it shares no kernel.
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
