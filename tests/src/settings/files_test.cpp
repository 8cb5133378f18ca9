// NCCL's configuration files.
#include "settings/files.hpp"

#include <ccl/detail/runtime/settings.hpp>

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>

#include "support/catch.hpp"
#include "support/environment.hpp"
#include "support/error_matchers.hpp"
#include "support/log_of.hpp"
#include <sys/wait.h>
#include <unistd.h>

using namespace ccl;
using namespace ccl::test;

namespace {

/// Runs `body` in a process that has read no files yet. Returns its result.
bool in_new_process(const std::function<bool()>& body) {
  const auto child = ::fork();
  if (child == 0) ::_exit(body() ? 0 : 1);
  int status = 1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return status == 0;
}

struct Folder {
  std::string path = fmt::format("/tmp/ccl.files.{}", ::getpid());
  Folder() { std::filesystem::create_directory(path); }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string file(const char* name, const char* text) const {
    const std::string at = path + "/" + name;
    std::ofstream{at} << text;
    return at;
  }
};

bool integer_is(const char* name, Index value) {
  const auto read = detail::setting_integer(name);
  return read && *read == value;
}

}  // namespace

TEST_CASE("lines are read as NCCL reads them") {
  const auto all = detail::lines_of(
      "NCCL_DEBUG=INFO\r\n# NCCL_IB_TC=1\nno line\nNCCL_SOCKET_IFNAME==ens1\n NCCL_IB_SL=1\n"
      "OTHER=1\nNCCL_DEBUG=WARN\nCCL_TIMEOUT= 5\nNCCL_HOSTID=",
      "a");
  std::string text;
  for (const auto& one : all) text += fmt::format("{}={};", one.variable, one.value);
  CHECK(text == "NCCL_DEBUG=INFO;NCCL_SOCKET_IFNAME==ens1;CCL_TIMEOUT= 5;NCCL_HOSTID=;");
  CHECK(detail::lines_of("", "a").empty());
}

TEST_CASE("the file that NCCL_CONF_FILE names counts, behind the environment") {
  const Folder folder;
  const std::string named = folder.file("named", "NCCL_IB_TC=0x6a\nNCCL_IB_SL=2\nCCL_IB_PKEY=4\n");
  const Environment which{{{"NCCL_CONF_FILE", named}, {"NCCL_IB_SL", "3"}}};
  CHECK(in_new_process([] {
    return integer_is("IB_TC", 106) && integer_is("IB_SL", 3) && integer_is("IB_PKEY", 4) &&
           detail::setting_given("IB_TC");
  }));
}

TEST_CASE("a named file that cannot be read is one warning of rank 0") {
  const Folder folder;
  for (const std::string& path : {folder.path + "/none", folder.path}) {
    const Environment missing{"NCCL_CONF_FILE", path};
    CHECK(in_new_process([&] {
      const std::string other = log_of([] { detail::report_settings(1); });
      const std::string again = log_of([] { detail::report_settings(0); });
      return mentions(other, "INFO ENV no values of NCCL_CONF_FILE count: cannot read") &&
             mentions(other, path.c_str()) && !mentions(again, "NCCL_CONF_FILE count");
    }));
    CHECK(in_new_process([] {
      return mentions(log_of([] { detail::report_settings(0); }), "WARN ENV no values of");
    }));
  }
}

TEST_CASE("an error about a value names the file that gives it") {
  const Folder folder;
  const std::string named = folder.file("named", "CCL_TIMEOUT=soon\nNCCL_IB_TC=3000\n");
  const Environment which{"NCCL_CONF_FILE", named};
  CHECK(in_new_process([&] {
    const auto checked = detail::check_settings();
    const std::string log = log_of([] { detail::report_settings(0); });
    return !checked && mentions(checked.error().what, ("CCL_TIMEOUT=soon in " + named).c_str()) &&
           mentions(log, ("NCCL_IB_TC=3000 in " + named).c_str());
  }));
}

TEST_CASE("without it, the user's file is read") {
  const Folder folder;
  folder.file(".nccl.conf", "NCCL_IB_TC=7\n");
  const std::string before = std::getenv("HOME") == nullptr ? "/" : std::getenv("HOME");
  ::setenv("HOME", folder.path.c_str(), 1);
  CHECK(in_new_process([] { return integer_is("IB_TC", 7); }));
  const std::string other = folder.file("other", "");
  {
    const Environment instead{"NCCL_CONF_FILE", other};
    CHECK(in_new_process([] { return integer_is("IB_TC", -1); }));
  }
  ::setenv("HOME", before.c_str(), 1);
  const Environment missing{"NCCL_CONF_FILE", folder.path + "/none"};
  CHECK(in_new_process([] { return integer_is("IB_TC", -1); }));
}
