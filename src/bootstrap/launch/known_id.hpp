#pragma once

#include <ccl/comm/launcher.hpp>
#include <ccl/comm/unique_id.hpp>

#include <optional>

namespace ccl::detail {

/// Returns the id of a launch whose address is in the environment. It asks no other rank, checks no
/// settings and opens no root. Nothing where PMIx may have a part of the id.
std::optional<UniqueId> known_id(const LaunchEnvironment& launch) noexcept;

}  // namespace ccl::detail
