#pragma once

#include <ccl/collective/recorder.hpp>
#include <ccl/device_code.hpp>
#include <ccl/links.hpp>

namespace ccl::detail {

/// What a launch over a peer view is told.
template <class Op, class Algo, class R>
PeerWork<R> peer_work(const Links& links, const R& reduction, const void* input, void* output,
                      const Layout& layout, int root) {
  PeerWork<R> work{reduction};
  work.peers = links.peers();
  work.epoch = links.epoch();
  work.watch = links.watch();
  work.input = input;
  work.output = output;
  work.layout = layout;
  work.layout.split = (layout.split || Op::rooted) && Algo::splits;
  work.root = root;
  return work;
}

/// A call over a peer view that a group makes, on GPUs.
template <class Op, class Algo, class Proto, class R>
class PeerCall final : public RecordedCall {
 public:
  using Work = PeerWork<R>;
  PeerCall(std::shared_ptr<Links> links, const CallInfo& info, const R& reduction,
           const void* input, void* output, const Layout& layout, int root)
      : RecordedCall{std::move(links), info},
        reduction_{reduction},
        input_{input},
        output_{output},
        layout_{layout},
        root_{root} {}

  /// What is a launch or none on its own; all ranks find the same.
  bool shares_kernel() const override {
    const auto fits = PeerKernels<Op, Algo, Proto, R>::fits_one_launch;
    return !apart && fits != nullptr && layout_.count > 0 && fits(work());
  }
  void run_on_host() override {}  // not reached: `create` refused
  /// Without elements if it shares no kernel.
  Work work_on_device() const {
    Work shared = work();
    if (!shares_kernel()) shared.layout.count = 0;
    return shared;
  }

 private:
  Work work() const {
    return peer_work<Op, Algo>(links(), reduction_, input_, output_, layout_, root_);
  }

  R reduction_;
  const void* input_;
  void* output_;
  Layout layout_;
  int root_;
};

}  // namespace ccl::detail
