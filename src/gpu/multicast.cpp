#include "gpu/multicast.hpp"

#include <ccl/detail/runtime/settings.hpp>

#include <fmt/format.h>

#include <dlfcn.h>

namespace ccl::detail {
namespace {

const MulticastDriver* stand_in = nullptr;

struct Found {
  MulticastDriver calls;
  const char* missing = nullptr;
};
Found find_calls() {
  Found found;
  void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);  // never closed
  const auto find = [&](auto& to, const char* symbol) {
    void* const at = library != nullptr ? ::dlsym(library, symbol) : nullptr;
    if (at == nullptr) found.missing = symbol;
    to = reinterpret_cast<std::remove_reference_t<decltype(to)>>(at);
  };
#define CCL_MULTICAST_DRIVER_TEXT(function) #function
#define CCL_MULTICAST_DRIVER_FIND(member, function) \
  find(found.calls.member, CCL_MULTICAST_DRIVER_TEXT(function));
  CCL_MULTICAST_DRIVER_CALLS(CCL_MULTICAST_DRIVER_FIND)
#undef CCL_MULTICAST_DRIVER_FIND
#undef CCL_MULTICAST_DRIVER_TEXT
  return found;
}

CUmulticastObjectProp object(std::size_t bytes, int devices) {
  CUmulticastObjectProp how{};
  how.numDevices = unsigned(devices);
  how.size = bytes;
  how.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return how;
}
CUmemAllocationProp memory_of(int device) {
  CUmemAllocationProp how{};
  how.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  how.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  how.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return how;
}
std::size_t whole_grains(std::size_t bytes, std::size_t grain) {
  return (bytes + grain - 1) / grain * grain;
}

}  // namespace

Result<const MulticastDriver*> multicast_driver() {
  CCL_TRY(const bool allowed, setting_flag("NVLS_ENABLE"));
  if (!allowed) {
    return fail(Errc::not_supported,
                "NVLink multicast is off; CCL_NVLS_ENABLE=1 allows it, on a machine whose "
                "NVSwitches no other program uses");
  }
  if (stand_in != nullptr) return stand_in;
  CCL_CHECK(cuda_driver());
  static const Found found = find_calls();
  if (found.missing != nullptr) {
    return fail(Errc::not_supported,
                fmt::format("the CUDA driver has no {}; unset CCL_NVLS_ENABLE", found.missing));
  }
  return &found.calls;
}

void use_multicast_driver(const MulticastDriver& driver) {
  static MulticastDriver other;
  other = driver;
  stand_in = &other;
}

Result<std::size_t> multicast_granularity(const std::shared_ptr<Gpu>& gpu, int devices,
                                          std::size_t bytes) {
  CCL_CHECK(MulticastBlock::check(gpu));
  CCL_TRY(const MulticastDriver* const driver, multicast_driver());
  const CUmulticastObjectProp how = object(bytes, devices);
  std::size_t grain = 0;
  CCL_CHECK(cuda_check(driver->get_granularity(&grain, &how, CU_MULTICAST_GRANULARITY_MINIMUM),
                       "ask for the granularity of multicast"));
  return grain;
}

Result<void> MulticastBlock::check(const std::shared_ptr<Gpu>& gpu) {
  CCL_CHECK(multicast_driver());
  CUdevice device = 0;
  int supported = 0;
  CCL_CHECK(cuda_check(gpu->driver().device_get(&device, gpu->device()), "get the device"));
  (void)gpu->driver().device_get_attribute(&supported, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED,
                                           device);
  if (supported == 0) {
    return fail(Errc::not_supported,
                fmt::format("device {} has no NVLink multicast (it takes NVSwitches and sm_90); "
                            "use TwoShot or Direct on one host, Ring or Tree on several",
                            gpu->device()));
  }
  return {};
}

Result<std::unique_ptr<MulticastBlock>> MulticastBlock::begin(std::shared_ptr<Gpu> gpu) {
  CCL_CHECK(check(gpu));
  CCL_TRY(const MulticastDriver* const driver, multicast_driver());
  return std::unique_ptr<MulticastBlock>{new MulticastBlock{std::move(gpu), *driver}};
}

Result<std::unique_ptr<MulticastBlock>> MulticastBlock::create(std::shared_ptr<Gpu> gpu,
                                                               std::size_t bytes, int devices,
                                                               std::byte* lent) {
  CCL_TRY(auto block, begin(std::move(gpu)));
  const Gpu::Current current{*block->gpu_};
  CUmulticastObjectProp how = object(bytes, devices);
  block->lent_ = lent;
  block->bytes_ = bytes;
  if (lent == nullptr) CCL_CHECK(block->round_up(how));
  CCL_CHECK(cuda_check(block->driver_.create(&block->all_.handle, &how),
                       fmt::format("make a multicast object of {} GPUs", devices)));
  return block;
}

Result<void> MulticastBlock::round_up(CUmulticastObjectProp& how) {
  std::size_t grain = 0, own_grain = 0;
  CCL_CHECK(cuda_check(driver_.get_granularity(&grain, &how, CU_MULTICAST_GRANULARITY_RECOMMENDED),
                       "ask for the granularity of multicast"));
  const CUmemAllocationProp own = memory_of(gpu_->device());
  CCL_CHECK(cuda_check(
      gpu_->driver().mem_get_granularity(&own_grain, &own, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
      "ask for the granularity of memory"));
  // Both are powers of two.
  how.size = bytes_ = whole_grains(bytes_, grain > own_grain ? grain : own_grain);
  return {};
}

Result<std::unique_ptr<MulticastBlock>> MulticastBlock::open(std::shared_ptr<Gpu> gpu,
                                                             std::size_t bytes, const Fd& shared,
                                                             std::byte* lent) {
  CCL_TRY(auto block, begin(std::move(gpu)));
  const Gpu::Current current{*block->gpu_};
  block->bytes_ = bytes;
  block->lent_ = lent;
  // The driver takes the descriptor in place of a pointer.
  void* const from = reinterpret_cast<void*>(std::uintptr_t(shared.get()));
  CCL_CHECK(cuda_check(block->gpu_->driver().mem_import(&block->all_.handle, from,
                                                        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
                       "open a multicast object"));
  return block;
}

Result<Fd> MulticastBlock::share() const {
  int fd = -1;
  CCL_CHECK(cuda_check(
      gpu_->driver().mem_export(&fd, all_.handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
      "share a multicast object"));
  return Fd{fd};
}

Result<void> MulticastBlock::add() {
  CUdevice device = 0;
  CCL_CHECK(cuda_check(gpu_->driver().device_get(&device, gpu_->device()), "get the device"));
  return cuda_check(driver_.add_device(all_.handle, device),
                    fmt::format("add device {} to a multicast object", gpu_->device()));
}

Result<void> MulticastBlock::bind() {
  const Gpu::Current current{*gpu_};
  if (lent_ == nullptr) CCL_CHECK(allocate());
  const CUresult result =
      lent_ != nullptr
          ? driver_.bind_addr(all_.handle, 0, reinterpret_cast<CUdeviceptr>(lent_), bytes_, 0)
          : driver_.bind_mem(all_.handle, 0, own_.handle, 0, bytes_, 0);
  CCL_CHECK(cuda_check(result, fmt::format("bind memory of device {} to a multicast object (does "
                                           "Fabric Manager run?)",
                                           gpu_->device())));
  bound_ = true;
  return map(all_, "a multicast object");
}

Result<void> MulticastBlock::allocate() {
  const CUmemAllocationProp how = memory_of(gpu_->device());
  CCL_CHECK(cuda_check(gpu_->driver().mem_create(&own_.handle, bytes_, &how, 0),
                       fmt::format("allocate {} bytes on device {}", bytes_, gpu_->device())));
  CCL_CHECK(map(own_, "memory"));
  return gpu_->clear(own(), bytes_);
}

Result<void> MulticastBlock::map(Mapped& memory, const char* what) {
  const CudaDriver& cuda = gpu_->driver();
  CCL_CHECK(cuda_check(cuda.mem_address_reserve(&memory.at, bytes_, 0, 0, 0), "reserve addresses"));
  CCL_CHECK(cuda_check(cuda.mem_map(memory.at, bytes_, 0, memory.handle, 0),
                       fmt::format("map {}", what)));
  memory.mapped = true;
  CUmemAccessDesc access{};
  access.location = {CU_MEM_LOCATION_TYPE_DEVICE, gpu_->device()};
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return cuda_check(cuda.mem_set_access(memory.at, bytes_, &access, 1),
                    fmt::format("let device {} use {}", gpu_->device(), what));
}

void MulticastBlock::drop(Mapped& memory) {
  const CudaDriver& cuda = gpu_->driver();
  if (memory.mapped) (void)cuda.mem_unmap(memory.at, bytes_);
  if (memory.at != 0) (void)cuda.mem_address_free(memory.at, bytes_);
  if (memory.handle != 0) (void)cuda.mem_release(memory.handle);
}

MulticastBlock::~MulticastBlock() {
  const Gpu::Current current{*gpu_};
  CUdevice device = 0;
  (void)gpu_->driver().device_get(&device, gpu_->device());
  // The object goes when all of its GPUs have released it.
  if (bound_) (void)driver_.unbind(all_.handle, device, 0, bytes_);
  drop(all_);
  drop(own_);
}

}  // namespace ccl::detail
