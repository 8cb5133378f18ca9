#pragma once

#include <ccl/types/word.hpp>

#include <memory>

namespace ccl::detail {

/// Memory of a `RegisteredBuffer`, with its registrations at NICs. Steps in flight share it.
class RegisteredMemory;

/// Returns the registered memory of this process that contains these bytes; null if there is none,
/// or if a NIC could not register it. Allocates nothing: lanes call it, where nothing may throw.
std::shared_ptr<RegisteredMemory> find_registered(const void* at, Index bytes) noexcept;

}  // namespace ccl::detail
