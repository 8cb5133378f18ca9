#include "observe/health/metrics_file.hpp"

#include <ccl/comm/log.hpp>
#include <ccl/detail/runtime/host_id.hpp>
#include <ccl/detail/runtime/settings.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <thread>

#include "base/io/fd.hpp"
#include <fcntl.h>
#include <unistd.h>

namespace ccl::detail::health {
namespace {
constexpr double min_interval_s = 0.1;
constexpr int max_tries = 100;  // a millisecond each, for a file to be removed

bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    text.remove_prefix(std::size_t(n));
  }
  return true;
}
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
  // The collector reads files whose names end in .prom.
  const std::string fresh = path_ + ".new";
  const Fd fd{::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)};
  const bool done =
      fd && write_all(fd.get(), text) && std::rename(fresh.c_str(), path_.c_str()) == 0;
  if (done || warned_) return;
  warned_ = true;
  log_warn(LogPart::init, "cannot write {} ({}); set CCL_METRICS_DIR to a folder for it", path_,
           std::strerror(errno));
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
