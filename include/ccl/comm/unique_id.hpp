#pragma once

#include <ccl/types/result.hpp>

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>

namespace ccl {

/// Address at which the ranks of one communicator connect, and their shared secret. The 128 bytes
/// may travel by any private channel.
struct UniqueId {
  std::array<std::byte, 128> bytes{};

  /// Returns the id as 256 hexadecimal digits.
  std::string to_string() const;
  /// Parses the text of `to_string`. Fails with `Errc::invalid_argument` if the text is not valid.
  [[nodiscard]] static Result<UniqueId> from_string(std::string_view hex);
  friend bool operator==(const UniqueId&, const UniqueId&) = default;
};
static_assert(std::is_trivially_copyable_v<UniqueId> && sizeof(UniqueId) == 128);

/// Creates an id and starts its root thread. The thread ends when all ranks have joined, or after a
/// day without any rank: the id is invalid then. An id serves one communicator.
[[nodiscard]] Result<UniqueId> create_unique_id();

/// Returns the id that every rank can compute from "host:port" and a key that only the job has. The
/// first rank must then call `start_root`. Fails with `Errc::network` if the host's name cannot be
/// resolved; a later call can succeed.
///
/// The secret is that of CCL_SECRET or CCL_SECRET_FILE. Without both, it is only as strong as
/// `job_key`: then CCL_REQUIRE_SECRET=1 makes the call fail with `Errc::bad_setting`.
///
/// If this host's own name resolves only to a loopback address, the id holds the address by which
/// others reach the host (CCL_SOCKET_IFNAME).
[[nodiscard]] Result<UniqueId> unique_id_at(std::string_view address, std::string_view job_key);
/// Starts a root thread that listens at the address of `id`. Waits for a port in use for at most
/// CCL_INIT_TIMEOUT. `root_rank` is the rank of this process, which errors name if the process is
/// lost.
[[nodiscard]] Result<void> start_root(const UniqueId& id, int root_rank);

}  // namespace ccl
