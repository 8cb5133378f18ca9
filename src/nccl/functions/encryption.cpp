// NCCL's switch for protected connections.
#include "net/crypto/encryption.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string_view>

#include "nccl/abi/config.hpp"
#include "nccl/api.hpp"

using namespace ccl::detail::nccl;

namespace ccl::detail::nccl {
namespace {

constexpr std::size_t min_key_bytes = 32;  // bytes

Result<std::string_view> key_of(const ncclEncryptionConfig_t& given) {
  ncclEncryptionConfig_t all = NCCL_ENCRYPTION_CONFIG_INITIALIZER;
  if (!is_begun(given, offsetof(ncclEncryptionConfig_t, mode))) {
    return fail(Errc::invalid_argument,
                "config was not begun with NCCL_ENCRYPTION_CONFIG_INITIALIZER; begin it so");
  }
  std::memcpy(&all, &given, std::min(given.size, sizeof all));
  if (all.mode == NCCL_ENCRYPTION_MODE_NONE) return std::string_view{};
  if (all.mode != NCCL_ENCRYPTION_MODE_PSK) {
    return fail(Errc::invalid_argument,
                fmt::format("config.mode is {}; set NCCL_ENCRYPTION_MODE_NONE (0) or "
                            "NCCL_ENCRYPTION_MODE_PSK (1)",
                            all.mode));
  }
  const std::string_view key{all.psk == nullptr ? "" : all.psk};
  if (key.size() >= min_key_bytes) return key;
  return fail(Errc::invalid_argument,
              fmt::format("config.psk has {} bytes (a short key can be guessed); give at least {}",
                          key.size(), min_key_bytes));
}

}  // namespace
}  // namespace ccl::detail::nccl

ncclResult_t ncclSetEncryption(const ncclEncryptionConfig_t* config) {
  return answer([&]() -> ccl::Result<void> {
    std::string_view key;
    if (config != nullptr) {
      CCL_TRY(key, key_of(*config));
    }
    return ccl::detail::net::use_key(std::as_bytes(std::span{key}));
  });
}

CCL_NCCL_ALSO_P(ncclSetEncryption);
