#include "settings/environment.hpp"

#include <atomic>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "support/catch.hpp"
#include "support/environment.hpp"
#include <unistd.h>

using ccl::detail::add_variable;
using ccl::test::Environment;

namespace {
std::string value_of(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "none" : value;
}
}  // namespace

TEST_CASE("a variable is added if it has no value, and no other is changed") {
  const Environment given{{{"CCL_TEST_GIVEN", "theirs"}, {"CCL_TEST_EMPTY", ""}}};
  char** const before = environ;
  std::vector<std::string> lines;
  for (char** at = before; *at != nullptr; ++at) lines.emplace_back(*at);
  CHECK_FALSE(add_variable("CCL_TEST_GIVEN", "ours"));
  CHECK(environ == before);
  CHECK(add_variable("CCL_TEST_EMPTY", "ours"));
  CHECK(add_variable("CCL_TEST_ADDED", "ours"));
  CHECK_FALSE(add_variable("CCL_TEST_ADDED", "again"));
  CHECK(value_of("CCL_TEST_GIVEN") == "theirs");
  CHECK(value_of("CCL_TEST_EMPTY") == "ours");
  CHECK(value_of("CCL_TEST_ADDED") == "ours");
  // A thread that was reading reads on.
  std::size_t n = 0;
  for (char** at = before; *at != nullptr; ++at, ++n) CHECK(lines.at(n) == *at);
  CHECK(n == lines.size());
  std::size_t now = 0;
  for (char** at = environ; *at != nullptr; ++at) ++now;
  CHECK(now == lines.size() + 1);
}

TEST_CASE("the program may change an added variable, and those beside it") {
  REQUIRE(add_variable("CCL_TEST_CHANGED", "0"));
  ::setenv("CCL_TEST_CHANGED", "1", 1);
  ::setenv("CCL_TEST_OTHER", "2", 1);
  CHECK(value_of("CCL_TEST_CHANGED") == "1");
  CHECK(value_of("CCL_TEST_OTHER") == "2");
  ::unsetenv("CCL_TEST_OTHER");
  ::unsetenv("CCL_TEST_CHANGED");
  CHECK(value_of("CCL_TEST_OTHER") == "none");
  CHECK(value_of("CCL_TEST_CHANGED") == "none");
}

TEST_CASE("other threads read the environment while variables are added") {
  const Environment given{"CCL_TEST_GIVEN", "theirs"};
  std::atomic<bool> done{false};
  std::atomic<long> wrong{0}, reads{0};
  std::vector<std::thread> readers;
  for (int t = 0; t < 2; ++t) {
    readers.emplace_back([&] {
      while (!done) {
        wrong += value_of("CCL_TEST_GIVEN") != "theirs";
        ++reads;
      }
    });
  }
  for (int n = 0; n < 500; ++n) CHECK(add_variable("CCL_TEST_" + std::to_string(n), "ours"));
  while (reads < 1000) std::this_thread::yield();
  done = true;
  for (auto& reader : readers) reader.join();
  CHECK(wrong == 0);
}
