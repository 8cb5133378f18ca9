#pragma once

#include <ccl/types/result.hpp>

#include <cstddef>

namespace ccl::detail {

/// Fills `bytes` bytes from the kernel's generator.
Result<void> fill_random(void* to, std::size_t bytes);

}  // namespace ccl::detail
