#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>

namespace ccl::detail {

/// Returns `value` as Python's module `pickle` writes it (protocol 2). Strings must be UTF-8, and
/// at most 4 GiB long.
std::string pickled(const nlohmann::ordered_json& value);

}  // namespace ccl::detail
