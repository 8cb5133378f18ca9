#pragma once

#include <string_view>

namespace ccl::detail {

/// Warns, once in a process, that CCL_ENCRYPTION does not protect the data that goes over
/// `network`, if it is on. Devices or libraries of others move that data.
void warn_if_unprotected(std::string_view network);

}  // namespace ccl::detail
