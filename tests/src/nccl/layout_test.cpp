// The declarations of NCCL's interface that libnccl is compiled with, beside NVIDIA's header.
#include <string>

#include "nccl/abi/device_layouts.hpp"
#include "support/catch.hpp"
#include "support/kernel_wants.hpp"
#include "support/nccl_2_32_figures.hpp"
#include "support/nccl_device_layout.hpp"
#include "support/nccl_layout.hpp"
#include "support/skip.hpp"

namespace {

ccl::test::NcclLayout own_layout() {
  ccl::test::NcclLayout all;
  CCL_NCCL_LAYOUT_2_28()
  CCL_NCCL_LAYOUT_2_32()
  return all;
}

/// Layout of ncclDevComm for kernels that were compiled with a version's headers.
ccl::test::NcclLayout own_dev_comm(int version) {
  using namespace ccl::test;
  using namespace ccl::detail::nccl;
  if (version < 22907) return layout_of_dev_comm<DevComm228>();
  if (version < 23000) return layout_of_dev_comm<DevComm229>();
  if (version < 23100) return layout_of_dev_comm<DevComm230>();
  return layout_of_dev_comm<DevComm231>();
}

/// Checks each of NVIDIA's members. Ours may be of a later version.
void check_alike(const ccl::test::NcclLayout& nvidias, const ccl::test::NcclLayout& own) {
  for (const auto& [name, value] : nvidias) {
    CAPTURE(name);
    REQUIRE(own.contains(name));
    CHECK(own.at(name) == value);
  }
}

/// Layout of ncclDevCommRequirements behind its head, for kernels of a version.
ccl::test::NcclLayout own_wants(int version) {
  using ccl::detail::nccl::DevCommRequirements;
  ccl::test::NcclLayout wants = ccl::test::layout_of_wants<DevCommRequirements>();
  wants["size"] = version < 22900 ? (long long)offsetof(DevCommRequirements, ginConnectionType)
                                  : (long long)ccl::test::wants_bytes(unsigned(version)) - 16;
  return wants;
}

}  // namespace

TEST_CASE("values and layouts are those of NCCL 2.32.3") {
  using namespace ccl::test;
  using namespace ccl::detail::nccl;
  CHECK(own_layout().size() == nccl_2_32_host.size());
  check_alike(nccl_2_32_host, own_layout());
  check_alike(nccl_2_32_dev_comm, own_dev_comm(NCCL_VERSION_CODE));
  check_alike(nccl_2_32_window, layout_of_window<ncclWindow_vidmem>());
  check_alike(nccl_2_32_table, layout_of_table<ncclDevCommWindowTable>());
  check_alike(nccl_2_32_wants, own_wants(NCCL_VERSION_CODE));
}

TEST_CASE("structures that kernels read are those of NVIDIA's header") {
  using namespace ccl::test;
  using namespace ccl::detail::nccl;
#ifdef CCL_HAS_NCCL_DEVICE_HEADER
  const NcclDeviceLayout nvidias = nvidias_nccl_device_layout();
  CAPTURE(nvidias.version);
  check_alike(nvidias.dev_comm, own_dev_comm(nvidias.version));
  check_alike(nvidias.window, layout_of_window<ncclWindow_vidmem>());
  check_alike(nvidias.table, layout_of_table<ncclDevCommWindowTable>());
  check_alike(nvidias.wants, own_wants(nvidias.version));
#else
  ccl::test::skip("there is no nccl_device.h of NVIDIA");
  CHECK(own_dev_comm(NCCL_VERSION_CODE).size() > 20);
#endif
}

TEST_CASE("values and layouts are those of NVIDIA's header") {
#ifdef CCL_HAS_NCCL_HEADER
  const auto own = own_layout();
  const auto nvidias = ccl::test::nvidias_nccl_layout();
  CHECK(nvidias.size() > 60);
  for (const auto& [name, value] : nvidias) {
    CAPTURE(name);
    REQUIRE(own.contains(name));
    CHECK(own.at(name) == value);
  }
#else
  ccl::test::skip("there is no nccl.h of NVIDIA");
  CHECK(own_layout().size() > 100);
#endif
}

TEST_CASE("enumerations hold every number that a C program may pass") {
  STATIC_REQUIRE(int(ncclDataType_t{77}) == 77);
  STATIC_REQUIRE(int(ncclRedOp_t{-3}) == -3);
  STATIC_REQUIRE(int(ncclScalarResidence_t{9}) == 9);
  STATIC_REQUIRE(int(ncclResult_t{-1}) == -1);
  STATIC_REQUIRE(int(ncclCommMemStat_t{9}) == 9);
  STATIC_REQUIRE(sizeof(ncclDataType_t) == sizeof(int));
}

TEST_CASE("initializers name this version, and leave the rest unset") {
  const ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  CHECK(config.size == 120);
  CHECK(config.magic == NCCL_API_MAGIC);
  CHECK(config.version == 23203);
  CHECK(config.blocking == NCCL_CONFIG_UNDEF_INT);
  CHECK(config.nvlsHostMode == NCCL_CONFIG_UNDEF_INT);
  CHECK(config.commName == nullptr);
  const ncclCollConfig_t call = NCCL_COLLCONFIG_INITIALIZER;
  CHECK(call.size == 72);
  CHECK(call.forceAlgSelection == 1);
  CHECK(call.CTAPolicy == NCCL_CONFIG_UNDEF_INT);
  CHECK(call.userProfilerTag == 0);
  const ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  CHECK(info.magic == 0x74685283);
  CHECK(info.estimatedTime == -1);
  const ncclEncryptionConfig_t none = NCCL_ENCRYPTION_CONFIG_INITIALIZER;
  CHECK(none.mode == NCCL_ENCRYPTION_MODE_NONE);
}
