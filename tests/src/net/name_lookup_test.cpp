// A name service that does not answer ends no look-up late, and costs one thread for each name.
#include "net/name_lookup.hpp"

#include <ccl/comm/launcher.hpp>
#include <ccl/comm/unique_id.hpp>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "support/catch.hpp"
#include "support/environment.hpp"
#include "support/error_matchers.hpp"
#include <dlfcn.h>
#include <netdb.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace ccl;
using namespace ccl::detail::net;

namespace {

constexpr const char* silent_name = "silent.test";
std::atomic<bool> answers{false};  // the name service knows `silent_name`
std::atomic<int> asked{0};         // look-ups of it that have begun

}  // namespace

/// In place of the C library's. It asks no server.
extern "C" int getaddrinfo(const char* host, const char* service, const addrinfo* hints,
                           addrinfo** found) {
  static const auto real =
      reinterpret_cast<decltype(&getaddrinfo)>(::dlsym(RTLD_NEXT, "getaddrinfo"));
  const bool number = (hints->ai_flags & AI_NUMERICHOST) != 0;
  if (number || std::strcmp(host, silent_name) != 0) return real(host, service, hints, found);
  ++asked;
  while (!answers) std::this_thread::sleep_for(std::chrono::milliseconds{5});
  return real("127.0.0.7", service, hints, found);
}

namespace {

struct Timed {
  Result<Address> address;
  double s;
};
Timed look_up_within(double limit_s) {
  const auto begin = std::chrono::steady_clock::now();
  auto address = look_up(silent_name, 0, limit_s);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  return {std::move(address), took.count()};
}

/// Exit status of `body` in a forked child. A child that waits for ever is killed.
template <class Body>
int in_child(Body body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    std::exit(body());
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 99;
}

}  // namespace

TEST_CASE("a look-up ends at its limit, and names the host") {
  answers = false;
  const int before = asked;
  const auto late = look_up_within(0.2);
  CHECK(late.address.error().code == Errc::timed_out);
  CHECK(test::mentions(late.address.error().what, "\"silent.test\" within 0.2 s"));
  CHECK(late.s < 30);  // the name service gives no answer meanwhile
  for (int again = 0; again < 10; ++again) CHECK_FALSE(look_up_within(0.01).address);
  CHECK(asked == before + 1);
  answers = true;
  CHECK(look_up_within(20).address.value().to_string() == "127.0.0.7:0");
}

TEST_CASE("numbers need no name service") {
  CHECK(look_up("10.0.0.1", 0, 0).value().to_string() == "10.0.0.1:0");
  CHECK(look_up("::1", 0, 0).value().to_string() == "[::1]:0");
}

TEST_CASE("an id at a name has the limit of creation") {
  answers = false;
  const test::Environment limit{"CCL_INIT_TIMEOUT", "0.3"};
  const auto id = unique_id_at("silent.test:4711", "a job");
  CHECK(id.error().code == Errc::timed_out);
  const test::Environment master{{{"MASTER_ADDR", silent_name}, {"MASTER_PORT", "4711"}}};
  const auto launched = launch_id({0, 2, 0, "torchrun", "a job"});
  CHECK(launched.error().code == Errc::timed_out);
  CHECK(test::mentions(launched.error().what, "MASTER_ADDR and MASTER_PORT: the name service"));
  answers = true;
}

TEST_CASE("a forked child looks up anew, and ends while a look-up runs") {
  answers = false;
  REQUIRE_FALSE(look_up_within(0.01).address);
  CHECK(in_child([] {
          answers = true;
          return look_up_within(10).address ? 0 : 1;
        }) == 0);
  CHECK(in_child([] { return look_up_within(0.01).address ? 1 : 0; }) == 0);
  answers = true;
  CHECK(look_up_within(20).address);
}
