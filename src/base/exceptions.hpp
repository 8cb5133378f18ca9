#pragma once

#include <ccl/types/result.hpp>

#include <utility>

#include <cxxabi.h>

namespace ccl::detail {

/// Returns the error for the exception that is being handled: `Errc::out_of_memory`, `Errc::system`
/// with the code of the system, or `Errc::internal`. Only in a catch block. Throws nothing, also
/// without memory.
Error error_of_exception() noexcept;

/// Returns `body()`, or the error for the exception that has left it. `body` returns a Result. The
/// cancellation of a thread passes through.
template <class Body>
auto without_exceptions(Body&& body) -> decltype(body()) {
  try {
    return std::forward<Body>(body)();
  } catch (abi::__forced_unwind&) {
    throw;
  } catch (...) {
    return fail(error_of_exception());
  }
}

}  // namespace ccl::detail
