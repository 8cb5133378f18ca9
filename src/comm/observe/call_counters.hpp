#pragma once

#include <ccl/detail/runtime/call_info.hpp>
#include <ccl/detail/runtime/flight_recorder.hpp>
#include <ccl/types/word.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <string_view>

namespace ccl::detail {

/// Counts the calls of a communicator by operation and size. Any thread.
class CallCounters {
 public:
  /// Names of operations, as `CallInfo::what` has them. Those that are not listed are the last.
  static constexpr std::array<std::string_view, 13> operations{
      "all_reduce",      "all_gather", "reduce_scatter", "broadcast", "reduce",
      "all_to_all",      "send_recv",  "all_to_all_v",   "gather",    "scatter",
      "all_reduce_rows", "barrier",    "other"};
  /// Most bytes of each class but the last two: larger calls, and calls whose bytes are not known.
  static constexpr std::array<Index, 12> class_bytes{
      256,     1 << 10, 4 << 10,  16 << 10, 64 << 10,  256 << 10,
      1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20, Index{1} << 30};
  static constexpr int larger = int(class_bytes.size()), unknown = larger + 1;
  static constexpr int classes = unknown + 1;

  struct Cell {
    std::atomic<Word> calls{0}, bytes{0};  // of calls that were made
    std::atomic<Word> ended{0}, ticks{0};  // of calls that have run on CPU lanes and ended well
    std::atomic<Word> failed{0};
  };

  /// Bytes of a call as the benchmarks count them: those of the largest buffer of a rank. -1: not
  /// known, because the call has no single count.
  static Index bytes_of(int operation, const CallInfo& info, int ranks);
  static int operation_of(std::string_view what);
  static constexpr int send_recv = 6;
  static_assert(operations[send_recv] == "send_recv");
  static int class_of(Index bytes);
  /// Bytes that cross the busiest link of an ideal algorithm, over the bytes of the call.
  static double bus_factor(int operation, int ranks);

  /// Call of an operation, for `ended`, and the counters that `FlightRecorder::note` advances.
  struct Call {
    int cell = -1;
    FlightRecorder::Tally tally;
  };
  Call call(int operation, const CallInfo& info, int ranks);
  Call barrier();
  /// Counters that `FlightRecorder::ended` advances. Cell -1: none.
  FlightRecorder::EndTally end_tally(int cell);
  void failed(int cell);

  const Cell& cell(int operation, int size_class) const {
    return cells_[std::size_t(operation * classes + size_class)];
  }
  /// Calls of an operation, of any size.
  Word calls(int operation) const;

 private:
  std::array<Cell, operations.size() * std::size_t(classes)> cells_;
};

}  // namespace ccl::detail
