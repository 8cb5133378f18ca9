// NCCL's interface to its parameters.
#include <cstdint>
#include <cstring>
#include <set>
#include <string>

#include "nccl/abi/abi.hpp"
#include "support/catch.hpp"
#include "support/environment.hpp"

using ccl::test::Environment;

namespace {

ncclParamHandle_t bound(const char* key) {
  ncclParamHandle_t handle = nullptr;
  CHECK(ncclParamBind(&handle, key) == ncclSuccess);
  return handle;
}

}  // namespace

TEST_CASE("all keys of NCCL are there, with values as text") {
  const char** keys = nullptr;
  int count = 0;
  REQUIRE(ncclParamGetAllParameterKeys(&keys, &count) == ncclSuccess);
  const std::set<std::string> all(keys, keys + count);
  CHECK(all == std::set<std::string>{"NCCL_DEBUG", "NCCL_DEBUG_FILE", "NCCL_DEBUG_LEVELS",
                                     "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_TIMESTAMP_FORMAT",
                                     "NCCL_DEBUG_TIMESTAMP_LEVELS", "NCCL_SET_THREAD_NAME"});
  for (const std::string& key : all) {
    const char* text = nullptr;
    int length = -1;
    CHECK(ncclParamGetParameter(key.c_str(), &text, &length) == ncclSuccess);
    CHECK(int(std::strlen(text)) == length);
  }
  CHECK(ncclParamGetAllParameterKeys(nullptr, &count) == ncclInvalidArgument);
  CHECK(ncclParamGetAllParameterKeys(&keys, nullptr) == ncclInvalidArgument);
  ncclParamDumpAll();
}

TEST_CASE("parameters have NCCL's types, and the values of the environment") {
  const Environment set{{{"NCCL_DEBUG", "info"}, {"NCCL_DEBUG_SUBSYS", "INIT,NET"}}};
  std::uint32_t u32 = 1;
  std::uint64_t u64 = 0;
  std::int32_t i32 = 0;
  std::int64_t i64 = 0;
  std::uint16_t u16 = 0;
  std::int16_t i16 = 0;
  std::uint8_t u8 = 0;
  std::int8_t i8 = 0;
  const ncclParamHandle_t parts = bound("NCCL_DEBUG_SUBSYS");
  CHECK(ncclParamGetU64(parts, &u64) == ncclSuccess);
  CHECK(u64 == (1u | 1u << 4));  // the numbers of NCCL
  CHECK(ncclParamGetU32(parts, &u32) == ncclInvalidArgument);
  CHECK(ncclParamGetI64(parts, &i64) == ncclInvalidArgument);
  CHECK(ncclParamGetI32(parts, &i32) == ncclInvalidArgument);
  CHECK(ncclParamGetU16(parts, &u16) == ncclInvalidArgument);
  CHECK(ncclParamGetI16(parts, &i16) == ncclInvalidArgument);
  CHECK(ncclParamGetU8(parts, &u8) == ncclInvalidArgument);
  CHECK(ncclParamGetI8(parts, &i8) == ncclInvalidArgument);
  CHECK(ncclParamGetU32(bound("NCCL_DEBUG_LEVELS"), &u32) == ncclSuccess);
  CHECK(u32 == 0);
  int level = 0, length = 0;
  const ncclParamHandle_t debug = bound("NCCL_DEBUG");
  CHECK(ncclParamGet(debug, &level, sizeof level, &length) == ncclSuccess);
  CHECK(length == int(sizeof level));
  CHECK(level == 3);
  length = 0;
  CHECK(ncclParamGet(debug, &level, 3, &length) == ncclInvalidArgument);
  CHECK(length == int(sizeof level));  // what it needs
  const char* text = nullptr;
  CHECK(ncclParamGetStr(debug, &text) == ncclInvalidArgument);
  CHECK(ncclParamGetStr(bound("NCCL_DEBUG_FILE"), &text) == ncclSuccess);
  CHECK(std::string{text}.empty());
  CHECK(ncclParamGetParameter("NCCL_DEBUG", &text, &length) == ncclSuccess);
  CHECK(std::string{text} == "INFO");
}

TEST_CASE("the level between warnings and information has its own number") {
  const Environment set{{{"NCCL_DEBUG", "ATTN"}}};
  int level = 0, length = 0;
  CHECK(ncclParamGet(bound("NCCL_DEBUG"), &level, sizeof level, &length) == ncclSuccess);
  CHECK(level == 6);  // behind the levels that NCCL had earlier
}

TEST_CASE("unknown keys, handles and null are refused") {
  ncclParamHandle_t handle = bound("NCCL_DEBUG");
  CHECK(ncclParamBind(nullptr, "NCCL_DEBUG") == ncclInvalidArgument);
  CHECK(ncclParamBind(&handle, nullptr) == ncclInvalidArgument);
  CHECK(ncclParamBind(&handle, "NCCL_ALGO") == ncclInvalidArgument);
  CHECK(handle == nullptr);
  int none = 0;
  const char* text = nullptr;
  std::uint64_t u64 = 0;
  CHECK(ncclParamGetU64(nullptr, &u64) == ncclInvalidArgument);
  CHECK(ncclParamGetU64(reinterpret_cast<ncclParamHandle_t>(&none), &u64) == ncclInvalidArgument);
  CHECK(ncclParamGetU64(bound("NCCL_DEBUG_SUBSYS"), nullptr) == ncclInvalidArgument);
  CHECK(ncclParamGetI8(nullptr, nullptr) == ncclInvalidArgument);
  CHECK(ncclParamGetStr(bound("NCCL_DEBUG_FILE"), nullptr) == ncclInvalidArgument);
  CHECK(ncclParamGet(bound("NCCL_DEBUG"), nullptr, 8, &none) == ncclInvalidArgument);
  CHECK(ncclParamGet(bound("NCCL_DEBUG"), &none, 8, nullptr) == ncclInvalidArgument);
  CHECK(ncclParamGetParameter("NCCL_ALGO", &text, &none) == ncclInvalidArgument);
  CHECK(ncclParamGetParameter(nullptr, &text, &none) == ncclInvalidArgument);
  CHECK(ncclParamGetParameter("NCCL_DEBUG", nullptr, &none) == ncclInvalidArgument);
}
