// What a test program says of cases that were skipped. It runs hidden cases of its own.
#include "support/skip.hpp"

#include <array>
#include <cstdio>
#include <filesystem>
#include <string>

#include "support/catch.hpp"
#include <sys/wait.h>

using ccl::test::skip;
using ccl::test::skip_part;

namespace {
struct Ran {
  int code = -1;
  std::string text;
};
/// Runs this program with arguments of Catch2.
Ran run(const std::string& arguments) {
  Ran ran;
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  std::FILE* const pipe = ::popen((self + " '" + arguments + "' 2>&1").c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::array<char, 256> part{};
  while (std::fgets(part.data(), int(part.size()), pipe) != nullptr) ran.text += part.data();
  const int status = ::pclose(pipe);
  if (WIFEXITED(status)) ran.code = WEXITSTATUS(status);
  return ran;
}
bool contains(const Ran& ran, const std::string& text) {
  return ran.text.find(text) != ran.text.npos;
}
}  // namespace

TEST_CASE("skips everything", "[.][one]") {
  return skip("no such device");
}
TEST_CASE("skips everything, too", "[.][two]") {
  CHECK(true);
  return skip("no such device");
}
TEST_CASE("runs", "[.][runs]") {
  CHECK(true);
}
TEST_CASE("fails", "[.][fails]") {
  CHECK(false);
}
TEST_CASE("skips one of two runs", "[.][half]") {
  const int n = GENERATE(1, 2);
  if (n == 1) return skip("no first device");
  CHECK(n == 2);
}
TEST_CASE("skips all of two sections", "[.][sections]") {
  SECTION("one") {
    return skip("no such section");
  }
  SECTION("two") {
    return skip("no such section");
  }
}
TEST_CASE("leaves a part out", "[.][part]") {
  CHECK(true);
  skip_part("no second part");
}

TEST_CASE("a program is skipped if all of its cases were") {
  for (const char* const cases : {"[one]", "[one],[two]", "[sections]", "[one],[sections]"}) {
    const Ran ran = run(cases);
    INFO(cases << ": " << ran.text);
    CHECK(ran.code == 77);
    CHECK(contains(ran, "SKIP: no such "));
    CHECK_FALSE(contains(ran, "(in "));
  }
}

TEST_CASE("a program of which some cases were skipped has passed, and says which") {
  const Ran some = run("[one],[two],[runs]");
  INFO(some.text);
  CHECK(some.code == 0);
  CHECK(contains(some, "SKIP: no such device (in 2 of 3 cases)\n  skips everything\n"));
  CHECK(contains(some, "\n  skips everything, too\n"));
  const Ran half = run("[half]");
  INFO(half.text);
  CHECK(half.code == 0);
  CHECK(contains(half, "SKIP: no first device (in 1 of 1 cases)\n"));
  const Ran part = run("[part],[one]");
  INFO(part.text);
  CHECK(part.code == 0);
  CHECK(contains(part, "SKIP: no second part (in 1 of 2 cases)\n  leaves a part out\n"));
}

TEST_CASE("a program that fails or skips nothing is not skipped") {
  const Ran failed = run("[one],[fails]");
  INFO(failed.text);
  CHECK((failed.code != 0 && failed.code != 77));
  CHECK(contains(failed, "SKIP: no such device (in 1 of 2 cases)\n"));
  const Ran fine = run("[runs]");
  CHECK(fine.code == 0);
  CHECK_FALSE(contains(fine, "SKIP: "));
}
