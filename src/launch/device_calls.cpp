#include <ccl/detail/map/elements.hpp>
#include <ccl/detail/runtime/connections.hpp>

#include <fmt/format.h>

#include "comm/state.hpp"

namespace ccl::detail {

Result<void> Connections::check_on_device(Stream stream) const {
  CommState& state = *comm_.state();
  if (stream.host() == nullptr) return {};
  return fail(state.annotate(
      {Errc::invalid_argument, fmt::format("{} was given a HostStream (the communicator is on CUDA "
                                           "device {}); give it a cudaStream_t",
                                           name_, state.config.device)}));
}

Result<DeviceTarget> Connections::begin_on_device(CallInfo info, Stream stream,
                                            std::shared_ptr<void> keep) {
  CCL_CHECK(check_on_device(stream));
  CCL_CHECK(begin(noted(info)));
  return queue_on_device(stream, keep ? std::move(keep) : shared_from_this());
}

Result<DeviceTarget> Connections::queue_on_device(Stream stream, std::shared_ptr<void> keep) {
  CommState& state = *comm_.state();
  if (auto done = state.order->before(stream.cuda(), keep); !done) {
    return fail(state.annotate(std::move(done).error()));
  }
  return DeviceTarget{state.config.device, stream.cuda(), state.max_blocks,
                      state.ranks_on_gpu == 1, plan_.channel_bytes};
}

Result<void> Connections::finish_on_device(int code, Stream stream) {
  CommState& state = *comm_.state();
  if (code != 0) {
    state.order->give_up();
    return fail(cuda_failed(code));
  }
  if (auto done = state.order->after(stream.cuda()); !done) {
    return fail(state.annotate(std::move(done).error()));
  }
  return {};
}

Result<void> Connections::copy(void* to, const void* from, Index bytes, Stream stream) {
  return copy_on_device(comm_, to, from, bytes, stream);
}

Result<void> copy_on_device(const Communicator& comm, void* to, const void* from, Index bytes,
                            Stream stream) {
  CommState& state = *comm.state();
  CCL_CHECK(state.ready());
  if (to == from || bytes == 0) return {};
  const CudaDriver& cuda = state.gpu->driver();
  const auto done = cuda_check(
      cuda.memcpy_async(reinterpret_cast<CUdeviceptr>(to), reinterpret_cast<CUdeviceptr>(from),
                        std::size_t(bytes), stream.cuda()),
      fmt::format("copy {} bytes", bytes));
  if (!done) return fail(state.annotate(done.error()));
  return {};
}

Result<void> launched_own(const Communicator& comm, const std::string& name, int code) {
  if (code == 0) return {};
  const CommState& state = *comm.state();
  if (code > 0)
    return fail(state.annotate(cuda_error(CUresult(code), fmt::format("launch {}", name))));
  return fail(state.annotate(
      {Errc::no_device_code,
       fmt::format("{} has no kernel for a Map of this element type in this program (the "
                   "communicator is on CUDA device {}); include <ccl/ccl.cuh> where it is called, "
                   "and compile that with nvcc",
                   name, state.config.device)}));
}

}  // namespace ccl::detail
