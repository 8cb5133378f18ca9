#pragma once

// Requirements of NCCL's device interface as programs of several versions pass them.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

#include "nccl/abi/device_layouts.hpp"

namespace ccl::test {

/// Bytes of ncclDevCommRequirements in a version.
inline std::size_t wants_bytes(unsigned version) {
  return version < 22907 ? 72 : version < 23000 ? 88 : version < 23100 ? 96 : 120;
}

/// Requirements with the values of their initializer.
inline detail::nccl::DevCommRequirements usual_wants() {
  detail::nccl::DevCommRequirements wants{};
  wants.ginContextCount = 4;
  wants.ginTrafficClass = NCCL_CONFIG_UNDEF_INT;
  wants.ginStrongSignalsRequired = wants.ginVaSignalsRequired = true;
  wants.ginCustomStride = 1;
  return wants;
}

/// The structure that a program of this version passes, 2.29.2 or later. What follows it in memory
/// is not zero.
inline std::vector<std::byte> wants_of(unsigned version,
                                       const detail::nccl::DevCommRequirements& wants) {
  const std::size_t size = wants_bytes(version);
  const unsigned head[] = {unsigned(size), 0, NCCL_API_MAGIC, version};
  std::vector<std::byte> all(256, std::byte{0xcd});
  std::memcpy(all.data(), head, sizeof head);
  std::memcpy(all.data() + sizeof head, &wants, std::min(size - sizeof head, sizeof wants));
  return all;
}

}  // namespace ccl::test
