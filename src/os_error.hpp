#pragma once

#include <ccl/error.hpp>

#include <string>
#include <utility>

namespace ccl::detail {

/// An error that carries the errno of the call that failed.
inline Error os_error(Errc code, std::string what, int os_code) {
  Error error;
  error.code = code;
  error.what = std::move(what);
  error.os_code = os_code;
  return error;
}

}  // namespace ccl::detail
