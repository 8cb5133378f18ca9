#include "gpu/shared_handle.hpp"

#include <cstdint>
#include <cstring>

namespace ccl::detail {

bool can_export(const HandleMapping& mapping) {
  constexpr unsigned any = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_FABRIC;
  return (mapping.handle_types & any) != 0;
}

Result<SharedHandle> export_handle(const CudaDriver& cuda, const HandleMapping& mapping) {
  CUmemGenericAllocationHandle handle = 0;
  CCL_CHECK(
      cuda_check(cuda.mem_retain_handle(&handle, reinterpret_cast<void*>(mapping.range.begin)),
                 "find the handle of a mapping"));
  struct Released {
    const CudaDriver& cuda;
    CUmemGenericAllocationHandle handle;
    ~Released() { (void)cuda.mem_release(handle); }
  } const released{cuda, handle};
  // The program may have mapped another handle at this address meanwhile.
  if (allocation_around(cuda, mapping.range.begin).id != mapping.id) {
    return fail(Errc::invalid_argument, "the memory has been unmapped");
  }
  SharedHandle shared;
  shared.bytes = mapping.range.bytes;
  if ((mapping.handle_types & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) == 0) {
    static_assert(sizeof shared.fabric == sizeof(CUmemFabricHandle));
    CCL_CHECK(
        cuda_check(cuda.mem_export(shared.fabric.data(), handle, CU_MEM_HANDLE_TYPE_FABRIC, 0),
                   "export memory to the fabric"));
    return shared;
  }
  int fd = -1;
  CCL_CHECK(cuda_check(cuda.mem_export(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                       "export memory"));
  shared.fd = Fd{fd};
  return shared;
}

Result<CUmemGenericAllocationHandle> import_handle(const CudaDriver& cuda, const Fd& fd,
                                                   std::span<const std::byte, 64> fabric) {
  CUmemGenericAllocationHandle handle = 0;
  CUmemFabricHandle name;
  static_assert(sizeof name == fabric.size());
  std::memcpy(&name, fabric.data(), sizeof name);
  // The driver takes the descriptor in place of a pointer.
  void* const what = fd ? reinterpret_cast<void*>(std::uintptr_t(fd.get())) : &name;
  CCL_CHECK(cuda_check(
      cuda.mem_import(&handle, what,
                      fd ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_FABRIC),
      fd ? "import a peer's memory" : "import memory of another host"));
  return handle;
}

}  // namespace ccl::detail
