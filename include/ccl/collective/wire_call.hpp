#pragma once

#include <ccl/collective/host_launch.hpp>
#include <ccl/collective/recorder.hpp>
#include <ccl/collective/seats.hpp>

namespace ccl::detail {

/// A call over wires that a group makes.
template <class Op, class Algo, class Proto, class R>
class WireCall final : public RecordedCall {
 public:
  using Work = WireWork<R>;
  WireCall(std::shared_ptr<Links> links, const CallInfo& info, const R& reduction,
           const void* input, void* output, const Layout& layout, int root)
      : RecordedCall{std::move(links), info},
        reduction_{reduction},
        input_{input},
        output_{output},
        layout_{layout},
        root_{root} {}

  Result<void> connect() override {
    CCL_CHECK((check_slices_on_host<Op, Algo, Proto, R>(links())));
    if constexpr (wires_by_root<Op, Algo>) return connect_seats<Op, Algo>(links(), root_);
    return {};
  }
  bool shares_kernel() const override { return true; }
  void run_on_host() override {
    run_wires<Op, Algo, Proto>(links(), reduction_, input_, output_, layout_, root_);
  }
  Work work_on_device() const {
    auto work = links().work(reduction_);
    if (wires_by_root<Op, Algo>) work.trees += Index{work.channels} * root_;
    work.input = input_;
    work.output = output_;
    work.layout = layout_;
    work.root = root_;
    return work;
  }

 private:
  R reduction_;
  const void* input_;
  void* output_;
  Layout layout_;
  int root_;
};

}  // namespace ccl::detail
