#include "base/io/line_queue.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>

#include "base/io/nonblocking_write.hpp"

namespace ccl::detail {

void LineQueue::write(int fd, std::string_view line, std::string_view prefix) {
  flush(fd);
  if (lost_ > 0 && bytes_ < max_bytes / 2) report_lost(prefix);
  flush(fd);
  std::size_t begun = 0;
  if (waiting_.empty()) {
    const auto n = write_without_blocking(fd, line);
    if (n >= 0 && std::size_t(n) == line.size()) return;
    if (n < 0 && errno != EAGAIN && errno != EINTR) return;  // closed: there is nobody to report to
    begun = std::size_t(std::max<ssize_t>(n, 0));
  }
  if (begun == 0 && bytes_ + line.size() > max_bytes) return lose();
  waiting_.emplace_back(line.substr(begun));
  bytes_ += line.size() - begun;
}

void LineQueue::flush(int fd) {
  while (!waiting_.empty()) {
    const std::string_view first = std::string_view{waiting_.front()}.substr(written_);
    const auto n = write_without_blocking(fd, first);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return;
    if (n >= 0 && std::size_t(n) < first.size()) {
      written_ += std::size_t(n);
      continue;
    }
    bytes_ -= waiting_.front().size();
    written_ = 0;
    waiting_.pop_front();
  }
}

void LineQueue::report_lost(std::string_view prefix) {
  waiting_.push_back(
      fmt::format("{}{} lines of the log are lost here (its reader did not read, or "
                  "no memory was left)\n",
                  prefix, lost_));
  bytes_ += waiting_.back().size();
  lost_ = 0;
}

}  // namespace ccl::detail
