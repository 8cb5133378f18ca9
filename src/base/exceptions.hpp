#pragma once

#include <ccl/detail/base/exceptions.hpp>

namespace ccl::detail {

/// Returns the error for the exception that is being handled, as `exception_of` does. Only in a
/// catch block. Throws nothing, also without memory.
Error error_of_exception() noexcept;

/// Error for which no memory is left: its code and its peer, without its text.
Error brief_error(Errc code, int peer = -1) noexcept;

/// Calls `body()`, which returns nothing. Returns the error for the exception that has left it.
template <class Body>
Result<void> completion_of(Body&& body) {
  return without_exceptions([&]() -> Result<void> {
    body();
    return {};
  });
}
/// Calls `body()`, which returns nothing. Returns false if an exception has left it.
template <class Body>
bool completes(Body&& body) {
  return completion_of(body).has_value();
}

}  // namespace ccl::detail
