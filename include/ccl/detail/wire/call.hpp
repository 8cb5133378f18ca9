#pragma once

#include <ccl/detail/launch/call_arguments.hpp>
#include <ccl/detail/launch/recorder.hpp>
#include <ccl/detail/wire/launch.hpp>
#include <ccl/detail/wire/peers_of.hpp>
#include <ccl/detail/wire/registry.hpp>

namespace ccl::detail {

/// Call over wires in a group, of any composition.
template <class R>
class AnyWireCall : public RecordedCall {
 public:
  using Work = WireWork<R>;
  AnyWireCall(std::shared_ptr<Connections> connections, const CallInfo& info,
              const WireParts<R>& parts, const CallArguments<R>& given)
      : RecordedCall{std::move(connections), info}, parts_{parts}, given_{given} {}

  Result<void> connect() override { return connect_lanes(connections(), parts_, given_.root); }
  /// One channel or more: see `settle_group`.
  Index wants() const override { return 1; }
  Index capacity() const override { return connections().plan().channels; }
  Index bytes() const override {
    return message_bytes(wire_work_on_device(connections(), parts_, given_));
  }
  void run_on_host(Launch& launch) override {
    launch.run_lanes([&] { parts_.run(connections(), &given_); });
  }
  /// Arguments on the channels of its share. Without a share it has no channels.
  Work work_on_device() const {
    Work work = wire_work_on_device(connections(), parts_, given_);
    work.watch.ticket = ticket();
    work.in += work.row(int(share.begin));
    work.out += work.row(int(share.begin));
    work.rings += share.begin;
    work.trees += share.begin;
    if (work.hosts != nullptr) work.hosts += share.begin;
    work.channels = int(share.size);
    return work;
  }

 private:
  const WireParts<R>& parts_;
  CallArguments<R> given_;
};

/// Call over wires in a group. The type names its kernels.
template <class Op, class Algo, class Proto, class R>
class WireCall final : public AnyWireCall<R> {
 public:
  WireCall(std::shared_ptr<Connections> connections, const CallInfo& info,
           const CallArguments<R>& given)
      : AnyWireCall<R>{std::move(connections), info, wire_parts<Op, Algo, Proto, R, true>, given} {}
};

}  // namespace ccl::detail
