#pragma once

#include <ccl/algo/chunks.hpp>
#include <ccl/detail/lanes/peer_view.hpp>
#include <ccl/detail/lanes/spin_wait.hpp>

namespace ccl::detail {

/// Arguments of one launch over a peer view. Trivially copyable; everything it points to must
/// outlive the launch. `R` is the reduction, which also defines the element type.
template <class R>
struct PeerWork {
  explicit PeerWork(const R& how) : reduction{how} {}

  PeerView peers;
  Epoch epoch;
  Layout layout;  // below 2^31 elements in all
  int root = 0;
  int channels = 1;  // groups of the launch
  int blocks = 1;    // see `HasBlockEpilogue`
  int rows = 0;      // ranks of the kernel that peers may run: see `PeerPrims`
  // Members for calls of one composition that share a launch, a half of the scratch and an epoch:
  Index first_packet = 0;  // first packet of this call's boxes in the half
  int first_block = 0;     // first block of this call among those of all calls
  int other_blocks = 0;    // blocks of the other calls
  const void* input = nullptr;
  void* output = nullptr;
  R reduction;
  AbortWatch watch;
};

/// Returns the largest power of two, at most 16, that divides the address and size of every share.
template <class R>
int alignment(const PeerWork<R>& work) {
  constexpr Index size = sizeof(typename R::Type);
  const Word bits = 16 | reinterpret_cast<cuda::std::uintptr_t>(work.input) |
                    reinterpret_cast<cuda::std::uintptr_t>(work.output) |
                    Word(work.layout.count * size) | Word(work.layout.in_stride * size) |
                    Word(work.layout.out_stride * size);
  return int(bits & -bits);
}

}  // namespace ccl::detail
