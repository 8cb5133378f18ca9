#include "comm/observe/call_counters.hpp"

#include <algorithm>
#include <bit>

namespace ccl::detail {
namespace {

constexpr auto unordered = std::memory_order_relaxed;
constexpr int other_index = int(CallCounters::operations.size()) - 1;
constexpr int barrier_index = other_index - 1;
static_assert(CallCounters::operations[std::size_t(barrier_index)] == "barrier");

// True for operations in which a rank passes one of as many parts as there are ranks.
constexpr auto is_split = [] {
  std::array<bool, CallCounters::operations.size()> all{};
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto name = CallCounters::operations[i];
    all[i] = name == "all_gather" || name == "reduce_scatter" || name == "all_to_all" ||
             name == "gather" || name == "scatter";
  }
  return all;
}();

}  // namespace

int CallCounters::operation_of(std::string_view what) {
  const auto found = std::ranges::find(operations, what);
  return found == operations.end() ? other_index : int(found - operations.begin());
}

Index CallCounters::bytes_of(int operation, const CallInfo& info, int ranks) {
  if (info.count < 0 || info.element_bytes <= 0) return -1;
  return info.count * info.element_bytes * (is_split[std::size_t(operation)] ? ranks : 1);
}

int CallCounters::class_of(Index bytes) {
  if (bytes < 0) return unknown;
  if (bytes <= class_bytes[0]) return 0;
  // Each class has four times the bytes of the one before it.
  return std::min(larger, (int(std::bit_width(Word(bytes - 1))) - 7) / 2);
}

double CallCounters::bus_factor(int operation, int ranks) {
  if (ranks <= 1 || operation >= barrier_index) return 1;
  const double others = double(ranks - 1) / ranks;
  const auto name = operations[std::size_t(operation)];
  if (name == "all_reduce" || name == "all_reduce_rows") return 2 * others;
  return is_split[std::size_t(operation)] ? others : 1;
}

CallCounters::Call CallCounters::call(int operation, const CallInfo& info, int ranks) {
  const Index bytes = bytes_of(operation, info, ranks);
  const int cell = operation * classes + class_of(bytes);
  Cell& of = cells_[std::size_t(cell)];
  return {cell, {&of.calls, &of.bytes, Word(std::max<Index>(0, bytes))}};
}
CallCounters::Call CallCounters::barrier() {
  const int cell = barrier_index * classes;
  Cell& of = cells_[std::size_t(cell)];
  return {cell, {&of.calls, &of.bytes, 0}};
}

FlightRecorder::EndTally CallCounters::end_tally(int cell) {
  if (cell < 0) return {};
  Cell& of = cells_[std::size_t(cell)];
  return {&of.ended, &of.ticks};
}

void CallCounters::failed(int cell) {
  if (cell >= 0) cells_[std::size_t(cell)].failed.fetch_add(1, unordered);
}

Word CallCounters::calls(int operation) const {
  Word sum = 0;
  for (int c = 0; c < classes; ++c) sum += cell(operation, c).calls.load(unordered);
  return sum;
}

}  // namespace ccl::detail
