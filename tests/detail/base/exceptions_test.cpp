#include <ccl/detail/base/exceptions.hpp>

#include <atomic>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>

#include "support/catch.hpp"
#include <pthread.h>
#include <unistd.h>

using namespace ccl;

namespace {
template <class Thrown>
Error error_of(Thrown thrown) {
  const auto result = detail::without_exceptions([&]() -> Result<int> { throw thrown; });
  REQUIRE_FALSE(result);
  return result.error();
}
}  // namespace

TEST_CASE("without_exceptions returns what the body returns") {
  CHECK(*detail::without_exceptions([]() -> Result<int> { return 7; }) == 7);
  const auto failed = detail::without_exceptions(
      []() -> Result<int> { return fail(Errc::network, "no such host"); });
  REQUIRE_FALSE(failed);
  CHECK(failed.error().code == Errc::network);
  CHECK(failed.error().what == "no such host");
}

TEST_CASE("an exception becomes an error of its kind") {
  CHECK(error_of(std::bad_alloc{}).code == Errc::out_of_memory);
  const Error system = error_of(std::system_error{EAGAIN, std::generic_category(), "thread"});
  CHECK(system.code == Errc::system);
  CHECK(system.os_code == EAGAIN);
  const Error other = error_of(std::runtime_error{"a rule is broken"});
  CHECK(other.code == Errc::internal);
  CHECK(other.what.find("a rule is broken") != std::string::npos);
  CHECK(error_of(7).code == Errc::internal);
}

TEST_CASE("the caller may add to the error of an exception") {
  const auto result = detail::without_exceptions([]() -> Result<void> { throw std::bad_alloc{}; },
                                                 [](Error error) {
                                                   error.peer = 3;
                                                   return error;
                                                 });
  REQUIRE_FALSE(result);
  CHECK(result.error().code == Errc::out_of_memory);
  CHECK(result.error().peer == 3);
}

TEST_CASE("the cancellation of a thread passes through") {
  std::atomic<bool> went_on{false};
  pthread_t thread{};
  const auto wait = [](void* at) -> void* {
    (void)detail::without_exceptions([]() -> Result<void> {
      for (;;) ::pause();
    });
    static_cast<std::atomic<bool>*>(at)->store(true);
    return nullptr;
  };
  REQUIRE(::pthread_create(&thread, nullptr, wait, &went_on) == 0);
  REQUIRE(::pthread_cancel(thread) == 0);
  void* result = nullptr;
  REQUIRE(::pthread_join(thread, &result) == 0);
  CHECK(result == PTHREAD_CANCELED);
  CHECK_FALSE(went_on);
}
