// A server of PMIx that does not answer: each of the library's functions ends at its limit, and so
// does the process.
#include "bootstrap/launch/pmix.hpp"

#include <ccl/comm/launcher.hpp>

#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/error_matchers.hpp"
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace ccl;

namespace {

constexpr const char* limit_s = "0.5";

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// Error of this rank, its code first.
std::string launched() {
  const auto launch = detect_launch();
  if (!launch) return fmt::format("{} {}", int(launch.error().code), launch.error().what);
  const auto id = launch_id(*launch);
  return id ? "made" : fmt::format("{} {}", int(id.error().code), id.error().what);
}

struct Ended {
  std::vector<std::string> said;
  int status = -1;
  double s = 0;
};

/// A rank of a job of PMIx, in which `stuck` does not return. It launches twice.
Ended rank(int number, const char* stuck) {
  int said[2];
  REQUIRE(::pipe(said) == 0);
  std::fflush(nullptr);
  const auto begin = std::chrono::steady_clock::now();
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);  // of a rank that waits for ever
    for (const char* name : {"RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                             "PMI_RANK", "PMI_SIZE", "SLURM_PROCID", "SLURM_NTASKS"}) {
      ::unsetenv(name);
    }
    const std::string nowhere = std::to_string(::open("/dev/null", O_WRONLY));
    for (const auto& [name, value] :
         std::vector<std::pair<const char*, std::string>>{{"PMIX_RANK", std::to_string(number)},
                                                          {"FAKE_PMIX_ENDS", nowhere},
                                                          {"FAKE_PMIX_STUCK", stuck},
                                                          {"CCL_INIT_TIMEOUT", limit_s}}) {
      ::setenv(name, value.c_str(), 1);
    }
    if (::dlopen(CCL_FAKE_PMIX, RTLD_NOW | RTLD_GLOBAL) == nullptr) std::_Exit(3);
    for (int tries = 0; tries < 2; ++tries) {
      const std::string line = launched() + "\n";
      if (::write(said[1], line.data(), line.size()) < 0) std::_Exit(4);
    }
    std::exit(0);
  }
  ::close(said[1]);
  std::string text;
  char piece[4096];
  for (ssize_t n; (n = ::read(said[0], piece, sizeof piece)) > 0;) text.append(piece, size_t(n));
  ::close(said[0]);
  Ended ended;
  ::waitpid(child, &ended.status, 0);
  ended.s = seconds_since(begin);
  for (std::size_t at = 0, end; (end = text.find('\n', at)) != text.npos; at = end + 1) {
    ended.said.push_back(text.substr(at, end - at));
  }
  return ended;
}

}  // namespace

TEST_CASE("a function of PMIx that does not return is an error that names it and the limit") {
  const std::string late = fmt::format("{} ", int(Errc::timed_out));
  for (const auto& [stuck, number] :
       std::vector<std::pair<const char*, int>>{{"PMIx_Init", 0},
                                                {"PMIx_Get pmix.job.size", 0},
                                                {"PMIx_Put", 0},
                                                {"PMIx_Commit", 0},
                                                {"PMIx_Fence", 1},
                                                {"PMIx_Get ccl.id", 1}}) {
    INFO(stuck);
    const std::string function = std::string{stuck}.substr(0, std::string{stuck}.find(' '));
    const Ended ended = rank(number, stuck);
    CHECK(ended.status == 0);
    CHECK(ended.s < 10);
    REQUIRE(ended.said.size() == 2);
    INFO(ended.said[0]);
    INFO(ended.said[1]);
    CHECK(ended.said[0].starts_with(late));
    CHECK(test::mentions(ended.said[0], (function + " has not returned within 0.5 s").c_str()));
    // The library may hold locks, so no other function is called.
    CHECK(ended.said[1].starts_with(late));
    CHECK(test::mentions(ended.said[1],
                         (function + " has not returned since an earlier call").c_str()));
  }
}

TEST_CASE("a rank that PMIx does not have is refused") {
  const Ended ended = rank(-2, "nothing");
  REQUIRE(ended.said.size() == 2);
  INFO(ended.said[0]);
  CHECK(ended.said[0].starts_with(fmt::format("{} ", int(Errc::bad_setting))));
  CHECK(test::mentions(ended.said[0], "rank -2 of 2"));
}

namespace {
namespace abi = detail::net::pmix;
abi::Value* value_of(std::uint16_t type) {
  auto* const value = static_cast<abi::Value*>(std::calloc(1, sizeof(abi::Value)));
  value->type = type;
  return value;
}
Result<int> size_of(std::uint32_t number) {
  abi::Value* const value = value_of(abi::type_uint32);
  value->number = number;
  return detail::job_size_of(0, value);
}
}  // namespace

TEST_CASE("values of PMIx are checked, and those of another type are errors") {
  CHECK(size_of(1).value() == 1);
  CHECK(size_of(1 << 20).value() == 1 << 20);
  for (const std::uint32_t bad : {0u, (1u << 20) + 1, 0x80000000u, 0xffffffffu}) {
    const auto size = size_of(bad);
    REQUIRE_FALSE(size);
    CHECK(size.error().code == Errc::bad_setting);
    CHECK(test::mentions(size.error().what, fmt::format("size of PMIx is {}, not", bad).c_str()));
  }
  abi::Value* const text = value_of(abi::type_string);
  text->text = ::strdup("a secret");
  CHECK(detail::text_of(0, text).value() == "a secret");
  CHECK_FALSE(detail::text_of(0, value_of(abi::type_string)));
  CHECK_FALSE(detail::text_of(0, value_of(abi::type_uint32)));
  CHECK_FALSE(detail::text_of(0, nullptr));
  CHECK_FALSE(detail::text_of(-1, value_of(abi::type_string)));
  CHECK_FALSE(detail::job_size_of(0, nullptr));
  CHECK_FALSE(detail::job_size_of(0, value_of(abi::type_string)));
}

TEST_CASE("a process ends although PMIx_Finalize does not return") {
  const Ended ended = rank(0, "PMIx_Finalize");
  CHECK(ended.status == 0);
  CHECK(ended.s < 10);
  CHECK(ended.said.size() == 2);
}
