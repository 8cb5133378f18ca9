#pragma once

#include <ccl/comm/unique_id.hpp>
#include <ccl/types/result.hpp>

#include <optional>
#include <string>
#include <string_view>

namespace ccl::detail {

constexpr std::size_t min_secret_bytes = 16;

/// Returns the text of CCL_SECRET, else the content of the file CCL_SECRET_FILE without line ends
/// at its end. Returns nothing if neither is set. Fails with `Errc::bad_setting` if it is shorter
/// than `min_secret_bytes`, and if users other than this one and root can read or write the file.
Result<std::optional<std::string>> given_secret();

/// Fails as `id_with_secret` does for a text that is no address with a port. Looks no name up.
Result<void> check_root_address(std::string_view address);

/// Returns the id of `unique_id_at` with the secret text `from_launcher`, which only this job's
/// ranks know. CCL_SECRET and CCL_SECRET_FILE count first. Without any, the secret is made of
/// `address` and `job_key`, a line at INFO warns once, and CCL_REQUIRE_SECRET=1 makes it fail with
/// `Errc::bad_setting`. A look-up of the name in `address` may take `limit_s` seconds.
Result<UniqueId> id_with_secret(std::string_view address, std::string_view job_key,
                                const std::optional<std::string>& from_launcher, double limit_s);

}  // namespace ccl::detail
