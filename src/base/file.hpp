#pragma once

#include <ccl/types/result.hpp>

#include <string>

namespace ccl::detail {

/// Returns the content of a file. Fails with `Errc::system` and errno if it cannot be read. Fails
/// with `Errc::invalid_argument` above 64 MiB, because a device or a pipe may have no end.
Result<std::string> whole_file(const std::string& path);

}  // namespace ccl::detail
