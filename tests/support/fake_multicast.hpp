#pragma once

// Calls of NVLink multicast over `FakeGpus`. An object is a file, as other memory of these GPUs, so
// that what one rank stores to all lands in one place. The real driver is never asked.
#include <atomic>
#include <mutex>
#include <string>
#include <thread>

#include "gpu/multicast.hpp"
#include "support/fake_gpus.hpp"

namespace ccl::test {

struct FakeMulticast {
  /// In the place of the driver's calls, with nothing called so far.
  static FakeMulticast& install() {
    FakeMulticast& all = instance();
    detail::use_multicast_driver(calls());
    const std::lock_guard lock{all.mutex};
    all.called.clear();
    all.failing.clear();
    all.stuck.clear();
    all.device = -1;
    all.devices = all.added = 0;
    all.early_binds = 0;
    all.grain = 2 << 20;
    all.lent_bytes = 0;
    return all;
  }
  /// Calls of all ranks, in order.
  std::string so_far() {
    const std::lock_guard lock{mutex};
    return called;
  }
  int times(const std::string& call) {
    const std::string all = " " + so_far() + " ";
    int found = 0;
    for (std::size_t at = 0; (at = all.find(" " + call + " ", at)) != all.npos; ++at) ++found;
    return found;
  }

  std::string failing;  // call that fails
  std::string stuck;    // call that does not return until this is cleared
  int device = -1;      // on which they do; -1: on all
  std::atomic<std::size_t> grain{2 << 20};
  std::size_t lent_bytes = 0;  // of the latest bind of memory by its address
  int early_binds = 0;         // binds before all GPUs were added, for which the driver would wait

 private:
  static FakeMulticast& instance() {
    static FakeMulticast* const all = new FakeMulticast;
    return *all;
  }
  bool holds(const std::string& which, const char* call, int on) {
    const std::lock_guard lock{mutex};
    return which == call && (device < 0 || device == on);
  }
  static CUresult note(const char* call, int on) {
    FakeMulticast& all = instance();
    {
      const std::lock_guard lock{all.mutex};
      all.called += std::string(all.called.empty() ? "" : " ") + call;
    }
    while (all.holds(all.stuck, call, on)) {
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
    return all.holds(all.failing, call, on) ? CUDA_ERROR_SYSTEM_NOT_READY : CUDA_SUCCESS;
  }
  static detail::MulticastDriver calls() {
    detail::MulticastDriver calls;
    calls.create = [](CUmemGenericAllocationHandle* handle, const CUmulticastObjectProp* how) {
      const int fd = ::memfd_create("fake-multicast", MFD_CLOEXEC);
      if (fd < 0 || ::ftruncate(fd, off_t(how->size)) != 0) return CUDA_ERROR_OUT_OF_MEMORY;
      *handle = reinterpret_cast<std::uintptr_t>(new fake::Handle{fd, 0});
      {
        const std::lock_guard lock{instance().mutex};
        instance().devices = int(how->numDevices);
        instance().added = 0;
      }
      return note("create", fake::current());
    };
    calls.add_device = [](CUmemGenericAllocationHandle, CUdevice device) {
      const CUresult result = note("add", device);
      const std::lock_guard lock{instance().mutex};
      ++instance().added;
      return result;
    };
    calls.bind_mem = [](CUmemGenericAllocationHandle, std::size_t, CUmemGenericAllocationHandle,
                        std::size_t, std::size_t, unsigned long long) {
      {
        const std::lock_guard lock{instance().mutex};
        instance().early_binds += instance().added < instance().devices;
      }
      return note("bind", fake::current());
    };
    calls.bind_addr = [](CUmemGenericAllocationHandle, std::size_t, CUdeviceptr at,
                         std::size_t bytes, unsigned long long) {
      {
        const std::lock_guard lock{instance().mutex};
        if (at % instance().grain != 0 || bytes % instance().grain != 0) {
          return CUDA_ERROR_INVALID_VALUE;
        }
        instance().lent_bytes = bytes;
        instance().early_binds += instance().added < instance().devices;
      }
      return note("bind_addr", fake::current());
    };
    calls.unbind = [](CUmemGenericAllocationHandle, CUdevice device, std::size_t, std::size_t) {
      return note("unbind", device);
    };
    calls.get_granularity = [](std::size_t* bytes, const CUmulticastObjectProp*,
                               CUmulticastGranularity_flags) {
      *bytes = instance().grain;
      return note("granularity", fake::current());
    };
    return calls;
  }

  std::mutex mutex;
  std::string called;
  int devices = 0, added = 0;  // of the latest object
};

}  // namespace ccl::test
