// A pipe in place of a file keeps nobody waiting for ever.
#include "base/io/file.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <string>
#include <thread>

#include "support/catch.hpp"
#include "support/error_matchers.hpp"
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace ccl;
using namespace ccl::detail;

namespace {

/// A file, or a pipe with a name, for as long as it lives. A test that waits for ever is ended.
struct Path {
  explicit Path(bool pipe) {
    ::alarm(60);
    std::remove(name.c_str());
    if (pipe) REQUIRE(::mkfifo(name.c_str(), 0600) == 0);
  }
  ~Path() {
    std::remove(name.c_str());
    ::alarm(0);
  }
  Path(const Path&) = delete;
  Path& operator=(const Path&) = delete;
  std::string name = "file_test." + std::to_string(::getpid());
};

}  // namespace

TEST_CASE("a file is written and read") {
  const Path file{false};
  std::string text;
  for (int i = 0; i < 50'000; ++i) text += std::to_string(i) + "\n";
  REQUIRE(write_whole_file(file.name, text));
  CHECK(whole_file(file.name).value() == text);
  REQUIRE(write_whole_file(file.name, "short"));
  CHECK(whole_file(file.name).value() == "short");
}

TEST_CASE("a file is replaced while a process of another host, with the same pid, does that") {
  const auto folder =
      std::filesystem::temp_directory_path() / ("ccl_file_test_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  // Names that do not differ between such processes are taken.
  for (int n = 0; n < 100; ++n) {
    std::filesystem::create_directory(folder / fmt::format(".{}.{}.new", ::getpid(), n));
  }
  const std::string path = (folder / "record").string();
  const auto done = replace_whole_file(path, "text");
  INFO((done ? std::string{} : done.error().what));
  REQUIRE(done);
  CHECK(whole_file(path).value() == "text");
  REQUIRE(replace_whole_file(path, "other"));
  CHECK(whole_file(path).value() == "other");
  CHECK(std::distance(std::filesystem::directory_iterator{folder}, {}) == 101);
  std::filesystem::remove_all(folder);
}

TEST_CASE("a file that cannot be is an error with its errno") {
  CHECK(whole_file("/nowhere/file").error().os_code == ENOENT);
  CHECK(whole_file("/").error().os_code == EISDIR);
  CHECK(write_whole_file("/nowhere/file", "").error().os_code == ENOENT);
  CHECK(whole_file("/dev/zero").error().code == Errc::invalid_argument);
}

TEST_CASE("a pipe without another end does not block") {
  const Path pipe{true};
  CHECK(whole_file(pipe.name).value().empty());
  CHECK(write_whole_file(pipe.name, "text").error().os_code == ENXIO);
}

TEST_CASE("a pipe is read, as of a shell's process substitution") {
  const Path pipe{true};
  const int ends = ::open(pipe.name.c_str(), O_RDWR | O_CLOEXEC);
  const std::string text(200'000, 'x');  // more than a pipe holds
  std::thread writer{[&] {
    std::this_thread::sleep_for(std::chrono::milliseconds{50});
    for (std::size_t at = 0; at < text.size();) {
      at += std::size_t(::write(ends, text.data() + at, text.size() - at));
    }
    ::close(ends);
  }};
  const auto read = whole_file(pipe.name);
  writer.join();
  CHECK(read.value() == text);
}

TEST_CASE("a pipe whose reader leaves is an error, and no signal ends the program") {
  const Path pipe{true};
  const int reader = ::open(pipe.name.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  std::thread leaves{[&] {
    std::this_thread::sleep_for(std::chrono::milliseconds{50});
    ::close(reader);
  }};
  const auto written = write_whole_file(pipe.name, std::string(200'000, 'x'));  // it holds 65,536
  leaves.join();
  CHECK(written.error().os_code == EPIPE);
  sigset_t pending;
  ::sigpending(&pending);
  CHECK(::sigismember(&pending, SIGPIPE) == 0);
}

TEST_CASE("a pipe whose other end does nothing is an error that names it") {
  const Path pipe{true};
  const int ends = ::open(pipe.name.c_str(), O_RDWR | O_CLOEXEC);
  const auto read = whole_file(pipe.name);
  CHECK(read.error().code == Errc::timed_out);
  CHECK(test::mentions(read.error().what, (pipe.name + " is a pipe").c_str()));
  const auto written = write_whole_file(pipe.name, std::string(200'000, 'x'));
  CHECK(written.error().code == Errc::timed_out);
  ::close(ends);
}
