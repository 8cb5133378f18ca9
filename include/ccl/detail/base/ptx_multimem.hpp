#pragma once

// PTX of NVLink multicast, which GPUs from sm_90 on have. The functions exist in their code only.
// An address is that of a multicast object: other instructions must not access it, so it is no
// pointer. Nothing may run this code unless CCL_NVLS_ENABLE is 1. The header is empty for compilers
// without CUDA.
#include <ccl/types/word.hpp>

#if defined(__CUDACC__)
namespace ccl::ptx {

// An asm statement takes its instruction as a literal, so a macro stands for each shape: a packet,
// or one number of a kind of register.
#  define CCL_MULTIMEM_PACKET(name, instruction)                                                   \
    CCL_DEVICE Packet name(Word at) {                                                              \
      unsigned a, b, c, d;                                                                         \
      asm volatile("multimem.ld_reduce.relaxed.sys.global." instruction " {%0, %1, %2, %3}, [%4];" \
                   : "=r"(a), "=r"(b), "=r"(c), "=r"(d)                                            \
                   : "l"(at)                                                                       \
                   : "memory");                                                                    \
      return {{a | Word{b} << 32, c | Word{d} << 32}};                                             \
    }
#  define CCL_MULTIMEM_NUMBER(name, instruction, Type, kind)                         \
    CCL_DEVICE Type name(Word at) {                                                  \
      Type value;                                                                    \
      asm volatile("multimem.ld_reduce.relaxed.sys.global." instruction " %0, [%1];" \
                   : "=" kind(value)                                                 \
                   : "l"(at)                                                         \
                   : "memory");                                                      \
      return value;                                                                  \
    }

// Loads of what all copies make together. Sums of 16-bit floats accumulate in float.
CCL_MULTIMEM_PACKET(multimem_add_f32, "add.v4.f32")
CCL_MULTIMEM_PACKET(multimem_add_f16, "add.acc::f32.v4.f16x2")
CCL_MULTIMEM_PACKET(multimem_add_bf16, "add.acc::f32.v4.bf16x2")
CCL_MULTIMEM_PACKET(multimem_min_f16, "min.v4.f16x2")
CCL_MULTIMEM_PACKET(multimem_min_bf16, "min.v4.bf16x2")
CCL_MULTIMEM_PACKET(multimem_max_f16, "max.v4.f16x2")
CCL_MULTIMEM_PACKET(multimem_max_bf16, "max.v4.bf16x2")
CCL_MULTIMEM_NUMBER(multimem_add_f64, "add.f64", double, "d")
CCL_MULTIMEM_NUMBER(multimem_add_u32, "add.u32", unsigned, "r")
CCL_MULTIMEM_NUMBER(multimem_add_u64, "add.u64", Word, "l")  // of signed numbers, too
CCL_MULTIMEM_NUMBER(multimem_min_u32, "min.u32", unsigned, "r")
CCL_MULTIMEM_NUMBER(multimem_min_s32, "min.s32", unsigned, "r")
CCL_MULTIMEM_NUMBER(multimem_min_u64, "min.u64", Word, "l")
CCL_MULTIMEM_NUMBER(multimem_min_s64, "min.s64", Word, "l")
CCL_MULTIMEM_NUMBER(multimem_max_u32, "max.u32", unsigned, "r")
CCL_MULTIMEM_NUMBER(multimem_max_s32, "max.s32", unsigned, "r")
CCL_MULTIMEM_NUMBER(multimem_max_u64, "max.u64", Word, "l")
CCL_MULTIMEM_NUMBER(multimem_max_s64, "max.s64", Word, "l")
#  undef CCL_MULTIMEM_PACKET
#  undef CCL_MULTIMEM_NUMBER

/// Stores a packet to all copies. They land in pieces, at different times.
CCL_DEVICE void multimem_store(Word at, Packet p) {
  asm volatile("multimem.st.relaxed.sys.global.v4.f32 [%0], {%1, %2, %3, %4};"
               :
               : "l"(at), "r"(unsigned(p.word[0])), "r"(unsigned(p.word[0] >> 32)),
                 "r"(unsigned(p.word[1])), "r"(unsigned(p.word[1] >> 32))
               : "memory");
}
/// Stores a word to all copies. It lands whole.
CCL_DEVICE void multimem_store_relaxed(Word at, Word value) {
  asm volatile("multimem.st.relaxed.sys.global.u64 [%0], %1;" : : "l"(at), "l"(value) : "memory");
}
/// Stores a word to all copies, after all earlier writes of this thread, and of threads that it
/// joined at a barrier, are visible.
CCL_DEVICE void multimem_store_release(Word at, Word value) {
  asm volatile("multimem.st.release.sys.global.u64 [%0], %1;" : : "l"(at), "l"(value) : "memory");
}
/// Orders this thread's accesses to one memory by several addresses.
CCL_DEVICE void fence_aliases() {
  asm volatile("fence.proxy.alias;" : : : "memory");
}

}  // namespace ccl::ptx
#endif
