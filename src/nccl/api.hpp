#pragma once

#include <exception>
#include <string>

#include "nccl/errors.hpp"
#include "nccl/group.hpp"
#include "nccl/member.hpp"

namespace ccl::detail::nccl {

/// What a function of NCCL's does in the thread's group, or at once: `body` gives a Result<void>.
/// Nothing that ccl throws leaves through the C interface.
template <class Body>
ncclResult_t answer(Body&& body) noexcept {
  Result<void> result;
  try {
    result = body();
  } catch (const std::exception& e) {
    result = fail(Errc::system, std::string{"no memory or no thread left ("} + e.what() + ")");
  }
  if (!result && result.error().code == Errc::in_progress) return ncclInProgress;
  if (!result) Group::of_this_thread().spoil(result.error());
  return tell(result);
}

/// `Errc::invalid_argument` where `given` is null.
template <class T>
Result<void> check_given(const T* given, const char* what) {
  if (given != nullptr) return {};
  return fail(Errc::invalid_argument, std::string{what} + " is null; pass where the answer goes");
}

}  // namespace ccl::detail::nccl

/// NCCL exports each function under a second name, which tools call that put their own in its
/// place.
#define CCL_NCCL_ALSO_P(name) \
  extern "C" __attribute__((visibility("default"), alias(#name))) decltype(name) p##name
