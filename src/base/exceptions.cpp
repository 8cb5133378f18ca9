#include "base/exceptions.hpp"

#include <exception>
#include <new>
#include <system_error>

#include <cxxabi.h>

namespace ccl::detail {
namespace {

// Texts of at most 15 characters need no memory.
Error short_error(Errc code, const char* what) {
  Error error;
  error.code = code;
  error.what = what;
  return error;
}

void describe(Error& error, const char* prefix, const char* what) noexcept {
  try {
    error.what = std::string{prefix} + what;
  } catch (...) {
    error.what = "an exception";
  }
}

}  // namespace

Error error_of_exception() noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return short_error(Errc::out_of_memory, "no memory left");
  } catch (const std::system_error& problem) {
    Error error = short_error(Errc::system, "");
    error.os_code = problem.code().value();
    describe(error, "", problem.what());
    return error;
  } catch (const std::exception& problem) {
    Error error = short_error(Errc::internal, "");
    describe(error, "an exception: ", problem.what());
    return error;
  } catch (...) {
    return short_error(Errc::internal, "an exception");
  }
}

Error brief_error(Errc code, int peer) noexcept {
  Error error = short_error(code, "no memory left");
  error.peer = peer;
  return error;
}

Error handled_exception() {
  try {
    throw;
  } catch (abi::__forced_unwind&) {
    throw;
  } catch (...) {
    return error_of_exception();
  }
}

std::optional<Error> exception_of(void (*body)(void* context), void* context) {
  try {
    body(context);
    return {};
  } catch (...) {
    return handled_exception();
  }
}

}  // namespace ccl::detail
