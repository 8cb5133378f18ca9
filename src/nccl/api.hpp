#pragma once

#include <ccl/detail/base/exceptions.hpp>

#include <string>

#include "nccl/errors.hpp"
#include "nccl/group.hpp"
#include "nccl/member.hpp"

namespace ccl::detail::nccl {

/// Runs a function of NCCL. `body` returns a Result<void>. No exception of ccl leaves the C
/// interface. A failure leaves the thread's group alone.
template <class Body>
ncclResult_t answer(Body&& body) noexcept {
  const Result<void> result = without_exceptions(body);
  if (!result && result.error().code == Errc::in_progress) return ncclInProgress;
  return tell(result);
}

/// Runs a function of NCCL whose work belongs to the thread's group. A failure spoils the group:
/// the group would lack that work.
template <class Body>
ncclResult_t answer_in_group(Body&& body) noexcept {
  return answer([&]() -> Result<void> {
    Result<void> result = without_exceptions(body);
    if (!result && result.error().code != Errc::in_progress) {
      Group::of_this_thread().spoil(result.error());
    }
    return result;
  });
}

/// Fails with `Errc::invalid_argument` if `given` is null.
template <class T>
Result<void> check_given(const T* given, const char* what) {
  if (given != nullptr) return {};
  return fail(Errc::invalid_argument, std::string{what} + " is null; pass where the answer goes");
}
/// Fails with `Errc::invalid_argument` if `input` is null.
template <class T>
Result<void> check_input(const T* input, const char* what) {
  if (input != nullptr) return {};
  return fail(Errc::invalid_argument, std::string{what} + " is null, and the call reads it");
}

}  // namespace ccl::detail::nccl

/// NCCL exports each function under a second name, for tools that replace the first with their own.
#define CCL_NCCL_ALSO_P(name) \
  extern "C" __attribute__((visibility("default"), alias(#name))) decltype(name) p##name
