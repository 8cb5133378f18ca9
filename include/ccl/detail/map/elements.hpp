#pragma once

#include <ccl/comm/communicator.hpp>
#include <ccl/comm/stream.hpp>
#include <ccl/detail/base/copies.hpp>
#include <ccl/detail/launch/device_copy.hpp>
#include <ccl/detail/map/registry.hpp>
#include <ccl/detail/numeric/bulk.hpp>
#include <ccl/detail/numeric/narrow_floats.hpp>
#include <ccl/element/convert.hpp>
#include <ccl/types/result.hpp>

#include <cuda/std/type_traits>

#include <memory>
#include <string>
#include <utility>

namespace ccl::detail {

// Operations of a call on a rank's own data between its launches, in the order of its stream.

/// Returns the result of a launch from its code. -1 means that the program has no such kernel.
Result<void> launched_own(const Communicator& comm, const std::string& name, int code);
/// Runs `work` of a CPU rank: at once, or after all earlier work on the stream if that is a host
/// stream.
template <class Work>
Result<void> run_own(Stream stream, Work work) {
  if (stream.host() == nullptr) {
    work();
    return {};
  }
  stream.host()->enqueue([work = std::move(work)]() -> Result<void> {
    work();
    return {};
  });
  return {};
}

inline Result<void> copy_own(const Communicator& comm, bool on_device, void* to, const void* from,
                             Index bytes, Stream stream) {
  if (to == from || bytes == 0) return {};
  if (on_device) return copy_on_device(comm, to, from, bytes, stream);
  return run_own(stream, [=] { copy_here(to, from, std::size_t(bytes)); });
}

/// Repeats the `bytes` bytes at `to` until there are `whole` bytes. A reduction treats the repeated
/// elements as further elements of this rank.
inline Result<void> fill_up(const Communicator& comm, bool on_device, void* to, Index bytes,
                            Index whole, Stream stream) {
  char* const at = static_cast<char*>(to);
  while (bytes < whole) {
    const Index more = bytes < whole - bytes ? bytes : whole - bytes;
    CCL_CHECK(copy_own(comm, on_device, at + bytes, at, more, stream));
    bytes += more;
  }
  return {};
}

template <class F>
inline constexpr bool converts = false;
template <class To>
inline constexpr bool converts<Convert<To>> = true;

CCL_INDEPENDENT_BEGIN
template <class T, class U, class F>
CCL_INDEPENDENT_APART void map_loop(const F& map, const char* from, char* to,
                                    Index count) noexcept {
  // The output may be the input if the elements have one size, because no iteration depends on
  // another.
  CCL_INDEPENDENT
  for (Index i = 0; i < count; ++i) {
    store_unaligned<U>(to + i * Index{sizeof(U)},
                       map(load_unaligned<T>(from + i * Index{sizeof(T)})));
  }
}
CCL_INDEPENDENT_END

/// Maps elements on one CPU thread. Conversions between float and a narrow float use instructions
/// of this CPU.
template <class T, class U, class F>
void map_on_host(const F& map, const void* from, void* to, Index count) {
  if constexpr (converts<F> && is_narrow_float<T> && cuda::std::is_same_v<U, float>) {
    widen_run<T>(from, static_cast<float*>(to), count);
  } else if constexpr (converts<F> && cuda::std::is_same_v<T, float> && is_narrow_float<U>) {
    narrow_run<U>(static_cast<const float*>(from), to, count);
  } else {
    map_loop<T, U>(map, static_cast<const char*>(from), static_cast<char*>(to), count);
  }
}

/// Maps `count` elements by a functor `U(T)`.
template <class T, class U, class F>
Result<void> map_own(const Communicator& comm, int device, const std::string& name, const F& map,
                     const void* from, void* to, Index count, Stream stream) {
  using Kernels = MapKernels<F, T, U>;
  register_kernels<Kernels>();
  if (count == 0) return {};
  if (device < 0) return run_own(stream, [=] { map_on_host<T, U>(map, from, to, count); });
  if (Kernels::launch == nullptr) return launched_own(comm, name, -1);
  return launched_own(comm, name, in_context(comm, [&] {
                        return Kernels::launch(map, from, to, count, {device, stream.cuda()});
                      }));
}
/// Loads the kernels of all types that the program maps by `F`. No first launch then has to load
/// one: see `KernelLoader`.
template <class F>
int load_maps(int device) {
  for (const KernelLoader* l = MapKernelList<F>::first; l != nullptr; l = l->next) {
    if (const int code = l->load(device); code != 0) return code;
  }
  return 0;
}

}  // namespace ccl::detail
