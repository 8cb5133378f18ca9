// The declarations of NCCL's interface that libnccl is compiled with, beside NVIDIA's header.
#include <string>

#include "nccl/abi/abi.hpp"
#include "support/catch.hpp"
#include "support/nccl_layout.hpp"

namespace {

ccl::test::NcclLayout own_layout() {
  ccl::test::NcclLayout all;
  CCL_NCCL_LAYOUT_2_28()
  CCL_NCCL_LAYOUT_2_32()
  return all;
}

}  // namespace

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
  WARN("there is no nccl.h of NVIDIA: the layouts are those of the assertions in abi.hpp");
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
