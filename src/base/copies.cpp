#include <ccl/detail/base/copies.hpp>

#include <cstdint>

// The sanitizers see the copies of the C library alone.
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#  define CCL_OWN_COPIES 1
#  include <cpuid.h>
#  include <emmintrin.h>
#endif

namespace ccl::detail {

#if defined(CCL_OWN_COPIES)
namespace {

constexpr std::size_t page = 4096;

std::uintptr_t address(const void* at) {
  return reinterpret_cast<std::uintptr_t>(at);
}

/// Returns true if the CPU has fast string instructions (ERMS). They may write whole lines without
/// fetching them first.
bool has_string_stores() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b >> 9 & 1) != 0;
}
const bool string_stores = has_string_stores();

/// True if string stores of that copy are slow: `to` is up to 31 bytes behind `from` in a page. On
/// an EPYC (Zen 3) they reach 2 to 3 GB/s then, and 35 to 80 at all other distances.
bool strings_collide(const void* to, const void* from) {
  return (address(to) - address(from) - 1) % page < 31;
}

void store_string(void* to, const void* from, std::size_t bytes) {
  asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
}

/// Copies at least 16 bytes by `store(place, value)` of 16 bytes at aligned places. The ends are
/// copied as usual.
template <class Store>
void copy_by_vectors(void* into, const void* source, std::size_t bytes, const Store& store) {
  constexpr std::size_t size = sizeof(__m128i), line = 4 * size;
  auto* to = static_cast<char*>(into);
  const auto* from = static_cast<const char*>(source);
  const std::size_t head = (size - address(to) % size) % size;
  std::memcpy(to, from, head);
  to += head, from += head, bytes -= head;
  for (; bytes >= line; to += line, from += line, bytes -= line) {
    const auto* const read = reinterpret_cast<const __m128i_u*>(from);
    auto* const place = reinterpret_cast<__m128i*>(to);
    const __m128i a = _mm_loadu_si128(read), b = _mm_loadu_si128(read + 1);
    const __m128i c = _mm_loadu_si128(read + 2), d = _mm_loadu_si128(read + 3);
    store(place, a), store(place + 1, b), store(place + 2, c), store(place + 3, d);
    asm volatile("" : : : "memory");  // or the compiler calls memcpy, whose string stores collide
  }
  std::memcpy(to, from, bytes);
}
void copy_as_usual(void* to, const void* from, std::size_t bytes) {
  copy_by_vectors(to, from, bytes, [](__m128i* place, __m128i v) { _mm_store_si128(place, v); });
}

}  // namespace

void copy_past_caches(void* to, const void* from, std::size_t bytes) {
  if (bytes < long_copy_bytes) {
    std::memcpy(to, from, bytes);
    return;
  }
  copy_by_vectors(to, from, bytes, [](__m128i* place, __m128i v) { _mm_stream_si128(place, v); });
  _mm_sfence();
}

void copy_away_long(void* to, const void* from, std::size_t bytes) {
  if (string_stores && !strings_collide(to, from)) return store_string(to, from, bytes);
  copy_as_usual(to, from, bytes);
}

void copy_here_long(void* to, const void* from, std::size_t bytes) {
  // One core of an EPYC (Zen 3), usual and past the caches: 4 MiB 24 to 32 and 17 to 21 GB/s,
  // 8 MiB 13 to 15 and 16 to 20, 64 MiB 5 to 6 and 7 to 9.
  constexpr std::size_t beyond_caches = std::size_t{8} << 20;
  bytes < beyond_caches ? copy_as_usual(to, from, bytes) : copy_past_caches(to, from, bytes);
}

#else

void copy_away_long(void* to, const void* from, std::size_t bytes) {
  std::memcpy(to, from, bytes);
}
void copy_here_long(void* to, const void* from, std::size_t bytes) {
  std::memcpy(to, from, bytes);
}
void copy_past_caches(void* to, const void* from, std::size_t bytes) {
  std::memcpy(to, from, bytes);
}

#endif

}  // namespace ccl::detail
