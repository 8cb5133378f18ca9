// NCCL's interface to its parameters: those of the log, with their values in ccl.
#include <ccl/comm/log.hpp>
#include <ccl/detail/runtime/settings.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.hpp"
#include "nccl/api.hpp"

/// Target of NCCL's handle to a parameter.
struct ncclParamHandle {
  const char* key;
  const char* setting;  // of ccl; null: NCCL's initial value, which ccl does not change
  const char* initial;
  enum class Type { text, level, levels, parts, flag } type;
};

namespace ccl::detail::nccl {
namespace {

using Param = ncclParamHandle;
using Type = Param::Type;

// The keys of NCCL 2.32 that are not private, and their types.
Param params[] = {
    {"NCCL_DEBUG", "DEBUG", "WARN", Type::level},
    {"NCCL_DEBUG_FILE", "DEBUG_FILE", "", Type::text},
    {"NCCL_DEBUG_LEVELS", nullptr, "NONE", Type::levels},
    {"NCCL_DEBUG_SUBSYS", "DEBUG_SUBSYS", "INIT,BOOTSTRAP,ENV", Type::parts},
    {"NCCL_DEBUG_TIMESTAMP_FORMAT", nullptr, "", Type::text},
    {"NCCL_DEBUG_TIMESTAMP_LEVELS", nullptr, "NONE", Type::levels},
    {"NCCL_SET_THREAD_NAME", nullptr, "FALSE", Type::flag},
};

std::string value_of(const Param& param) {
  if (param.setting == nullptr || !setting_given(param.setting)) return param.initial;
  return setting_text(param.setting).value_or(param.initial);
}

/// NCCL's bit of each subsystem, in the order of these names.
std::uint64_t bits_of_parts(std::string_view list) {
  constexpr std::array<std::string_view, 18> names{
      "INIT", "COLL",  "P2P",  "SHM",       "NET", "GRAPH",   "TUNING", "ENV",     "ALLOC",
      "CALL", "PROXY", "NVLS", "BOOTSTRAP", "REG", "PROFILE", "RAS",    "DESTROY", "ALLOC_HOST"};
  const bool others = list.starts_with('^');
  if (others) list.remove_prefix(1);
  std::uint64_t bits = 0;
  while (!list.empty()) {
    const auto comma = std::min(list.find(','), list.size());
    const std::string word = upper(list.substr(0, comma));
    if (word == "ALL") bits = ~std::uint64_t{0};
    const auto at = std::ranges::find(names, std::string_view{word});
    if (at != names.end()) bits |= std::uint64_t{1} << (at - names.begin());
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return others ? ~bits : bits;
}

int level_of(std::string_view word) {
  constexpr std::array<std::string_view, 7> names{"NONE",  "VERSION", "WARN", "INFO",
                                                  "ABORT", "TRACE",   "ATTN"};
  return int(std::ranges::find(names, word) - names.begin()) % int(names.size());
}

/// The bytes of a value, as NCCL stores them.
std::vector<char> bytes_of(const Param& param) {
  const std::string text = value_of(param);
  const auto of = [](auto value) {
    std::vector<char> all(sizeof value);
    std::memcpy(all.data(), &value, sizeof value);
    return all;
  };
  switch (param.type) {
    case Type::text:
      return {text.c_str(), text.c_str() + text.size() + 1};
    case Type::level:
      return of(level_of(text));
    case Type::levels:
      return of(std::uint32_t{0});
    case Type::parts:
      return of(bits_of_parts(text));
    case Type::flag:
      return of(false);
  }
  return {};
}

Result<Param*> param_of(const char* key) {
  CCL_CHECK(check_input(key, "key"));
  for (Param& one : params) {
    if (std::strcmp(one.key, key) == 0) return &one;
  }
  std::string keys;
  for (const Param& one : params) keys += fmt::format(" {}", one.key);
  return fail(Errc::invalid_argument,
              fmt::format("there is no parameter {}; there are{}", key, keys));
}

Result<const Param*> param_of(ncclParamHandle_t handle) {
  for (const Param& one : params) {
    if (handle == &one) return &one;
  }
  return fail(Errc::invalid_argument, "this is no handle of ncclParamBind");
}

template <class T>
ncclResult_t get(ncclParamHandle_t handle, T* value, Type type) {
  return answer([&]() -> Result<void> {
    CCL_CHECK(check_given(value, "out"));
    CCL_TRY(const Param* const param, param_of(handle));
    const auto bytes = bytes_of(*param);
    if (param->type != type || bytes.size() != sizeof(T)) {
      return fail(Errc::invalid_argument,
                  fmt::format("{} is not of this type; ncclParamGetParameter gives it as text",
                              param->key));
    }
    std::memcpy(value, bytes.data(), sizeof(T));
    return {};
  });
}
/// Integers that no parameter has as its type.
template <class T>
ncclResult_t get_none(ncclParamHandle_t handle, T* value) {
  return answer([&]() -> Result<void> {
    CCL_CHECK(check_given(value, "out"));
    CCL_TRY(const Param* const param, param_of(handle));
    return fail(
        Errc::invalid_argument,
        fmt::format("{} is not of this type; ncclParamGetParameter gives it as text", param->key));
  });
}

/// Text that stays until the thread's next call of the same function.
const char* keep(std::string& where, std::string text) {
  where = std::move(text);
  return where.c_str();
}

}  // namespace
}  // namespace ccl::detail::nccl

using namespace ccl::detail::nccl;

ncclResult_t ncclParamBind(ncclParamHandle_t* handle, const char* key) {
  return answer([&]() -> ccl::Result<void> {
    CCL_CHECK(check_given(handle, "out"));
    *handle = nullptr;
    CCL_TRY(*handle, param_of(key));
    return {};
  });
}
ncclResult_t ncclParamGetI8(ncclParamHandle_t handle, std::int8_t* value) {
  return get_none(handle, value);
}
ncclResult_t ncclParamGetI16(ncclParamHandle_t handle, std::int16_t* value) {
  return get_none(handle, value);
}
ncclResult_t ncclParamGetI32(ncclParamHandle_t handle, std::int32_t* value) {
  return get_none(handle, value);
}
ncclResult_t ncclParamGetI64(ncclParamHandle_t handle, std::int64_t* value) {
  return get_none(handle, value);
}
ncclResult_t ncclParamGetU8(ncclParamHandle_t handle, std::uint8_t* value) {
  return get_none(handle, value);
}
ncclResult_t ncclParamGetU16(ncclParamHandle_t handle, std::uint16_t* value) {
  return get_none(handle, value);
}
ncclResult_t ncclParamGetU32(ncclParamHandle_t handle, std::uint32_t* value) {
  return get(handle, value, Type::levels);
}
ncclResult_t ncclParamGetU64(ncclParamHandle_t handle, std::uint64_t* value) {
  return get(handle, value, Type::parts);
}

ncclResult_t ncclParamGetStr(ncclParamHandle_t handle, const char** value) {
  return answer([&]() -> ccl::Result<void> {
    CCL_CHECK(check_given(value, "out"));
    *value = nullptr;
    CCL_TRY(const Param* const param, param_of(handle));
    if (param->type != Type::text) {
      return ccl::fail(
          ccl::Errc::invalid_argument,
          fmt::format("{} is no text; ncclParamGetParameter gives it as one", param->key));
    }
    static thread_local std::string kept;
    *value = keep(kept, value_of(*param));
    return {};
  });
}

ncclResult_t ncclParamGet(ncclParamHandle_t handle, void* value, int most, int* length) {
  return answer([&]() -> ccl::Result<void> {
    CCL_CHECK(check_given(value, "out"));
    CCL_CHECK(check_given(length, "len"));
    CCL_TRY(const Param* const param, param_of(handle));
    const auto bytes = bytes_of(*param);
    *length = int(bytes.size());
    if (most < *length) {
      return ccl::fail(ccl::Errc::invalid_argument,
                       fmt::format("{} has {} bytes, and maxLen is {}", param->key, *length, most));
    }
    std::memcpy(value, bytes.data(), bytes.size());
    return {};
  });
}

ncclResult_t ncclParamGetParameter(const char* key, const char** value, int* length) {
  return answer([&]() -> ccl::Result<void> {
    CCL_CHECK(check_given(value, "value"));
    CCL_CHECK(check_given(length, "valueLen"));
    CCL_TRY(const Param* const param, param_of(key));
    static thread_local std::string kept;
    *value = keep(kept, value_of(*param));
    *length = int(kept.size());
    return {};
  });
}

ncclResult_t ncclParamGetAllParameterKeys(const char*** keys, int* count) {
  return answer([&]() -> ccl::Result<void> {
    CCL_CHECK(check_given(keys, "table"));
    CCL_CHECK(check_given(count, "tableLen"));
    static thread_local std::array<const char*, std::size(params)> all;
    std::ranges::transform(params, all.begin(), &Param::key);
    *keys = all.data();
    *count = int(all.size());
    return {};
  });
}

void ncclParamDumpAll() {
  (void)ccl::detail::without_exceptions([]() -> ccl::Result<void> {
    for (const Param& one : params) std::printf("%s=%s\n", one.key, value_of(one).c_str());
    std::fflush(stdout);
    return {};
  });
}

CCL_NCCL_ALSO_P(ncclParamBind);
CCL_NCCL_ALSO_P(ncclParamGetI8);
CCL_NCCL_ALSO_P(ncclParamGetI16);
CCL_NCCL_ALSO_P(ncclParamGetI32);
CCL_NCCL_ALSO_P(ncclParamGetI64);
CCL_NCCL_ALSO_P(ncclParamGetU8);
CCL_NCCL_ALSO_P(ncclParamGetU16);
CCL_NCCL_ALSO_P(ncclParamGetU32);
CCL_NCCL_ALSO_P(ncclParamGetU64);
CCL_NCCL_ALSO_P(ncclParamGetStr);
CCL_NCCL_ALSO_P(ncclParamGet);
CCL_NCCL_ALSO_P(ncclParamGetParameter);
CCL_NCCL_ALSO_P(ncclParamGetAllParameterKeys);
CCL_NCCL_ALSO_P(ncclParamDumpAll);
