#pragma once

#include <ccl/types/error.hpp>

#include <cuda/std/expected>

#include <utility>

namespace ccl {

/// A value, or the `Error` that replaces it. `value()` throws on an error; `*r` and `r.error()` do
/// not.
template <class T>
using Result = cuda::std::expected<T, Error>;

/// Returns an error from a function: `return fail(Errc::invalid_argument, "...")`. More fields are
/// set through `.error()` of the returned object.
inline cuda::std::unexpected<Error> fail(Error error) {
  return cuda::std::unexpected<Error>(std::move(error));
}
inline cuda::std::unexpected<Error> fail(Errc code, std::string what) {
  Error error;
  error.code = code;
  error.what = std::move(what);
  return fail(std::move(error));
}

}  // namespace ccl

#define CCL_DETAIL_CAT2(a, b) a##b
#define CCL_DETAIL_CAT(a, b) CCL_DETAIL_CAT2(a, b)
#define CCL_DETAIL_TRY(tmp, declaration, ...)           \
  auto tmp = (__VA_ARGS__);                             \
  if (!tmp) return ::ccl::fail(std::move(tmp).error()); \
  declaration = *std::move(tmp)
#define CCL_DETAIL_CHECK(tmp, ...)                                                  \
  do {                                                                              \
    if (auto tmp = (__VA_ARGS__); !tmp) return ::ccl::fail(std::move(tmp).error()); \
  } while (false)

/// Declares a variable, or returns the error from the calling function: `CCL_TRY(auto qp,
/// open_qp(nic));`. It is a macro because C++20 has no other early return. The first argument must
/// not contain a comma.
#define CCL_TRY(declaration, ...) \
  CCL_DETAIL_TRY(CCL_DETAIL_CAT(ccl_try_, __COUNTER__), declaration, __VA_ARGS__)
/// Returns the error of a `Result` from the calling function: `CCL_CHECK(step());`. It discards a
/// value.
#define CCL_CHECK(...) CCL_DETAIL_CHECK(CCL_DETAIL_CAT(ccl_check_, __LINE__), __VA_ARGS__)
