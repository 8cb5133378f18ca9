#include "gpu.hpp"

namespace ccl::perf::gpu {
namespace {
auto no_code() {
  return fail(Errc::no_device_code,
              "this ccl_perf has no device code (it was built without CUDA); configure with "
              "-DCCL_ENABLE_CUDA=ON");
}
}  // namespace

bool compiled() {
  return false;
}
Facts look() {
  return {};
}
Result<void> select(int) {
  return no_code();
}
int communicator_device(int) {
  return -1;
}
Result<Index> free_memory() {
  return no_code();
}
Result<std::byte*> allocate(Index) {
  return no_code();
}
void release(std::byte*) {}
Result<std::unique_ptr<Queue>> Queue::create(StartGate&, double) {
  return no_code();
}

}  // namespace ccl::perf::gpu
