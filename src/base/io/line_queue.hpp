#pragma once

#include <cstddef>
#include <list>
#include <string>
#include <string_view>

namespace ccl::detail {

/// Lines of the log on their way to a file that nobody may read. No function blocks. The caller
/// must hold the log's mutex.
class LineQueue {
 public:
  static constexpr std::size_t max_bytes = std::size_t{1} << 20;  // of lines that wait

  /// Writes `line`, or keeps it behind others that wait. A line that finds no room is counted;
  /// `prefix` begins the line that reports the count, which takes the place of the lost ones.
  void write(int fd, std::string_view line, std::string_view prefix);
  /// Writes as many waiting bytes as `fd` accepts.
  void flush(int fd);
  bool empty() const { return waiting_.empty(); }
  /// Counts a line that could not be made, because no memory was left.
  void lose() { ++lost_; }

 private:
  void report_lost(std::string_view prefix);

  std::list<std::string> waiting_;  // an empty one has no memory
  std::size_t bytes_ = 0;           // of waiting_
  std::size_t written_ = 0;         // bytes of the first waiting line
  unsigned long lost_ = 0;
};

}  // namespace ccl::detail
