#include "support/played/played_gpus.hpp"

#include <cstdio>
#include <cstdlib>

#include "support/region_attributes.hpp"
#include <sys/utsname.h>

namespace ccl::test::played {

constinit thread_local int host_of_thread = -1;

FakeGpus& install(int devices, int multiprocessors) {
  FakeGpus& all = fake::gpus();
  for (int device = 0; device < devices; ++device) all.multiprocessors[device] = multiprocessors;
  detail::CudaDriver driver = fake::driver();
  add_streams(driver);
  add_graphs(driver);
  driver.pointer_get_attributes = describe_region;
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
