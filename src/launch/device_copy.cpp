#include <ccl/detail/launch/device_copy.hpp>
#include <ccl/detail/map/elements.hpp>

#include <fmt/format.h>

#include "comm/state.hpp"

namespace ccl::detail {

Result<void> copy_on_device(const Communicator& comm, void* to, const void* from, Index bytes,
                            Stream stream) {
  CommState& state = *Access::state(comm);
  CCL_CHECK(state.ready());
  if (to == from || bytes == 0) return {};
  const CudaDriver& cuda = state.device.gpu->driver();
  const Gpu::Current current{*state.device.gpu};  // whose default stream `stream` may be
  const auto done = cuda_check(
      cuda.memcpy_async(reinterpret_cast<CUdeviceptr>(to), reinterpret_cast<CUdeviceptr>(from),
                        std::size_t(bytes), stream.cuda()),
      fmt::format("copy {} bytes", bytes));
  if (!done) return fail(state.annotate(done.error()));
  return {};
}

int in_context(const Communicator& comm, int (*launch)(const void*), const void* with) {
  const Gpu::Current current{*Access::state(comm)->device.gpu};
  return launch(with);
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
