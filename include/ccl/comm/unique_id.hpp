#pragma once

#include <ccl/types/result.hpp>

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>

namespace ccl {

/// Where the ranks of one communicator meet, and the secret by which they know each other. 128
/// bytes that may travel by any means that strangers do not read.
struct UniqueId {
  std::array<std::byte, 128> bytes{};

  std::string to_string() const;  // 256 hexadecimal digits
  /// `Errc::invalid_argument` where it is no such text.
  static Result<UniqueId> from_string(std::string_view hex);
  friend bool operator==(const UniqueId&, const UniqueId&) = default;
};
static_assert(std::is_trivially_copyable_v<UniqueId> && sizeof(UniqueId) == 128);

/// A new id; from now on this process helps its ranks find each other, in the background and only
/// until they have. One communicator per id.
Result<UniqueId> create_unique_id();

/// The id that every rank works out for itself from "host:port" and a key that only the job knows.
/// This host's own name stands for the address by which others reach it (CCL_SOCKET_IFNAME) where
/// the system knows only one of loopback under that name.
/// The first rank then calls `start_root`. The secret is no better than `job_key`. `Errc::network`
/// where the host's name is not known, which it may be later.
Result<UniqueId> unique_id_at(std::string_view address, std::string_view job_key);
/// Listens where `id` says, in the background. Waits while the port is taken, at most
/// CCL_INIT_TIMEOUT. `root_rank`: the rank of this process, named when this process is lost.
Result<void> start_root(const UniqueId& id, int root_rank);

}  // namespace ccl
