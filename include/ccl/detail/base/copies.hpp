#pragma once

// Copies of CPU threads. Host only. Later stores are ordered after them.
#include <cstddef>
#include <cstring>

namespace ccl::detail {

/// Minimum of a copy for which vectors or string stores pay.
inline constexpr std::size_t long_copy_bytes = 256;
/// Copies as `copy_away` and `copy_here`, at least `long_copy_bytes`.
void copy_away_long(void* to, const void* from, std::size_t bytes);
void copy_here_long(void* to, const void* from, std::size_t bytes);
/// Copies past the caches, where the CPU has such stores.
void copy_past_caches(void* to, const void* from, std::size_t bytes);

/// Copies into memory that another core was the last to read, by string stores where the CPU has
/// them: these need not fetch lines that they overwrite whole.
inline void copy_away(void* to, const void* from, std::size_t bytes) {
  if (bytes >= long_copy_bytes) return copy_away_long(to, from, bytes);
  std::memcpy(to, from, bytes);
}

/// Copies into memory of this rank.
inline void copy_here(void* to, const void* from, std::size_t bytes) {
  if (bytes >= long_copy_bytes) return copy_here_long(to, from, bytes);
  std::memcpy(to, from, bytes);
}

}  // namespace ccl::detail
