#pragma once

// PTX of the bulk copy engine, which GPUs from sm_90 on have. The functions exist in their code
// only. The header is empty for compilers without CUDA.
#include <ccl/types/word.hpp>

#if defined(__CUDACC__)
namespace ccl::ptx {

/// Returns the address that PTX takes for shared memory.
CCL_DEVICE unsigned shared_address(const void* at) {
  return unsigned(__cvta_generic_to_shared(at));
}

/// Makes `bar` a barrier that one thread and the bytes that it announces complete.
CCL_DEVICE void bulk_open(Word* bar) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" : : "r"(shared_address(bar)) : "memory");
}
/// Ends the use of `bar` as a barrier. No copy may be under way.
CCL_DEVICE void bulk_close(Word* bar) {
  asm volatile("mbarrier.inval.shared::cta.b64 [%0];" : : "r"(shared_address(bar)) : "memory");
}
/// Orders this thread's earlier accesses, and the opened barriers, before the copies that it
/// starts.
CCL_DEVICE void bulk_begin() {
  asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory");
  asm volatile("fence.proxy.async;" : : : "memory");
}

/// Starts to load `bytes` bytes to shared memory. They complete the current phase of `bar`.
/// Addresses and `bytes` are multiples of 16.
CCL_DEVICE void bulk_load(void* to, const void* from, unsigned bytes, Word* bar) {
  const unsigned at = shared_address(bar);
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
               :
               : "r"(at), "r"(bytes)
               : "memory");
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
      :
      : "r"(shared_address(to)), "l"(from), "r"(bytes), "r"(at)
      : "memory");
}
/// Starts to fetch `bytes` bytes into the cache of the GPU. The address and `bytes` are multiples
/// of 16.
CCL_DEVICE void bulk_prefetch(const void* from, unsigned bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" : : "l"(from), "r"(bytes) : "memory");
}
/// Waits for a phase of `bar` by its parity: 0 for the first. The engine ends the wait.
CCL_DEVICE void bulk_await_load(Word* bar, unsigned parity) {
  unsigned there = 0;
  while (there == 0) {
    asm volatile(
        "{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; "
        "selp.u32 %0, 1, 0, p;}"
        : "=r"(there)
        : "r"(shared_address(bar)), "r"(parity)
        : "memory");
  }
}
/// Starts to store `bytes` bytes of shared memory. Addresses and `bytes` are multiples of 16.
CCL_DEVICE void bulk_store(void* to, const void* from, unsigned bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
               :
               : "l"(to), "r"(shared_address(from)), "r"(bytes)
               : "memory");
  asm volatile("cp.async.bulk.commit_group;" : : : "memory");
}
/// Waits until all stores of this thread but the last `Left` have read their shared memory.
template <int Left>
CCL_DEVICE void bulk_await_reads() {
  asm volatile("cp.async.bulk.wait_group.read %0;" : : "n"(Left) : "memory");
}
/// Waits until this thread sees all of its stores but the last `Left`. A release by it publishes
/// them.
template <int Left = 0>
CCL_DEVICE void bulk_await_stores() {
  asm volatile("cp.async.bulk.wait_group %0;" : : "n"(Left) : "memory");
}

}  // namespace ccl::ptx
#endif
