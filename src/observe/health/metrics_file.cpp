#include "observe/health/metrics_file.hpp"

#include <ccl/comm/log.hpp>
#include <ccl/detail/runtime/host_id.hpp>
#include <ccl/detail/runtime/settings.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "base/io/file.hpp"
#include <unistd.h>

namespace ccl::detail::health {
namespace {
constexpr double min_interval_s = 0.1;
constexpr int max_tries = 100;  // a millisecond each, for a file to be removed
}  // namespace

void MetricsFile::configure() {
  const std::lock_guard lock{mutex_};
  path_.clear();
  const auto folder = setting_text("METRICS_DIR");
  const auto seconds = setting_seconds("METRICS_INTERVAL");
  if (!folder || folder->empty()) return;
  path_ = fmt::format("{}/ccl_{}_{}.prom", *folder, host_name(), ::getpid());
  interval_ = std::chrono::duration<double>{std::max(min_interval_s, seconds.value_or(15))};
  next_ = {};
  warned_ = false;
}

void MetricsFile::write(std::string_view text) {
  const auto now = std::chrono::steady_clock::now();
  next_ = now + std::chrono::duration_cast<std::chrono::steady_clock::duration>(interval_);
  const std::lock_guard lock{mutex_};
  if (removed_) return;
  const auto done = replace_whole_file(path_, text);
  if (done || warned_) return;
  warned_ = true;
  log_warn(LogPart::init, "{}; set CCL_METRICS_DIR to a folder for it", done.error().what);
}

void MetricsFile::remove() {
  std::unique_lock lock{mutex_, std::try_to_lock};
  for (int tries = 0; !lock && tries < max_tries; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
    (void)lock.try_lock();
  }
  if (!lock || removed_.exchange(true) || path_.empty()) return;
  ::unlink(path_.c_str());
}

}  // namespace ccl::detail::health
