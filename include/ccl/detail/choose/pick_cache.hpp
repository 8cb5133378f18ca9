#pragma once

#include <ccl/types/word.hpp>

#include <array>
#include <atomic>
#include <cstdint>

namespace ccl::detail {

/// Candidates picked for recent sizes, because a program repeats few of them and the cost model
/// takes longer than a short call. Any thread may use it. A copy is empty.
class PickCache {
 public:
  /// Size and constraints of a call as one word; 0 if the cache does not hold such calls.
  /// `constraints`: 8 bits.
  static std::uint64_t key(Index bytes, unsigned constraints) {
    if (bytes < 0 || bytes >> size_bits != 0) return 0;
    return std::uint64_t(bytes) << 16 | std::uint64_t(constraints) << 8 | present;
  }

  PickCache() = default;
  PickCache(const PickCache&) {}
  PickCache& operator=(const PickCache&) {
    clear();
    return *this;
  }

  /// Returns the candidate that was kept for a key, or `none`.
  int find(std::uint64_t key) const {
    const std::uint64_t entry = at(key).load(std::memory_order_relaxed);
    return key != 0 && (entry & ~candidate_bits) == key ? int(entry & candidate_bits) - 1 : none;
  }
  /// Keeps a candidate, from -1 to 125.
  void keep(std::uint64_t key, int candidate) {
    if (key == 0 || candidate < -1 || candidate >= int(candidate_bits) - 1) return;
    at(key).store(key | std::uint64_t(candidate + 1), std::memory_order_relaxed);
  }
  void clear() {
    for (auto& entry : entries_) entry.store(0, std::memory_order_relaxed);
  }

  static constexpr int none = -2;

 private:
  static constexpr int size_bits = 47, entry_bits = 4;
  static constexpr std::uint64_t candidate_bits = 127, present = 128;

  /// Fibonacci hashing (Knuth, The Art of Computer Programming, volume 3, section 6.4).
  static std::size_t place(std::uint64_t key) {
    return std::size_t(key * 0x9e37'79b9'7f4a'7c15u >> (64 - entry_bits));
  }
  const std::atomic<std::uint64_t>& at(std::uint64_t key) const { return entries_[place(key)]; }
  std::atomic<std::uint64_t>& at(std::uint64_t key) { return entries_[place(key)]; }

  std::array<std::atomic<std::uint64_t>, 1 << entry_bits> entries_{};
};

}  // namespace ccl::detail
