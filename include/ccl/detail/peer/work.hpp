#pragma once

#include <ccl/algo/chunks.hpp>
#include <ccl/detail/lanes/peer_view.hpp>
#include <ccl/detail/lanes/spin_wait.hpp>

namespace ccl::detail {

/// What one launch over a peer view is told. Trivially copyable; everything it points to outlives
/// the launch. `R` is the reduction, which also names the element type.
template <class R>
struct PeerWork {
  explicit PeerWork(const R& how) : reduction{how} {}

  PeerView peers;
  Epoch epoch;
  Layout layout;  // below 2^31 elements in all
  int root = 0;
  int channels = 1;  // groups of the launch
  int blocks = 1;    // groups that end together: blocks on a GPU, groups on CPUs
  // Where calls of one composition share a launch, and so a half of the scratch and an epoch:
  Index first_packet = 0;  // of the half, from which on this call's boxes lie
  int first_block = 0;     // of this call among those of all of them
  int other_blocks = 0;    // of the others
  const void* input = nullptr;
  void* output = nullptr;
  R reduction;
  AbortWatch watch;
};

/// What every share's address and size is a multiple of, at most 16.
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
