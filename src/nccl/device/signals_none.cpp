#include "nccl/device/signals.hpp"

namespace ccl::detail::nccl {
namespace {
// Communicators of a library without device code have no GPU.
Result<void> no_gpu() {
  return fail(Errc::no_device_code, "this libnccl was built without device code");
}
}  // namespace
Result<void> load_signals_on_gpu() {
  return no_gpu();
}
Result<void> put_on_gpu(void*, const void*, std::size_t, std::uint64_t*, std::uint64_t*,
                        cudaStream_t) {
  return no_gpu();
}
Result<void> signal_on_gpu(std::uint64_t*, cudaStream_t) {
  return no_gpu();
}
Result<void> wait_on_gpu(const std::uint64_t*, std::uint64_t*, std::uint64_t, int,
                         const AbortWatch&, cudaStream_t) {
  return no_gpu();
}

}  // namespace ccl::detail::nccl
