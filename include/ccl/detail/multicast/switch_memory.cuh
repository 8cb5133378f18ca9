#pragma once

#include <ccl/detail/base/bit_cast.hpp>
#include <ccl/detail/base/ptx_multimem.hpp>
#include <ccl/detail/multicast/memory.hpp>

#include <nv/target>

namespace ccl::detail {

/// Multicast by NVSwitches, for GPUs from sm_90 on; code for others does nothing. Not run on
/// hardware. No program includes this header unless it includes <ccl/nvls.cuh>.
class SwitchMulticast {
 public:
  CCL_DEVICE SwitchMulticast(Word all, const PeerView&) : all_{all} {}

  template <class F, class T>
  CCL_DEVICE Packet load_reduced(Index packet) const {
    static_assert(SwitchOp<F, T>::possible);
    const Word at = all_ + Word(packet) * sizeof(Packet);
    NV_IF_ELSE_TARGET(NV_PROVIDES_SM_90,
                      (return reduced_at<typename SwitchOp<F, T>::Functor, T>(at);),
                      (return {{at, at}};))
  }
  CCL_DEVICE void store(Index packet, Packet value) const {
    NV_IF_TARGET(NV_PROVIDES_SM_90,
                 (ptx::multimem_store(all_ + Word(packet) * sizeof(Packet), value);))
  }
  CCL_DEVICE void store_relaxed(Index word, Word value) const {
    NV_IF_TARGET(NV_PROVIDES_SM_90,
                 (ptx::multimem_store_relaxed(all_ + Word(word) * sizeof(Word), value);))
  }
  CCL_DEVICE void store_release(Index word, Word value) const {
    NV_IF_TARGET(NV_PROVIDES_SM_90,
                 (ptx::multimem_store_release(all_ + Word(word) * sizeof(Word), value);))
  }
  CCL_DEVICE static void fence() { NV_IF_TARGET(NV_PROVIDES_SM_90, (ptx::fence_aliases();)) }

 private:
  template <class Functor, class T>
  CCL_DEVICE static Packet reduced_at(Word at) {
    if constexpr (sizeof(T) == 8) {
      return {{number<Functor, T>(at), number<Functor, T>(at + 8)}};
    } else if constexpr (Integer<T>) {
      return {{number<Functor, T>(at) | number<Functor, T>(at + 4) << 32,
               number<Functor, T>(at + 8) | number<Functor, T>(at + 12) << 32}};
    } else {
      return floats<Functor, T>(at);
    }
  }
  template <class F, class T>
  CCL_DEVICE static Packet floats(Word at) {
    constexpr bool adds = cuda::std::is_same_v<F, Sum>, least = cuda::std::is_same_v<F, Min>;
    if constexpr (cuda::std::is_same_v<T, float>) {
      return ptx::multimem_add_f32(at);
    } else if constexpr (cuda::std::is_same_v<T, float16>) {
      if constexpr (adds)
        return ptx::multimem_add_f16(at);
      else if constexpr (least)
        return ptx::multimem_min_f16(at);
      else
        return ptx::multimem_max_f16(at);
    } else {
      if constexpr (adds)
        return ptx::multimem_add_bf16(at);
      else if constexpr (least)
        return ptx::multimem_min_bf16(at);
      else
        return ptx::multimem_max_bf16(at);
    }
  }
  /// Returns the bits of one number of 4 or 8 bytes.
  template <class F, class T>
  CCL_DEVICE static Word number(Word at) {
    constexpr bool wide = sizeof(T) == 8;
    if constexpr (cuda::std::is_same_v<T, double>) {
      return detail::bit_cast<Word>(ptx::multimem_add_f64(at));
    } else if constexpr (cuda::std::is_same_v<F, Sum>) {
      if constexpr (wide)
        return ptx::multimem_add_u64(at);
      else
        return ptx::multimem_add_u32(at);
    } else if constexpr (cuda::std::is_same_v<F, Min>) {
      return least<wide, cuda::std::is_signed_v<T>>(at);
    } else {
      return most<wide, cuda::std::is_signed_v<T>>(at);
    }
  }
  template <bool Wide, bool Signed>
  CCL_DEVICE static Word least(Word at) {
    if constexpr (Wide)
      return Signed ? ptx::multimem_min_s64(at) : ptx::multimem_min_u64(at);
    else
      return Signed ? ptx::multimem_min_s32(at) : ptx::multimem_min_u32(at);
  }
  template <bool Wide, bool Signed>
  CCL_DEVICE static Word most(Word at) {
    if constexpr (Wide)
      return Signed ? ptx::multimem_max_s64(at) : ptx::multimem_max_u64(at);
    else
      return Signed ? ptx::multimem_max_s32(at) : ptx::multimem_max_u32(at);
  }

  Word all_;
};
static_assert(MulticastMemory<SwitchMulticast>);

}  // namespace ccl::detail
