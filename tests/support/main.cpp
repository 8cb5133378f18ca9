#if defined(CCL_CATCH2_V3)
#  include <catch2/catch_session.hpp>
#  include <catch2/catch_test_case_info.hpp>
#  include <catch2/reporters/catch_reporter_event_listener.hpp>
#  include <catch2/reporters/catch_reporter_registrars.hpp>
#else
#  define CATCH_CONFIG_RUNNER
#  define CATCH_CONFIG_DEFAULT_REPORTER "cases"
#  include <catch2/catch.hpp>
#endif

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "support/skip.hpp"

namespace {

/// Cases that have run, and what they skipped. A case with generators or sections runs several
/// times, and is skipped if each of its runs is.
class Skips {
 public:
  void begin_case(const std::string& name) {
    const std::lock_guard lock{mutex_};
    ++cases_;
    case_ = name;
    runs_ = skipped_runs_ = 0;
  }
  void begin_section() {
    const std::lock_guard lock{mutex_};
    if (depth_++ > 0) return;
    ++runs_;
    skips_ = false;
  }
  void end_section() {
    const std::lock_guard lock{mutex_};
    if (--depth_ == 0 && skips_) ++skipped_runs_;
  }
  void end_case() {
    const std::lock_guard lock{mutex_};
    if (runs_ > 0 && skipped_runs_ == runs_) ++skipped_cases_;
  }
  /// `whole`: the run of the case ends.
  void add(std::string_view why, bool whole) {
    const std::lock_guard lock{mutex_};
    skips_ = skips_ || whole;
    auto found = std::find_if(reasons_.begin(), reasons_.end(),
                              [&](const Reason& known) { return known.why == why; });
    if (found == reasons_.end()) found = reasons_.insert(found, {std::string{why}, {}});
    if (found->cases.empty() || found->cases.back() != case_) found->cases.push_back(case_);
  }
  /// True if no case has run to its end. Where another reporter counts no cases: if any was
  /// skipped.
  bool all() const { return cases_ == 0 ? !reasons_.empty() : skipped_cases_ == cases_; }
  void print() const {
    for (const Reason& reason : reasons_) {
      std::cout << "SKIP: " << reason.why;
      if (!all()) {
        std::cout << " (in " << reason.cases.size() << " of " << cases_ << " cases)";
        for (const std::string& name : reason.cases) std::cout << "\n  " << name;
      }
      std::cout << std::endl;
    }
  }

 private:
  struct Reason {
    std::string why;
    std::vector<std::string> cases{};
  };
  std::mutex mutex_;
  std::vector<Reason> reasons_;
  std::string case_;
  int cases_ = 0, skipped_cases_ = 0;
  int runs_ = 0, skipped_runs_ = 0;  // of the current case
  int depth_ = 0;                    // of its sections
  bool skips_ = false;               // its current run
};

Skips& skips() {
  static Skips all;
  return all;
}

#if defined(CCL_CATCH2_V3)
using Reporter = Catch::EventListenerBase;
#else
using Reporter = Catch::ConsoleReporter;  // a listener would make Catch2 2 report every assertion
#endif

/// Counts cases and their runs.
class CaseReporter : public Reporter {
 public:
  using Reporter::Reporter;
  static std::string getDescription() { return "console, and what was skipped at the end"; }
  void testCaseStarting(const Catch::TestCaseInfo& info) override {
    skips().begin_case(info.name);
    Reporter::testCaseStarting(info);
  }
  void sectionStarting(const Catch::SectionInfo& info) override {
    skips().begin_section();
    Reporter::sectionStarting(info);
  }
  void sectionEnded(const Catch::SectionStats& stats) override {
    Reporter::sectionEnded(stats);
    skips().end_section();
  }
  void testCaseEnded(const Catch::TestCaseStats& stats) override {
    Reporter::testCaseEnded(stats);
    skips().end_case();
  }
};
#if defined(CCL_CATCH2_V3)
CATCH_REGISTER_LISTENER(CaseReporter)
#else
CATCH_REGISTER_REPORTER("cases", CaseReporter)
#endif

}  // namespace

void ccl::test::skip(std::string_view why) {
  skips().add(why, true);
}
void ccl::test::skip_part(std::string_view why) {
  skips().add(why, false);
}

/// Defined where several files of tests were compiled at once: see batches.cmake.
extern "C" const bool ccl_test_batch [[gnu::weak]];

namespace {

/// Chooses the cases of the file that this program is named after, if it has a batch.
void choose_file(Catch::ConfigData& config, const std::filesystem::path& program) {
  if (&ccl_test_batch == nullptr) return;
  const std::string name = program.filename().string();
  const std::string file = "[#" + name.substr(name.rfind('.') + 1) + "_test]";
  config.filenamesAsTags = true;
  if (config.testsOrTags.empty()) {
    config.testsOrTags = {file + "~[.]"};
#if !defined(CCL_CATCH2_V3)  // whose later versions fail by themselves if there is no such case
    config.warnings = Catch::WarnAbout::What(config.warnings | Catch::WarnAbout::NoTests);
#endif
  } else {
    for (std::string& tests : config.testsOrTags) {  // commas separate what is joined by "or"
      for (std::size_t i = 1; i < tests.size(); ++i) {
        if (tests[i] == ',' && tests[i - 1] != '\\') tests.insert(i, file), i += file.size();
      }
      tests += file;
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  Catch::Session session;
  if (const int wrong = session.applyCommandLine(argc, argv); wrong != 0) return wrong;
  choose_file(session.configData(), argv[0]);
  const int failed = session.run();
  skips().print();
  return failed == 0 && skips().all() ? 77 : failed;
}
