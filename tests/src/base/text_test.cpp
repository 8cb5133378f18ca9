#include "base/text.hpp"

#include <ccl/detail/runtime/settings.hpp>
#include <ccl/topo/graph.hpp>

#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "support/catch.hpp"
#include "support/environment.hpp"
#include "support/skip.hpp"
#include <unistd.h>

using namespace ccl;
using namespace ccl::test;

namespace {

/// The locale that a program has set, compiled for the test where the machine has its sources.
class Locale {
 public:
  explicit Locale(const std::string& name)
      : folder_{std::filesystem::temp_directory_path() /
                ("ccl_locale_" + std::to_string(::getpid()))},
        path_{"LOCPATH", folder_.string()} {
    std::filesystem::create_directories(folder_);
    const std::string made = (folder_ / (name + ".UTF-8")).string();
    const std::string compile = "localedef -i " + name + " -f UTF-8 " + made + " >/dev/null 2>&1";
    there = std::system(compile.c_str()) == 0 &&
            std::setlocale(LC_ALL, (name + ".UTF-8").c_str()) != nullptr;
  }
  ~Locale() {
    std::setlocale(LC_ALL, "C");
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  Locale(const Locale&) = delete;
  Locale& operator=(const Locale&) = delete;

  bool there = false;

 private:
  std::filesystem::path folder_;
  Environment path_;
};

void check_settings_are_read() {
  const Environment env{{{"CCL_DEBUG", "info"},
                         {"NCCL_NET", "ib"},
                         {"CCL_SOCKET_FAMILY", "af_inet"},
                         {"CCL_TRANSPORT", "SHM,IB"},
                         {"CCL_ALGO", "RING;ALLTOALL:PAIRWISE"},
                         {"CCL_PROTO", "SIMPLE"},
                         {"CCL_DEBUG_SUBSYS", "init"},
                         {"CCL_MEMORY_BUDGET", "1g"},
                         {"CCL_TIMEOUT", "1.5"}}};
  const auto checked = detail::check_settings();
  CHECK((checked ? "" : checked.error().what) == "");
  CHECK(detail::setting_text("DEBUG").value_or("") == "INFO");
  CHECK(detail::setting_seconds("TIMEOUT").value_or(0) == 1.5);
}

}  // namespace

TEST_CASE("letters change their case as in ASCII, and others not at all") {
  CHECK(detail::upper("info_I-\xc4\xb1") == "INFO_I-\xc4\xb1");
  CHECK(detail::lower("INFO_i-\xc4\xb0") == "info_i-\xc4\xb0");
}

TEST_CASE("a name is the same in any case, with _ and without") {
  CHECK(detail::plain("ALL_GATHER") == detail::plain("allGather"));
  CHECK(detail::plain("Copy Engine") == "copyengine");
  CHECK(detail::plain("ll128-x") == "ll128-x");
}

TEST_CASE("a number is what a text begins with") {
  const auto is = [](const char* text) {
    const auto [value, size] = detail::leading_number(text);
    char* end = nullptr;  // the tests' own locale is "C"
    const double known = std::strtod(text, &end);
    INFO(text);
    CHECK(size == std::size_t(end - text));
    CHECK(value == known);
  };
  for (const char* text :
       {"2.5",    "2.5 GT/s PCIe", " \t7",   "+1e3x", "-0.25", "0x1f", "0x",  "0xg", "1e400",
        "-1e400", "1e-400",        "inf",    "",      " ",     "-",    "--1", "+-1", ".",
        "x",      "1,5",           "00012.", ".5e-1"}) {
    is(text);
  }
}

TEST_CASE("a text is UTF-8 or is not") {
  for (const char* const good : {"", "plain", "caf\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80"}) {
    CHECK(detail::is_utf8(good));
  }
  for (const char* const bad :
       {"caf\xe9", "\xc3", "\xc0\xaf", "\xed\xa0\x80", "\xf5\x80\x80\x80", "a\x80"}) {
    CHECK_FALSE(detail::is_utf8(bad));
  }
}

TEST_CASE("a text inside a line has no line of its own") {
  CHECK(detail::on_one_line("caf\xc3\xa9") == "caf\xc3\xa9");
  CHECK(detail::on_one_line("a\nb\tc\x1b[0m") == "a?b?c?[0m");
  CHECK(detail::on_one_line("caf\xe9\n") == "caf??");
}

TEST_CASE("settings and link speeds are read in a locale with other letters") {
  const Locale turkish{"tr_TR"};
  if (!turkish.there) return skip("there is no locale tr_TR");
  check_settings_are_read();
}

TEST_CASE("settings and link speeds are read in a locale with other numbers") {
  const Locale german{"de_DE"};
  if (!german.there) return skip("there is no locale de_DE");
  check_settings_are_read();
  CHECK(topo::pcie_bw("2.5 GT/s PCIe", 16) == 3);
}
