#pragma once

#include <ccl/comm/unique_id.hpp>

#include <span>

#include "net/rendezvous.hpp"

namespace ccl::detail::net {

/// Opens a root: it serves one id in the engine's thread until its ranks have formed their ring or
/// have failed.
Result<Address> open_root(const Address& where, const Secret& secret, int root_rank);

/// Fails the root of this process with this secret, if any. The caller must hold the engine's
/// mutex.
void fail_local_root(const Secret& secret, const Error& error);
/// Fails the roots of `ids` in this process, for a rank that cannot join them. Takes the engine's
/// mutex.
void fail_roots(std::span<const UniqueId> ids, const Error& error) noexcept;
/// Ends the root of `id` in this process, because no rank will join it. Takes the engine's mutex.
void end_root(const UniqueId& id) noexcept;
/// True if such a root waits for ranks that have not received its error. The caller must hold the
/// engine's mutex.
bool local_root_waits(const Secret& secret);

}  // namespace ccl::detail::net
