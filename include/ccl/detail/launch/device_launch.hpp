#pragma once

#include <ccl/comm/stream.hpp>
#include <ccl/detail/exec/kernel_registry.hpp>
#include <ccl/detail/launch/device_copy.hpp>
#include <ccl/detail/launch/errors.hpp>
#include <ccl/detail/launch/host_launch.hpp>
#include <ccl/detail/runtime/connections.hpp>

#include <memory>

namespace ccl::detail {

/// Applies the reduction to a rank's own data, in a communicator of one rank.
template <class R>
Result<void> reduce_alone_on_device(const Connections& connections, const R& reduction,
                                    const void* input, void* output, Index count, Stream stream) {
  if constexpr (!R::prepares) {
    return copy_on_device(connections.comm(), output, input,
                          count * Index{sizeof(typename R::Type)}, stream);
  } else {
    const auto kernel = AloneKernels<R>::launch;
    if (kernel == nullptr) return fail(no_device_code(connections));
    CCL_CHECK(check_ready(connections.comm()));
    const DeviceTarget target{connections.comm().device(), stream.cuda()};
    const int code = in_context(connections.comm(),
                                [&] { return kernel(reduction, input, output, count, target); });
    if (code != 0) return fail(cuda_failed(connections, code));
    return {};
  }
}

/// Reduces, or moves, the data of the only rank of a communicator.
template <class R>
Result<void> run_alone(const std::shared_ptr<Connections>& connections, const R& reduction,
                       const void* in, void* out, Index count, Stream stream) {
  if constexpr (reduces<R>) register_kernels<AloneKernels<R>>();
  if (connections->on_device()) {
    if constexpr (reduces<R>) {
      return reduce_alone_on_device(*connections, reduction, in, out, count, stream);
    } else {
      return copy_on_device(connections->comm(), out, in, count, stream);
    }
  }
  return queue_on_host(*connections, stream,
                       [reduction, in, out, count, keep = connections]() -> Result<void> {
                         alone(loaded(reduction), in, out, count);
                         return {};
                       });
}

}  // namespace ccl::detail
