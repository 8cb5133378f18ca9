#pragma once

#include <ccl/detail/launch/call_arguments.hpp>
#include <ccl/detail/launch/recorder.hpp>
#include <ccl/detail/wire/launch.hpp>
#include <ccl/detail/wire/peers_of.hpp>
#include <ccl/detail/wire/registry.hpp>

namespace ccl::detail {

/// Call over wires in a group.
template <class Op, class Algo, class Proto, class R>
class WireCall final : public RecordedCall {
 public:
  using Work = WireWork<R>;
  WireCall(std::shared_ptr<Connections> connections, const CallInfo& info,
           const CallArguments<R>& given)
      : RecordedCall{std::move(connections), info}, given_{given} {}

  Result<void> connect() override {
    CCL_CHECK((check_slices_on_host<Op, Algo, Proto, R>(connections())));
    return connect_wanted<Op, Algo>(connections(), given_.root);
  }
  /// One channel or more: see `settle_group`.
  Index wants() const override { return 1; }
  Index capacity() const override { return connections().plan().channels; }
  Index bytes() const override {
    return message_bytes(wire_work_on_device<Op, Algo>(connections(), given_));
  }
  void run_on_host(Launch&) override { run_wires<Op, Algo, Proto>(connections(), given_); }
  /// Arguments on the channels of its share. Without a share it has no channels.
  Work work_on_device() const {
    Work work = wire_work_on_device<Op, Algo>(connections(), given_);
    work.watch.ticket = ticket();
    work.in += share.begin * work.ranks;
    work.out += share.begin * work.ranks;
    work.rings += share.begin;
    work.trees += share.begin;
    work.channels = int(share.size);
    return work;
  }

 private:
  CallArguments<R> given_;
};

}  // namespace ccl::detail
