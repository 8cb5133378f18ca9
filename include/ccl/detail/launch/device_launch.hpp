#pragma once

#include <ccl/algo/traits.hpp>
#include <ccl/comm/stream.hpp>
#include <ccl/detail/launch/call_arguments.hpp>
#include <ccl/detail/peer/registry.hpp>
#include <ccl/detail/runtime/connections.hpp>
#include <ccl/detail/wire/peers_of.hpp>
#include <ccl/detail/wire/registry.hpp>

#include <mutex>

namespace ccl::detail {

template <class Op, class Algo, class Proto, class R>
Result<void> launch_on_device(Connections& connections, const CallInfo& info,
                              const CallArguments<R>& given, Stream stream) {
  const auto kernels = WireKernels<Op, Algo, Proto, R>::launch;
  if (kernels == nullptr) return fail(connections.no_device_code());
  const std::lock_guard lock{connections.mutex()};
  if (wires_by_root<Op, Algo> && !connections.connected(given.root)) {
    CCL_CHECK(connect_positions(connections, positions_of<Op, Algo>(), given.root));
  }
  CCL_TRY(const DeviceTarget target, connections.begin_on_device(info, stream));
  const auto work = wire_work_on_device<Op, Algo>(connections, given);
  return connections.finish_on_device(kernels(work, target), stream);
}

template <class Op, class Algo, class Proto, class R>
Result<void> launch_over_peers(Connections& connections, const CallInfo& info,
                               const CallArguments<R>& given, Stream stream) {
  register_kernels<PeerKernels<Op, Algo, Proto, R>>();
  const auto kernels = PeerKernels<Op, Algo, Proto, R>::launch;
  if (kernels == nullptr) return fail(connections.no_device_code());
  if (given.layout.count == 0)
    return connections.ready();  // flags of no tile could tell of the launch
  const std::lock_guard lock{connections.mutex()};
  CCL_TRY(const DeviceTarget target, connections.begin_on_device(info, stream));
  const auto work = peer_work<Op, Algo>(connections, given);
  return connections.finish_on_device(kernels(work, target), stream);
}

/// In a communicator of one rank.
template <class R>
Result<void> reduce_alone_on_device(Connections& connections, const R& reduction, const void* input,
                                    void* output, Index count, Stream stream) {
  if constexpr (!R::prepares) {
    return connections.copy(output, input, count * Index{sizeof(typename R::Type)}, stream);
  } else {
    const auto kernel = AloneKernels<R>::launch;
    if (kernel == nullptr) return fail(connections.no_device_code());
    CCL_CHECK(connections.ready());
    const int code =
        kernel(reduction, input, output, count, {connections.comm().device(), stream.cuda()});
    if (code != 0) return fail(connections.cuda_failed(code));
    return {};
  }
}

}  // namespace ccl::detail
