#pragma once

#include <ccl/detail/base/bytes.hpp>
#include <ccl/detail/copy/work.hpp>
#include <ccl/detail/exchange/counted_work.hpp>
#include <ccl/detail/exchange/mailbox.hpp>
#include <ccl/detail/peer/work.hpp>
#include <ccl/detail/rows/work.hpp>
#include <ccl/detail/wire/work.hpp>

#include <span>
#include <type_traits>

struct CUstream_st;  // of CUDA: cudaStream_t points to it

namespace ccl::detail {

/// Where a launch goes. `max_blocks` fit beside what else may run.
struct DeviceTarget {
  int device = 0;
  CUstream_st* stream = nullptr;
  int max_blocks = 1;
  bool early = true;        // may move in before the launch ahead of it has ended
  Index channel_bytes = 0;  // see `Plan`
};

// The kernels of a program, as far as host code needs to know them: pointers that <ccl/ccl.cuh>
// fills in before main, for each composition that CUDA code instantiates; null otherwise. They
// return a cudaError_t.

/// Set by <ccl/ccl.cuh>. A shared runtime reads it, also in a program that hides its symbols.
[[gnu::visibility("default")]] inline bool program_has_device_code = false;

/// A launch over wires.
template <class Op, class Algo, class Proto, class R>
struct WireKernels {
  static inline int (*launch)(const WireWork<R>&, const DeviceTarget&) = nullptr;
};
/// A launch over a peer view, or several where the message is longer than the scratch.
template <class Op, class Algo, class Proto, class R>
struct PeerKernels {
  static inline int (*launch)(const PeerWork<R>&, const DeviceTarget&) = nullptr;
  /// Packets of scratch, in each half, that it takes as a part of a group's kernel; 0: it cannot be
  /// one, as it is several launches, or of a kernel that has no part in those.
  static inline Index (*packets_in_group)(const PeerWork<R>&) = nullptr;
};
/// A launch over the rows of a matrix, or several where they do not fit into the scratch.
template <class Algo, class Proto, class P, class E>
struct RowKernels {
  static inline int (*launch)(const RowWork<P, E>&, const DeviceTarget&) = nullptr;
  /// Packets of scratch, in each half, that a row takes; 0: it is too long for any.
  static inline Index (*row_packets)(int length, int ranks) = nullptr;
  static inline int max_length = 0;
};
/// A launch of an exchange.
template <class Algo, class Proto>
struct ExchangeKernels {
  static inline int (*launch)(const ExchangeWork&, Index bytes, const DeviceTarget&) = nullptr;
  static inline int (*load)(int device) = nullptr;
};
/// A launch of an exchange over a peer view.
template <class Algo, class Proto>
struct PeerExchangeKernels {
  static inline int (*launch)(const PeerExchangeWork&, const DeviceTarget&) = nullptr;
  /// Of one message of a launch; `max_rings` as in `PeerExchangeWork`. 0: the scratch is too
  /// small.
  static inline Index (*max_bytes)(const PeerView&, int max_rings) = nullptr;
  static inline int (*load)(int device) = nullptr;
};
/// A launch of an exchange whose counts lie in memory.
template <class Algo, class Proto>
struct CountedKernels {
  static inline int (*launch)(const CountedWork&, const DeviceTarget&) = nullptr;
  /// Rows of each message of a launch.
  static inline int (*max_rows)(const CountedWork&) = nullptr;
  static inline int (*load)(int device) = nullptr;
};
/// What `CopyEngine` runs beside the copies, and its reductions.
template <class Algo>
struct CopyKernels {
  static inline int (*sync)(const CopySync&, const DeviceTarget&) = nullptr;
  static inline int (*runs)(const CopyRuns&, const DeviceTarget&) = nullptr;
  static inline int (*load)(int device) = nullptr;
};
template <class Op, class Algo, class Proto, class R>
struct CopyReduceKernels {
  static inline int (*launch)(const CopyReduction<R>&, const DeviceTarget&) = nullptr;
};
/// One launch of several calls: `WireCall`s and `PeerCall`s, whose works it is given. One of zeros
/// has no part in it, nor has one over a peer view without elements or over wires without channels.
template <class... Calls>
struct GroupKernels {
  static inline int (*launch)(const DeviceTarget&, const typename Calls::Work&...) = nullptr;
};
/// One launch of calls of one kind, at most `max_listed` of them.
template <class Call>
struct ListKernels {
  static inline int (*launch)(const DeviceTarget&, std::span<const typename Call::Work>) = nullptr;
};
/// As many as fit into a kernel's arguments, 4,000 bytes.
template <class Call>
inline constexpr int max_listed = [] {
  if constexpr (std::is_void_v<Call>)
    return 16;  // none: each is a launch of its own
  else
    return int((4000 - sizeof(int)) / (sizeof(typename Call::Work) + sizeof(int)));
}();
/// One rank alone: its data through the reduction's prologue and epilogue.
template <class R>
struct AloneKernels {
  static inline int (*launch)(const R&, const void* input, void* output, Index count,
                              const DeviceTarget&) = nullptr;
};

/// A rank's own elements of `T`, each through a functor that makes a `U` of it. The output may be
/// the input where both are of one size.
template <class F, class T, class U>
struct MapKernels {
  static inline int (*launch)(const F&, const void* input, void* output, Index count,
                              const DeviceTarget&) = nullptr;
};

/// All kernels that a composition may launch, to be loaded when it is created: a first launch may
/// do that too late, while kernels run that wait for the rank that is loading.
struct KernelLoader {
  int (*load)(int device);
  KernelLoader* next;
};
template <class Op, class Algo, class Proto>
struct ComposedKernels {
  static inline KernelLoader* first = nullptr;
};

/// The same of the `MapKernels` of one functor.
template <class F>
struct MapKernelList {
  static inline KernelLoader* first = nullptr;
};

/// Instantiates what fills in `Kernels`, where this is CUDA code that has seen <ccl/ccl.cuh>. The
/// function is found there by its argument; both definitions of a template that calls this do the
/// same, whichever the linker keeps.
template <class Kernels>
void register_kernels() {
  if constexpr (requires { register_device_code(std::type_identity<Kernels>{}); }) {
    register_device_code(std::type_identity<Kernels>{});
  }
}

/// What all of a launch over wires moves, for one rank: bytes.
template <class R>
Index message_bytes(const WireWork<R>& work) {
  const Layout& l = work.layout;
  const Index shares = l.split || (l.in_stride == 0 && l.out_stride == 0) ? 1 : work.ranks;
  return l.count * shares * Index{sizeof(typename R::Type)};
}
/// The same over a peer view.
template <class R>
Index message_bytes(const PeerWork<R>& work) {
  const Layout& l = work.layout;
  const Index shares = l.split || (l.in_stride == 0 && l.out_stride == 0) ? 1 : work.peers.ranks;
  return l.count * shares * Index{sizeof(typename R::Type)};
}

}  // namespace ccl::detail
