#include "comm/call_counters.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace ccl::detail {
namespace {

constexpr auto unordered = std::memory_order_relaxed;
constexpr int other_index = int(CallCounters::operations.size()) - 1;
constexpr int barrier_index = other_index - 1;
static_assert(CallCounters::operations[std::size_t(barrier_index)] == "barrier");

// The first 16 characters of a name, filled up with zeros, for comparisons of two words.
struct Key {
  Word words[2] = {};
  friend bool operator==(const Key&, const Key&) = default;
};
constexpr Key key_of(std::string_view name) {
  std::array<char, 16> text{};
  std::copy_n(name.begin(), std::min(name.size(), text.size()), text.begin());
  const auto words = std::bit_cast<std::array<Word, 2>>(text);
  return {{words[0], words[1]}};
}
constexpr auto operation_keys = [] {
  std::array<Key, CallCounters::operations.size()> all;
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = key_of(CallCounters::operations[i]);
  return all;
}();

int operation_of(const Key& key) {
  for (int i = 0; i < other_index; ++i) {
    if (operation_keys[std::size_t(i)] == key) return i;
  }
  return other_index;
}

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
  return detail::operation_of(key_of(what));
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
  if (name == "all_reduce") return 2 * others;
  return is_split[std::size_t(operation)] ? others : 1;
}

int CallCounters::cell_of(const CallInfo& info, int ranks) {
  Key key;
  static_assert(sizeof key < sizeof info.what);
  std::memcpy(&key, info.what, sizeof key);
  const int operation = detail::operation_of(key);
  return operation * classes + class_of(bytes_of(operation, info, ranks));
}
int CallCounters::cell_of_barrier() {
  return barrier_index * classes;
}

FlightRecorder::Tally CallCounters::tally(int cell, const CallInfo& info, int ranks) {
  Cell& of = cells_[std::size_t(cell)];
  return {&of.calls, &of.bytes, Word(std::max<Index>(0, bytes_of(cell / classes, info, ranks)))};
}

void CallCounters::ended(int cell, Word ticks, bool well) {
  if (cell < 0) return;
  Cell& of = cells_[std::size_t(cell)];
  if (!well) {
    of.failed.fetch_add(1, unordered);
  } else if (ticks != 0) {
    of.ended.fetch_add(1, unordered);
    of.ticks.fetch_add(ticks, unordered);
  }
}

Word CallCounters::calls(int operation) const {
  Word sum = 0;
  for (int c = 0; c < classes; ++c) sum += cell(operation, c).calls.load(unordered);
  return sum;
}

}  // namespace ccl::detail
