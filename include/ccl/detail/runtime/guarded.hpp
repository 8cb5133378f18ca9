#pragma once

#include <ccl/comm/communicator.hpp>
#include <ccl/detail/base/exceptions.hpp>

#include <type_traits>
#include <utility>

namespace ccl::detail {

/// Fails the communicator on all ranks, because they may wait for the call that an exception has
/// ended. Returns `error`, annotated with this rank.
Error fail_thrown(const Communicator& comm, Error error) noexcept;
/// Follows a failed call. Sends the failure of this rank to the others if another thread of the
/// library has run out of memory, because they may wait for the call that failed by it. Writes the
/// flight record if the communicator has failed.
void after_failed_call(const Communicator& comm) noexcept;

/// `guarded` of a call without a value, once for all types of calls.
Result<void> guarded_call(const Communicator& comm, Result<void> (*run)(void* call), void* call);

/// Returns `call()`, which returns a Result. An exception that leaves it becomes an error of all
/// ranks: a rank without memory is `Errc::out_of_memory`, for example.
template <class F>
auto guarded(const Communicator& comm, F&& call) -> decltype(call()) {
  if constexpr (std::is_same_v<decltype(call()), Result<void>>) {
    using Call = std::remove_reference_t<F>;
    return guarded_call(
        comm, [](void* of) { return (*static_cast<Call*>(of))(); },
        const_cast<void*>(static_cast<const void*>(&call)));
  } else {
    auto result = without_exceptions(
        call, [&comm](Error error) { return fail_thrown(comm, std::move(error)); });
    if (!result) after_failed_call(comm);
    return result;
  }
}

}  // namespace ccl::detail
