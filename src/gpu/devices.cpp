#include "gpu/devices.hpp"

#include <ccl/detail/exec/kernel_registry.hpp>
#include <ccl/detail/runtime/settings.hpp>
#include <ccl/topo/discover.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "gpu/driver.hpp"

namespace ccl::detail {

std::string bus_id_text(cuda::std::int64_t bus_id) {
  const auto bits = static_cast<unsigned long long>(bus_id);
  return fmt::format("{:04x}:{:02x}:{:02x}.{:x}", bits >> 20, bits >> 12 & 0xff, bits >> 4 & 0xff,
                     bits & 0xf);
}

cuda::std::int64_t bus_id_of(const std::string& text) {
  cuda::std::int64_t id = 0;
  for (const char c : text) {
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    if (digit >= 0) id = id << 4 | digit;
  }
  return id;
}

namespace {
/// FNV-1a.
cuda::std::uint64_t fnv_hash(std::string_view text) {
  cuda::std::uint64_t hash = 0xcbf2'9ce4'8422'2325u;
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x0000'0100'0000'01b3u;
  }
  return hash;
}
}  // namespace

Result<cuda::std::uint64_t> fabric_domain(const std::string& answer) {
  CCL_TRY(const Index enabled, setting_integer("MNNVL_ENABLE"));
  CCL_TRY(const bool handles, setting_flag("CUMEM_ENABLE"));
  CCL_TRY(const Index uuid, setting_integer("MNNVL_UUID"));
  CCL_TRY(const Index clique, setting_integer("MNNVL_CLIQUE_ID"));
  const std::size_t colon = std::min(answer.find(':'), answer.size());
  std::string cluster = answer.substr(0, colon), part = answer.substr(colon);
  if (uuid >= 0) cluster = fmt::format("{}", uuid);
  if (clique >= 0) part = fmt::format(":{}", clique);
  if (enabled == 0 || !handles || cluster.empty()) return cuda::std::uint64_t{0};
  return fnv_hash(cluster + part) | 1;
}

Result<void> describe_device(PeerInfo& info,
                             Result<std::string> (*fabric_in_file)(cuda::std::int64_t bus_id)) {
  CCL_TRY(const CudaDriver* const cuda, cuda_driver());
  CUdevice device;
  CCL_CHECK(cuda_check(
      cuda->device_get(&device, info.device),
      fmt::format("use CUDA device {} (this process sees {})", info.device, cuda_device_count())));
  char text[32] = {};
  CCL_CHECK(cuda_check(cuda->device_get_pci_bus_id(text, sizeof text, device), "ask a bus id"));
  info.bus_id = bus_id_of(text);
  CUuuid uuid{};
  CCL_CHECK(cuda_check(cuda->device_get_uuid(&uuid, device), "ask a UUID"));
  info.gpu = fnv_hash({uuid.bytes, sizeof uuid.bytes}) | 1;
  int major = 0, minor = 0;
  (void)cuda->device_get_attribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
  (void)cuda->device_get_attribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
  info.compute_capability = 10 * major + minor;
  int fabric = 0;
  (void)cuda->device_get_attribute(&fabric, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED,
                                   device);
  if (fabric != 0) {
    CCL_TRY(std::string answer, fabric_in_file(info.bus_id));
    if (answer.empty()) answer = topo::nvml_fabric(bus_id_text(info.bus_id));
    CCL_TRY(info.fabric, fabric_domain(answer));
  }
  return {};
}

int choose_device(int local_rank, bool current) {
  if (!program_has_device_code || cuda_device_count() == 0) return -1;
  const CudaDriver& cuda = **cuda_driver();
  CUcontext context = nullptr;
  CUdevice device = -1;
  if (current && cuda.ctx_get_current(&context) == CUDA_SUCCESS && context != nullptr &&
      cuda.ctx_get_device(&device) == CUDA_SUCCESS) {
    return device;
  }
  return local_rank % cuda_device_count();
}

}  // namespace ccl::detail
