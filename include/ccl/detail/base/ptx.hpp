#pragma once

// PTX of ccl, except that of the bulk copy engine (ptx_bulk.hpp). The header is empty for compilers
// without CUDA, so any header may include it.
#include <ccl/types/word.hpp>

#if defined(__CUDACC__)
#  include <nv/target>

namespace ccl::ptx {

/// Stores a packet in one 16-byte transaction. Lanes of a warp that fill a 128-byte line send it as
/// one.
CCL_DEVICE void store_relaxed(Packet* at, Packet p) {
  asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};"
               :
               : "l"(at), "l"(p.word[0]), "l"(p.word[1])
               : "memory");
}
CCL_DEVICE void store_relaxed(Word* at, Word value) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" : : "l"(at), "l"(value) : "memory");
}
/// Stores after all earlier writes of this thread, and of threads that it joined at a barrier, are
/// visible. Waits for these writes.
CCL_DEVICE void store_release(Word* at, Word value) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" : : "l"(at), "l"(value) : "memory");
}
/// Stores without any order. The write may be delayed until a release.
CCL_DEVICE void store_weak(Packet* at, Packet p) {
  asm volatile("st.global.v2.u64 [%0], {%1, %2};"
               :
               : "l"(at), "l"(p.word[0]), "l"(p.word[1])
               : "memory");
}

/// Loads past all stale caches. `volatile` keeps a batch in program order and every poll a new
/// load.
CCL_DEVICE Packet load_relaxed(const Packet* at) {
  Packet p;
  asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];"
               : "=l"(p.word[0]), "=l"(p.word[1])
               : "l"(at)
               : "memory");
  return p;
}
CCL_DEVICE Word load_relaxed(const Word* at) {
  Word value;
  asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(at) : "memory");
  return value;
}
/// Loads with acquire order. This thread, and threads that it then joins at a barrier, see all that
/// was visible to the releasing thread.
CCL_DEVICE Word load_acquire(const Word* at) {
  Word value;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(at) : "memory");
  return value;
}

/// Adds 1 without returning a value, so no thread waits. The sum is complete when the launch has
/// ended.
CCL_DEVICE void add_one(Word* at) {
  asm volatile("red.relaxed.gpu.global.add.u64 [%0], 1;" : : "l"(at) : "memory");
}

/// Adds to a word that threads of this GPU share, and returns its earlier value. Releases the
/// writes of this thread and of threads that it joined at a barrier, and acquires those of earlier
/// adds.
CCL_DEVICE Word fetch_add(Word* at, Word value) {
  Word before;
  asm volatile("atom.acq_rel.gpu.global.add.u64 %0, [%1], %2;"
               : "=l"(before)
               : "l"(at), "l"(value)
               : "memory");
  return before;
}

/// Returns nanoseconds of the GPU's clock, which ticks about once per us.
CCL_DEVICE Word now_ns() {
  Word now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

/// Waits at barrier `id` of the block for `threads` of its threads.
CCL_DEVICE void barrier(int id, int threads) {
  asm volatile("barrier.sync.aligned %0, %1;" : : "r"(id), "r"(threads) : "memory");
}
/// Waits as `barrier` does. Returns true on all threads if `vote` is true on all.
CCL_DEVICE bool barrier_all(int id, int threads, bool vote) {
  int result;
  asm volatile(
      "{.reg .pred p, q; setp.ne.s32 p, %3, 0; barrier.red.and.pred.aligned q, %1, %2, p; "
      "selp.s32 %0, 1, 0, q;}"
      : "=r"(result)
      : "r"(id), "r"(threads), "r"(int(vote))
      : "memory");
  return result != 0;
}

/// Lets the next launch of the stream start. It still waits for this launch's memory. Does nothing
/// in code for GPUs before sm_90, whose launches start when the previous one has ended.
CCL_DEVICE void launch_dependents() {
  NV_IF_TARGET(NV_PROVIDES_SM_90, (asm volatile("griddepcontrol.launch_dependents;"
                                                :
                                                :
                                                : "memory");))
}
/// Reads a word of each line and drops it.
template <class T>
CCL_DEVICE void look_at(const T& lines) {
  const auto* const words = reinterpret_cast<const unsigned*>(&lines);
  unsigned mix = 0;
  CCL_UNROLL for (int at = 0; at < int(sizeof lines / 4); at += 16) mix ^= words[at];
  asm volatile("{\n\t.reg .pred rare;\n\tsetp.eq.u32 rare, %0, 1;\n\t@rare nanosleep.u32 0;\n\t}"
               :
               : "r"(mix)
               : "memory");
}
/// Waits until the previous launch has ended and its memory is visible. In code for GPUs before
/// sm_90 that is so from the start: see `launch_dependents`.
CCL_DEVICE void wait_for_previous() {
  NV_IF_TARGET(NV_PROVIDES_SM_90, (asm volatile("griddepcontrol.wait;" : : : "memory");))
}

/// Converts two floats to two bf16, rounded to nearest even. `low` goes to the low half. From sm_80
/// on.
CCL_DEVICE unsigned round_bf16x2(float low, float high) {
  unsigned both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}

/// Adds two pairs of bf16. Each sum is rounded to nearest even. From sm_80 on.
CCL_DEVICE unsigned add_bf16x2(unsigned a, unsigned b) {
  constexpr unsigned ones = 0x3f80'3f80u;
  unsigned sum;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(ones), "r"(b));
  return sum;
}

/// Converts two floats to two halves, rounded to nearest even. `low` goes to the low half.
CCL_DEVICE unsigned round_f16x2(float low, float high) {
  unsigned both;
  NV_IF_ELSE_TARGET(
      NV_PROVIDES_SM_80,
      (asm("cvt.rn.f16x2.f32 %0, %1, %2;"
           : "=r"(both)
           : "f"(high), "f"(low));),
      (asm("{.reg .b16 l, h; cvt.rn.f16.f32 l, %2; cvt.rn.f16.f32 h, %1; mov.b32 %0, {l, h};}"
           : "=r"(both)
           : "f"(high), "f"(low));))
  return both;
}
CCL_DEVICE float widen_f16(unsigned short bits) {
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(bits));
  return wide;
}

}  // namespace ccl::ptx
#endif
