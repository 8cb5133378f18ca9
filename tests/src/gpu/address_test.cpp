#include "gpu/address.hpp"

#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/pointer_attributes.hpp"

using namespace ccl;
using namespace ccl::detail;

namespace {

/// Allocations of a machine that is not there, and whether its GPUs use the process's own memory.
struct Memory {
  CUdeviceptr begin;
  std::size_t bytes;
  unsigned kind;
  int device;
  bool legacy, reachable;
};
std::vector<Memory> memory;
int all_memory = 0;
int questions = 0;

CUresult attributes(unsigned count, CUpointer_attribute* what, void** to, CUdeviceptr at) {
  ++questions;
  for (const Memory& m : memory) {
    if (at < m.begin || at >= m.begin + m.bytes) continue;
    const test::FakeAllocation found{m.begin,  m.bytes,  m.kind, m.reachable ? at : 0,
                                     m.device, m.legacy, m.begin};
    return test::answer_attributes(found, count, what, to);
  }
  return CUDA_SUCCESS;  // as of an address that the driver does not know: all values stay
}
CUresult device_of(CUdevice* device, int ordinal) {
  *device = ordinal;
  return CUDA_SUCCESS;
}
CUresult attribute(int* value, CUdevice_attribute what, CUdevice) {
  *value = what == CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS ? all_memory : 0;
  return CUDA_SUCCESS;
}

Result<void> look(CUdeviceptr at, Index bytes) {
  CudaDriver driver;
  driver.pointer_get_attributes = attributes;
  driver.device_get = device_of;
  driver.device_get_attribute = attribute;
  return check_address(driver, 0, "send", reinterpret_cast<const void*>(at), bytes);
}
std::string said(CUdeviceptr at, Index bytes) {
  const auto checked = look(at, bytes);
  if (checked) return "fine";
  CHECK(checked.error().code == Errc::invalid_argument);
  return checked.error().what;
}
bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

constexpr unsigned gpu = CU_MEMORYTYPE_DEVICE, host = CU_MEMORYTYPE_HOST;

}  // namespace

TEST_CASE("a GPU's buffers lie in memory that it can use, as long as they are") {
  all_memory = 0;
  memory = {{0x1000, 0x1000, gpu, 0, true, true},   // two neighbors from cudaMalloc
            {0x2000, 0x1000, gpu, 0, true, true},   //
            {0x8000, 0x1000, gpu, 0, false, true},  // two mapped pieces in a row
            {0x9000, 0x1000, gpu, 0, false, true},
            {0x20000, 0x1000, gpu, 1, true, false},   // of a GPU out of reach
            {0x30000, 0x1000, gpu, 1, true, true},    // of a peer
            {0x40000, 0x1000, host, 0, false, true},  // pinned
            {0x50000, 0x1000, gpu, 0, false, true},   // mapped here, out of reach behind
            {0x51000, 0x1000, gpu, 1, false, false}};

  CHECK(said(0x1000, 0x1000) == "fine");
  CHECK(said(0x1800, 0x800) == "fine");
  CHECK(said(0x8800, 0x1800) == "fine");
  CHECK(said(0x30000, 0x1000) == "fine");
  CHECK(said(0x40000, 0x1000) == "fine");

  CHECK(contains(said(0x1800, 0x801),
                 "send has 2049 bytes at 0x1800, but its memory ends after 2048"));
  CHECK(contains(said(0x8800, 0x1801), "ends after 6144"));
  CHECK(contains(said(0x40800, 0x1000), "ends after 2048"));
  CHECK(contains(said(0x70000, 4), "send at 0x70000 is not memory that device 0 can use"));
  CHECK(contains(said(0x20000, 4), "is memory of device 1, which kernels on device 0 cannot use"));
  CHECK(contains(said(0x50800, 0x1000), "memory of device 1"));

  all_memory = 1;
  CHECK(said(0x70000, 4) == "fine");
  CHECK(contains(said(0x1800, 0x801), "ends after 2048"));  // cudaMalloc's ends all the same
  questions = 0;
  CHECK(said(0x1000, 0) == "fine");
  CHECK(questions == 0);
}
