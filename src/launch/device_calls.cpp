#include <ccl/detail/map/elements.hpp>
#include <ccl/detail/runtime/connections.hpp>

#include <fmt/format.h>

#include "comm/state.hpp"

namespace ccl::detail {

Result<void> Connections::check_on_device(Stream stream) const {
  CommState& state = *Access::state(comm_);
  if (stream.host() == nullptr) return {};
  return fail(state.annotate(
      {Errc::invalid_argument, fmt::format("{} was given a HostStream (the communicator is on CUDA "
                                           "device {}); give it a cudaStream_t",
                                           name_, state.identity.config().device)}));
}

Result<DeviceTarget> Connections::begin_on_device(CallInfo info, Stream stream,
                                                  std::shared_ptr<void> keep) {
  CCL_CHECK(check_on_device(stream));
  CCL_CHECK(begin(recorded(info)));
  return queue_on_device(stream, keep ? std::move(keep) : shared_from_this());
}

Result<DeviceTarget> Connections::queue_on_device(Stream stream, std::shared_ptr<void> keep) {
  CommState& state = *Access::state(comm_);
  if (auto done = state.device.order->before(stream.cuda(), keep); !done) {
    return fail(state.annotate(std::move(done).error()));
  }
  return DeviceTarget{state.identity.config().device, stream.cuda(), state.device.max_blocks,
                      state.device.ranks_on_gpu == 1, plan_.channel_bytes};
}

Result<void> Connections::finish_on_device(int code, Stream stream) {
  CommState& state = *Access::state(comm_);
  if (code != 0) {
    state.device.order->give_up();
    return fail(cuda_failed(code));
  }
  if (auto done = state.device.order->after(stream.cuda()); !done) {
    return fail(state.annotate(std::move(done).error()));
  }
  return {};
}

Result<void> Connections::copy(void* to, const void* from, Index bytes, Stream stream) {
  return copy_on_device(comm_, to, from, bytes, stream);
}

Result<void> copy_on_device(const Communicator& comm, void* to, const void* from, Index bytes,
                            Stream stream) {
  CommState& state = *Access::state(comm);
  CCL_CHECK(state.ready());
  if (to == from || bytes == 0) return {};
  const CudaDriver& cuda = state.device.gpu->driver();
  const auto done = cuda_check(
      cuda.memcpy_async(reinterpret_cast<CUdeviceptr>(to), reinterpret_cast<CUdeviceptr>(from),
                        std::size_t(bytes), stream.cuda()),
      fmt::format("copy {} bytes", bytes));
  if (!done) return fail(state.annotate(done.error()));
  return {};
}

Result<void> launched_own(const Communicator& comm, const std::string& name, int code) {
  if (code == 0) return {};
  const CommState& state = *Access::state(comm);
  if (code > 0)
    return fail(state.annotate(cuda_error(CUresult(code), fmt::format("launch {}", name))));
  return fail(state.annotate(
      {Errc::no_device_code,
       fmt::format("{} has no kernel for a Map of this element type in this program (the "
                   "communicator is on CUDA device {}); include <ccl/ccl.cuh> where it is called, "
                   "and compile that with nvcc",
                   name, state.identity.config().device)}));
}

}  // namespace ccl::detail
