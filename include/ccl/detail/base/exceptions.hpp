#pragma once

#include <ccl/types/result.hpp>

#include <optional>
#include <type_traits>
#include <utility>

namespace ccl::detail {

/// Returns the error for the exception that is being handled: `Errc::out_of_memory`, `Errc::system`
/// with the code of the system, or `Errc::internal`. Only in a catch block. The cancellation of a
/// thread passes through.
Error handled_exception();
/// Calls `body(context)`. Returns the error for the exception that has left it. In the library,
/// because a program may be compiled without exceptions.
std::optional<Error> exception_of(void (*body)(void* context), void* context);

/// Returns `body()`, or the error `on_exception(error)` for the exception that has left it. `body`
/// returns a Result, and `on_exception` throws nothing.
template <class Body, class OnException>
auto without_exceptions(Body&& body, OnException on_exception) -> decltype(body()) {
#if defined(__cpp_exceptions)  // costs nothing, unlike the call of `exception_of`
  try {
    return body();
  } catch (...) {
    return fail(on_exception(handled_exception()));
  }
#else
  using Returned = decltype(body());
  struct Frame {
    std::remove_reference_t<Body>& body;
    std::optional<Returned> returned{};
  } frame{body};
  auto thrown = exception_of(
      [](void* context) {
        auto& of = *static_cast<Frame*>(context);
        of.returned.emplace(of.body());
      },
      &frame);
  if (thrown) return fail(on_exception(*std::move(thrown)));
  return *std::move(frame.returned);
#endif
}
template <class Body>
auto without_exceptions(Body&& body) -> decltype(body()) {
  return without_exceptions(body, [](Error error) { return error; });
}

}  // namespace ccl::detail
