#include "support/played/played_gpus.hpp"

#include <cstdio>
#include <cstdlib>

#include "support/pointer_attributes.hpp"
#include <sys/utsname.h>

namespace ccl::test::played {

constinit thread_local int host_of_thread = -1;

namespace {

/// As the driver describes memory: `allocation_around` asks for these.
CUresult describe(unsigned count, CUpointer_attribute* what, void** to, CUdeviceptr at) {
  FakeGpus& all = fake::gpus();
  const std::lock_guard lock{all.mutex};
  const auto next = all.regions.upper_bound(at);
  if (next == all.regions.begin()) return CUDA_ERROR_INVALID_VALUE;
  const auto& [base, region] = *std::prev(next);
  if (at >= base + region.bytes) return CUDA_ERROR_INVALID_VALUE;
  // The address is not used again while it is mapped, so it is the number, too.
  const FakeAllocation memory{base,           region.bytes, CU_MEMORYTYPE_DEVICE, at, region.device,
                              region.fd >= 0, base};
  return answer_attributes(memory, count, what, to);
}

}  // namespace

FakeGpus& install(int devices, int multiprocessors) {
  FakeGpus& all = fake::gpus();
  for (int device = 0; device < devices; ++device) all.multiprocessors[device] = multiprocessors;
  detail::CudaDriver driver = fake::driver();
  add_streams(driver);
  add_graphs(driver);
  driver.pointer_get_attributes = describe;
  ::setenv("CCL_MNNVL_UUID", "1", 0);  // the NVLink domain of all hosts
  detail::use_cuda_driver(driver, devices);
  return all;
}

}  // namespace ccl::test::played

/// In the place of the C library's function, of which the identity of a host is made.
extern "C" int gethostname(char* name, std::size_t bytes) noexcept {
  const int host = ccl::test::played::host_of_thread;
  utsname here{};
  if (host < 0 && ::uname(&here) != 0) return -1;
  const int written = host < 0 ? std::snprintf(name, bytes, "%s", here.nodename)
                               : std::snprintf(name, bytes, "played-%d", host);
  return written >= 0 && std::size_t(written) < bytes ? 0 : -1;
}
