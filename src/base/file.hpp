#pragma once

#include <ccl/types/result.hpp>

#include <string>

namespace ccl::detail {

/// What a file holds; `Errc::system` with errno where it cannot be read, `Errc::invalid_argument`
/// where it goes on after 64 MiB: a device or a pipe may have no end.
Result<std::string> whole_file(const std::string& path);

}  // namespace ccl::detail
