#include <ccl/comm/registered_buffer.hpp>
#include <ccl/detail/transport/registered_memory.hpp>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include <sys/wait.h>
#include <unistd.h>

namespace ccl::test {
namespace {

Communicator alone() {
  Config config;
  config.device = Config::cpu;
  auto comms = Communicator::create_all(1, config);
  REQUIRE(comms.has_value());
  return std::move(comms->front());
}

}  // namespace

TEST_CASE("memory is registered as long as a copy of the handle is there") {
  const Communicator comm = alone();
  std::vector<char> memory(1000);
  std::optional<RegisteredBuffer> second;
  {
    auto first = RegisteredBuffer::create(comm, memory.data(), 1000);
    REQUIRE(first.has_value());
    CHECK(static_cast<void*>(first->data()) == memory.data());
    CHECK(first->bytes() == 1000);
    second = *first;
  }
  CHECK(detail::find_registered(memory.data(), 1000) != nullptr);
  CHECK(detail::find_registered(memory.data() + 999, 1) != nullptr);
  CHECK(detail::find_registered(memory.data() + 999, 2) == nullptr);
  CHECK(detail::find_registered(memory.data() - 1, 1) == nullptr);
  const RegisteredBuffer moved = *std::exchange(second, {});
  second.reset();
  CHECK(detail::find_registered(memory.data(), 1) != nullptr);
}

TEST_CASE("memory that was registered twice stays registered until both have ended") {
  const Communicator comm = alone();
  std::vector<char> memory(1000);
  auto first = RegisteredBuffer::create(comm, memory.data(), 1000);
  auto part = RegisteredBuffer::create(comm, memory.data() + 100, 10);
  REQUIRE(first.has_value());
  REQUIRE(part.has_value());
  first = fail(Errc::internal, "ended");
  CHECK(detail::find_registered(memory.data(), 1) == nullptr);
  CHECK(detail::find_registered(memory.data() + 100, 10) != nullptr);
  part = fail(Errc::internal, "ended");
  CHECK(detail::find_registered(memory.data() + 100, 10) == nullptr);
}

TEST_CASE("a forked child that destroys its copy leaves the registration of its parent alone") {
  const Communicator comm = alone();
  std::vector<char> memory(1000);
  std::optional<RegisteredBuffer> buffer;
  {
    auto made = RegisteredBuffer::create(comm, memory.data(), 1000);
    REQUIRE(made.has_value());
    buffer = *made;
  }
  const pid_t child = ::fork();
  if (child == 0) {
    buffer.reset();
    ::_exit(detail::find_registered(memory.data(), 1000) != nullptr ? 0 : 1);
  }
  REQUIRE(child > 0);
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("a buffer without memory or bytes is refused, and a communicator that has failed") {
  const Communicator comm = alone();
  char one = 0;
  const auto refused = [&](void* data, Index bytes) {
    const auto made = RegisteredBuffer::create(comm, data, bytes);
    REQUIRE(!made.has_value());
    CHECK(made.error().code == Errc::invalid_argument);
    CHECK(made.error().what.find("rank 0 registers " + std::to_string(bytes) + " bytes") == 0);
  };
  refused(nullptr, 1);
  refused(&one, 0);
  refused(&one, -1);
  comm.abort("a test");
  const auto late = RegisteredBuffer::create(comm, &one, 1);
  REQUIRE(!late.has_value());
  CHECK(late.error().code == Errc::aborted);
}

}  // namespace ccl::test
