#pragma once

#include <ccl/collective/collective.hpp>
#include <ccl/detail/exec/kernel_registry.hpp>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace ccl {
namespace detail {

using CallList = std::vector<std::unique_ptr<RecordedCall>>;

/// Orders the calls as their compositions were made, whatever order a rank listed them in, and
/// those of one composition as it listed them; refuses those that cannot go together.
Result<void> settle_group(CallList& calls);
/// Makes them on CPU lanes, now or when everything before them on the stream has run, and all calls
/// of these compositions that were made before: the first calls of all compositions at once, each
/// on threads of its own, then their second ones, and so on.
Result<void> run_group_on_host(CallList calls, Stream stream);
/// Before and after one launch of several calls: locks, journals and orders all of them.
class GroupLaunch {
 public:
  /// `calls` in their compositions' order; must outlive this.
  explicit GroupLaunch(std::span<RecordedCall* const> calls) : calls_{calls} {}
  Result<DeviceTarget> begin(Stream stream);
  Result<void> finish(int code);

 private:
  std::span<RecordedCall* const> calls_;
  std::vector<Launch::Lock> locks_;  // one for each composition
  std::vector<Launch> launches_;     // one for each call; the first is on the stream
};

template <class... Calls>
struct Types {};
template <class... A, class... B>
Types<A..., B...> operator+(Types<A...>, Types<B...>);
template <class T>
concept IsBound = requires {
  typename T::Call;
};
template <class T>
concept HoldsBound = IsBound<typename T::value_type>;

/// Of a group's kernel, with 16 bytes for alignment.
template <class Call>
inline constexpr Index argument_bytes = sizeof(typename Call::Work) + 2 * sizeof(int) + 16;
template <>
inline constexpr Index argument_bytes<void> = 0;
/// Which of a group's calls may share a kernel: exchanges only if all calls fit into its arguments.
template <class... Bound>
struct Sharing {
  static constexpr bool with_exchanges =
      (Index{0} + ... + argument_bytes<typename Bound::Call>) <= 4000;
  template <class Call>
  static constexpr bool shares = !std::is_void_v<Call> && (with_exchanges || !is_exchange<Call>);
  template <class Call>
  using OneOrNone = std::conditional_t<shares<Call>, Types<Call>, Types<>>;
  using Calls = decltype((Types<>{} + ... + OneOrNone<typename Bound::Call>{}));
  static constexpr int count = (0 + ... + int(shares<typename Bound::Call>));
};

/// What a kernel is told of a call; a work of zeros has no part in it.
template <class Call>
typename Call::Work work_of(const Call* call) {
  using Work = typename Call::Work;
  if (call != nullptr) return call->work_on_device();
  // A work is trivially copyable, so that it begins its life in an array of bytes. g++ 12 does not
  // always know (see `TravelsToKernels`), and then has no bit_cast.
  alignas(Work) const std::byte zeros[sizeof(Work)] = {};
  return *std::launder(reinterpret_cast<const Work*>(zeros));
}

/// Those that share a kernel, in the order of their compositions. None where only a host compiler
/// has seen this group: each is then the launch that CUDA code elsewhere makes of it.
inline std::vector<RecordedCall*> sharing(const CallList& calls, bool has_kernel) {
  std::vector<RecordedCall*> found;
  for (const auto& call : calls) {
    if (!has_kernel) call->share = {};
    if (call->share.size > 0) found.push_back(call.get());
  }
  return found;
}

/// `places`: those of the calls that may share the kernel, among the arguments of the group.
template <class... Calls>
Result<void> launch_shared(Types<Calls...>, std::span<const int> places, const CallList& calls,
                           Stream stream) {
  using Kernels = GroupKernels<Calls...>;
  register_kernels<Kernels>();
  const auto together = sharing(calls, Kernels::launch != nullptr);
  if (together.empty()) return {};
  auto place = places.begin();
  const auto take = [&]<class C>(std::type_identity<C>) -> const C* {
    const auto at =
        std::ranges::find(calls, *place++, [](const auto& call) { return call->place; });
    return (*at)->share.size > 0 ? static_cast<const C*>(at->get()) : nullptr;
  };
  const std::tuple<const Calls*...> parts{take(std::type_identity<Calls>{})...};
  GroupLaunch group{together};
  CCL_TRY(const DeviceTarget target, group.begin(stream));
  const int code = std::apply(
      [&](const auto*... part) { return Kernels::launch(target, work_of(part)...); }, parts);
  return group.finish(code);
}
inline Result<void> launch_shared(Types<>, std::span<const int>, const CallList&, Stream) {
  return {};
}

/// The calls that share no kernel, in the order of their compositions.
template <class... Bound>
Result<void> launch_others(const CallList& calls, Stream stream, const Bound&... bound) {
  Result<void> done;
  int place = 0;
  const auto launch = [&](const RecordedCall& call, const auto& one) {
    if (done && place == call.place && call.share.size == 0) done = one(stream);
    ++place;
  };
  for (const auto& call : calls) {
    place = 0;
    (launch(*call, bound), ...);
  }
  return done;
}

/// `shares`: the group's kernel may have a part for it.
template <bool shares, class Bound>
Result<void> record_call(CallList& calls, const Bound& bound) {
  Recorder recorder;
  CCL_CHECK(bound(Stream{recorder}));
  recorder.call->place = int(calls.size());
  if constexpr (shares) {
    // What `Auto` has chosen may be another composition.
    using Part = typename Bound::Call;
    recorder.call->may_share = dynamic_cast<Part*>(recorder.call.get()) != nullptr;
  }
  calls.push_back(std::move(recorder.call));
  return {};
}

/// What may share a kernel with others of its kind; of one composition, only one exchange could.
template <class Bound>
using ListedCall =
    std::conditional_t<is_exchange<typename Bound::Call>, void, typename Bound::Call>;

/// Calls of one kind: those that share a kernel, then the others.
template <class Bound>
Result<void> launch_list(const CallList& calls, Stream stream, std::span<const Bound> bound) {
  using Call = ListedCall<Bound>;
  if constexpr (!std::is_void_v<Call>) {
    using Kernels = ListKernels<Call>;
    register_kernels<Kernels>();
    if (const auto together = sharing(calls, Kernels::launch != nullptr); !together.empty()) {
      GroupLaunch group{together};
      CCL_TRY(const DeviceTarget target, group.begin(stream));
      std::vector<typename Call::Work> works;
      for (const RecordedCall* call : together) {
        works.push_back(static_cast<const Call*>(call)->work_on_device());
      }
      CCL_CHECK(group.finish(Kernels::launch(target, works)));
    }
  }
  for (const auto& call : calls) {
    if (call->share.size == 0) CCL_CHECK(bound[std::size_t(call->place)](stream));
  }
  return {};
}

}  // namespace detail

/// On a GPU, the fewest kernels of one `group` of such calls: one for all that go over wires or a
/// peer view, and one for each exchange of messages over wires and each call over wires for GPUs
/// only. A message that is too long for one launch over its peer view has launches of its own; so
/// have a call of `Auto` for which it chooses another candidate than the first over a peer view,
/// and a call of a composition whose calls before it in the group have taken all of its channels or
/// its scratch. An exchange of messages over a peer view shares the kernel if a rank sends, and
/// gets, at most 512 KiB by it, all calls of compositions that were created before its own share
/// it, too, and the works of all fit into the arguments of a kernel, which those of four exchanges
/// do.
template <class... Bound>
inline constexpr int group_kernels = int(sizeof...(Bound)) - detail::Sharing<Bound...>::count +
                                     int(detail::Sharing<Bound...>::count > 0);

/// Several calls as one:
///   group(stream, all_reduce.bind(a, b, n, Sum{}), all_gather.bind(c, d, m));
/// Of compositions of one communicator; all ranks name the same ones, in any order, but calls of
/// one composition in the same order. No call waits for another, so the buffers of one must not be
/// those of another. On CPU lanes the first calls of all compositions run at once, then the second
/// ones; on a GPU calls over wires and peer views are one kernel, whose blocks they share by their
/// sizes (small exchanges have an eighth, and what is left), and the others follow in launches of
/// their own, in the order in which their compositions were created, see `group_kernels`.
template <class... Bound>
requires(sizeof...(Bound) > 0)
    [[nodiscard]] Result<void> group(Stream stream, const Bound&... bound) {
  if ((bound.alone() || ...)) {  // nobody waits for anybody
    Result<void> done;
    (void)((done = bound(stream), done.has_value()) && ...);
    return done;
  }
  using Sharing = detail::Sharing<Bound...>;
  detail::CallList calls;
  Result<void> recorded;
  (void)((recorded =
              detail::record_call<Sharing::template shares<typename Bound::Call>>(calls, bound),
          recorded.has_value()) &&
         ...);
  CCL_CHECK(std::move(recorded));
  CCL_CHECK(detail::settle_group(calls));
  if (!calls.front()->connections().on_device())
    return detail::run_group_on_host(std::move(calls), stream);
  std::vector<int> sharing;
  int place = 0;
  ((Sharing::template shares<typename Bound::Call> ? sharing.push_back(place) : void(), ++place),
   ...);
  CCL_CHECK(detail::launch_shared(typename Sharing::Calls{}, sharing, calls, stream));
  return detail::launch_others(calls, stream, bound...);
}

/// Now, on CPU lanes, or on the default stream.
template <class First, class... Rest>
requires(detail::IsBound<First> || detail::HoldsBound<First>)
    [[nodiscard]] Result<void> group(const First& first, const Rest&... rest) {
  return group(Stream{}, first, rest...);
}

/// As many calls of one kind as there are at run time, of one composition or of several:
///   std::vector sums{all_reduce.bind(a, b, n, Sum{})};  // and so on, one for each gradient
///   group(stream, sums);
/// As above, for `detail::max_listed` of them at a time, which is about a dozen, and these groups
/// one after the other. None does nothing.
template <class Bound>
[[nodiscard]] Result<void> group(Stream stream, std::span<const Bound> bound) {
  using Call = detail::ListedCall<Bound>;
  constexpr auto most = std::size_t(detail::max_listed<Call>);
  for (; !bound.empty(); bound = bound.subspan(std::min(most, bound.size()))) {
    const std::span<const Bound> some = bound.first(std::min(most, bound.size()));
    if (std::ranges::any_of(some, [](const Bound& one) { return one.alone(); })) {
      for (const Bound& one : some) CCL_CHECK(one(stream));
      continue;
    }
    detail::CallList calls;
    for (const Bound& one : some) {
      CCL_CHECK(detail::record_call<!std::is_void_v<Call>>(calls, one));
    }
    CCL_CHECK(detail::settle_group(calls));
    if (calls.front()->connections().on_device()) {
      CCL_CHECK(detail::launch_list(calls, stream, some));
    } else {
      CCL_CHECK(detail::run_group_on_host(std::move(calls), stream));
    }
  }
  return {};
}
template <class Bound>
[[nodiscard]] Result<void> group(Stream stream, const std::vector<Bound>& bound) {
  return group(stream, std::span<const Bound>{bound});
}

}  // namespace ccl
