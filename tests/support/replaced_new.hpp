#pragma once

// Replaces operator new of a program. Exactly one source of the program includes it.
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace ccl::test {

/// Called before each allocation, which fails if it returns false. Must not allocate. Null: none.
inline std::atomic<bool (*)()> allocation_hook{nullptr};

inline void* allocate(std::size_t bytes, std::size_t alignment) noexcept {
  const auto may = allocation_hook.load(std::memory_order_relaxed);
  if (may != nullptr && !may()) return nullptr;
  if (bytes == 0) bytes = 1;
  if (alignment <= alignof(std::max_align_t)) return std::malloc(bytes);
  return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}
inline void* allocate_or_throw(std::size_t bytes,
                               std::size_t alignment = alignof(std::max_align_t)) {
  void* const at = allocate(bytes, alignment);
  if (at == nullptr) throw std::bad_alloc{};
  return at;
}

}  // namespace ccl::test

void* operator new(std::size_t bytes) {
  return ccl::test::allocate_or_throw(bytes);
}
void* operator new[](std::size_t bytes) {
  return ccl::test::allocate_or_throw(bytes);
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return ccl::test::allocate_or_throw(bytes, std::size_t(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return ccl::test::allocate_or_throw(bytes, std::size_t(alignment));
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return ccl::test::allocate(bytes, alignof(std::max_align_t));
}
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
  return ccl::test::allocate(bytes, alignof(std::max_align_t));
}
void operator delete(void* at) noexcept {
  std::free(at);
}
void operator delete[](void* at) noexcept {
  std::free(at);
}
void operator delete(void* at, std::size_t) noexcept {
  std::free(at);
}
void operator delete[](void* at, std::size_t) noexcept {
  std::free(at);
}
void operator delete(void* at, std::align_val_t) noexcept {
  std::free(at);
}
void operator delete[](void* at, std::align_val_t) noexcept {
  std::free(at);
}
void operator delete(void* at, std::size_t, std::align_val_t) noexcept {
  std::free(at);
}
void operator delete[](void* at, std::size_t, std::align_val_t) noexcept {
  std::free(at);
}
