#pragma once

#include <ccl/collective/call_arguments.hpp>
#include <ccl/collective/recorder.hpp>
#include <ccl/device_code.hpp>

namespace ccl::detail {

/// A call over a peer view that a group makes, on GPUs.
template <class Op, class Algo, class Proto, class R>
class PeerCall final : public RecordedCall {
 public:
  using Work = PeerWork<R>;
  PeerCall(std::shared_ptr<Links> links, const CallInfo& info, const CallArguments<R>& given)
      : RecordedCall{std::move(links), info}, given_{given} {}

  /// What is a launch or none on its own; all ranks find the same.
  bool shares_kernel() const override {
    const auto fits = PeerKernels<Op, Algo, Proto, R>::fits_one_launch;
    return !apart && fits != nullptr && given_.layout.count > 0 &&
           fits(peer_work<Op, Algo>(links(), given_));
  }
  void run_on_host() override {}  // not reached: `create` refused
  /// Without elements if it shares no kernel.
  Work work_on_device() const {
    Work shared = peer_work<Op, Algo>(links(), given_);
    if (!shares_kernel()) shared.layout.count = 0;
    return shared;
  }

 private:
  CallArguments<R> given_;
};

}  // namespace ccl::detail
