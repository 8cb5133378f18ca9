#include "support/played/fiber.hpp"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#  include <sanitizer/asan_interface.h>
#  include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#  include <sanitizer/tsan_interface.h>
#endif

// Saves the registers that a call preserves on the stack, stores the stack pointer to `*from`, and
// goes on with those at `to`.
extern "C" void ccl_played_switch(void** from, void* to);
extern "C" void ccl_played_entry();

#if defined(__x86_64__)
asm(R"(
  .text
  .globl ccl_played_switch
  .type ccl_played_switch, @function
ccl_played_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size ccl_played_switch, .-ccl_played_switch
  .globl ccl_played_entry
  .type ccl_played_entry, @function
ccl_played_entry:
  movq %r12, %rdi
  callq *%r13
  ud2
  .size ccl_played_entry, .-ccl_played_entry
)");
namespace {
constexpr int saved_words = 7, entry_word = 6, argument_word = 3, function_word = 2;
}
#elif defined(__aarch64__)
asm(R"(
  .text
  .globl ccl_played_switch
  .type ccl_played_switch, %function
ccl_played_switch:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
  .size ccl_played_switch, .-ccl_played_switch
  .globl ccl_played_entry
  .type ccl_played_entry, %function
ccl_played_entry:
  mov x0, x19
  blr x20
  brk #1
  .size ccl_played_entry, .-ccl_played_entry
)");
namespace {
constexpr int saved_words = 20, entry_word = 11, argument_word = 0, function_word = 1;
}
#else
#  error "Fibers are written for x86-64 and aarch64."
#endif

namespace ccl::test::played {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::size_t stack_bytes = 256 << 10;
#else
constexpr std::size_t stack_bytes = 64 << 10;
#endif
constexpr std::size_t stacks_at_once = 64;
constexpr std::uint64_t canary = 0x5afe'57ac'ca11'ab1eu;

/// Stacks of the worker's ended fibers. Pages are taken when they are used.
std::vector<std::byte*>& spare_stacks() {
  thread_local std::vector<std::byte*> spare;
  return spare;
}
std::byte* take_stack() {
  auto& spare = spare_stacks();
  if (spare.empty()) {
    void* const slab = ::mmap(nullptr, stack_bytes * stacks_at_once, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (slab == MAP_FAILED) {
      std::fprintf(stderr, "no memory for the stacks of played lanes\n");
      std::abort();
    }
    for (std::size_t s = 0; s < stacks_at_once; ++s) {
      spare.push_back(static_cast<std::byte*>(slab) + s * stack_bytes);
    }
  }
  std::byte* const stack = spare.back();
  spare.pop_back();
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(stack, stack_bytes);  // what the last fiber has left
#endif
  *reinterpret_cast<std::uint64_t*>(stack) = canary;
  return stack;
}
void give_stack(std::byte* stack) {
  if (*reinterpret_cast<std::uint64_t*>(stack) != canary) {
    std::fprintf(stderr, "a played lane took more than %zu bytes of stack\n", stack_bytes);
    std::abort();
  }
  spare_stacks().push_back(stack);
}

}  // namespace

void fiber_entry(Fiber* fiber) {
  Fiber::enter(*fiber);
}

Fiber::Fiber(Body body, void* of) : body_{body}, of_{of}, stack_{take_stack()} {
  auto* const words = reinterpret_cast<void**>(stack_ + stack_bytes - 64) - saved_words;
  for (int w = 0; w < saved_words; ++w) words[w] = nullptr;
  words[entry_word] = reinterpret_cast<void*>(&ccl_played_entry);
  words[argument_word] = this;
  words[function_word] = reinterpret_cast<void*>(&fiber_entry);
  here_ = words;
#if defined(__SANITIZE_THREAD__)
  sanitizer_ = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {
#if defined(__SANITIZE_THREAD__)
  __tsan_destroy_fiber(sanitizer_);
#endif
  give_stack(stack_);
}

void Fiber::enter(Fiber& fiber) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &fiber.worker_stack_, &fiber.worker_stack_bytes_);
#endif
  fiber.body_(fiber.of_);
}

void Fiber::resume() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&worker_sanitizer_, stack_, stack_bytes);
#endif
#if defined(__SANITIZE_THREAD__)
  worker_sanitizer_ = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(sanitizer_, 0);
#endif
  ccl_played_switch(&worker_, here_);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(worker_sanitizer_, nullptr, nullptr);
#endif
}

void Fiber::leave() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&sanitizer_, worker_stack_, worker_stack_bytes_);
#endif
#if defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(worker_sanitizer_, 0);
#endif
  ccl_played_switch(&here_, worker_);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(sanitizer_, &worker_stack_, &worker_stack_bytes_);
#endif
}

void Fiber::leave_for_good() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(nullptr, worker_stack_, worker_stack_bytes_);
#endif
#if defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(worker_sanitizer_, 0);
#endif
  ccl_played_switch(&here_, worker_);
}

}  // namespace ccl::test::played
