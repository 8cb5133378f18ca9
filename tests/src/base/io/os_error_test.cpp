#include "base/io/os_error.hpp"

#include <ccl/comm/communicator.hpp>

#include <cerrno>
#include <cstdio>

#include "support/catch.hpp"
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace ccl;

namespace {

// Creates two ranks in a process of its own that may open so many more files. Returns its exit
// status: 0 if they were created, 1 if the error names the limit to raise, 2 otherwise.
int create_with(int files) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    const int next = ::dup(0);
    ::close(next);
    const rlimit few{rlim_t(next + files), rlim_t(next + files)};
    if (next < 0 || ::setrlimit(RLIMIT_NOFILE, &few) != 0) ::_exit(3);
    Config config;
    config.init_timeout_s = files > 100 ? 60 : 3;  // it is waited for in vain where they are few
    const auto made = Communicator::create_all(2, config);
    if (made) ::_exit(0);
    const std::string text = made.error().message();
    const bool mentions = text.find("ulimit -n") != text.npos;
    std::fprintf(stderr, "%d files: %s\n", files, text.c_str());
    ::_exit(mentions ? 1 : 2);
  }
  int status = 0;
  REQUIRE(::waitpid(pid, &status, 0) == pid);
  REQUIRE(WIFEXITED(status));
  return WEXITSTATUS(status);
}

}  // namespace

// First: the others leave this process one whose descriptors ran out.
TEST_CASE("a communicator that cannot be created for want of descriptors names the remedy") {
  CHECK(create_with(200) == 0);
  for (const int files : {0, 1, 3, 5}) {
    INFO(files);
    CHECK(create_with(files) == 1);
  }
  for (const int files : {7, 9}) {
    INFO(files);
    CHECK(create_with(files) <= 1);
  }
}

TEST_CASE("an error of the system says what to raise where descriptors ran out, and only there") {
  const Error many = detail::os_error(Errc::system, "no socket", EMFILE);
  CHECK(many.os_code == EMFILE);
  CHECK(many.what.find("no socket; raise ulimit -n, which is ") == 0);
  CHECK(detail::os_error(Errc::system, "no socket", ENFILE).what.find("fs.file-max") != size_t(-1));
  CHECK(detail::os_error(Errc::system, "no socket", EACCES).what == "no socket");
}

TEST_CASE("what waited in vain after that says so, too, and other errors do not") {
  Error late;
  late.code = Errc::timed_out;
  late.what = "late";
  static_cast<void>(detail::descriptor_hint(EMFILE));
  CHECK(detail::with_shortage(late).what.find("late; this process ran out of file descriptors") ==
        0);
  late.code = Errc::mismatch;
  CHECK(detail::with_shortage(late).what == "late");
}
