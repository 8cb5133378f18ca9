#pragma once

#include <ccl/collective/collective.hpp>
#include <ccl/detail/group/registry.hpp>
#include <ccl/detail/runtime/guarded.hpp>

#include <algorithm>
#include <cstddef>
#include <initializer_list>
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

/// Orders the calls by the creation of their compositions, for any order on a rank. Calls of one
/// composition keep their order. Refuses calls that cannot run together.
[[nodiscard]] Result<void> order_group(CallList& calls);
/// Refuses calls of which some, but not all, belong to a communicator of one rank.
[[nodiscard]] Result<void> check_alone(std::initializer_list<int> ranks);
/// Runs the calls on CPU lanes, now or after all earlier calls on the stream, and after all earlier
/// calls of these compositions. The first calls of all compositions run at once, each on threads of
/// its own, then their second calls, and so on.
[[nodiscard]] Result<void> run_group_on_host(CallList calls, Stream stream);
/// Steps before and after one launch of several calls: locks, records and orders all of them.
class GroupLaunch {
 public:
  /// Stores the calls, which must be in the order of their compositions and outlive this object.
  explicit GroupLaunch(std::span<RecordedCall* const> calls) : calls_{calls} {}
  [[nodiscard]] Result<DeviceTarget> begin(Stream stream);
  [[nodiscard]] Result<void> finish(int code);

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
concept IsBound = requires { typename T::Call; };
template <class T>
concept HoldsBound = IsBound<typename T::value_type>;

/// Bytes of a call's arguments in a group's kernel, including 16 bytes for alignment.
template <class Call>
inline constexpr Index argument_bytes = sizeof(typename Call::Work) + 2 * sizeof(int) + 16;
template <>
inline constexpr Index argument_bytes<void> = 0;
/// Selection of a group's calls that may share a kernel. Exchanges share it only if all calls fit
/// into its arguments.
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

/// Returns the arguments of a call in a kernel. Arguments of zeros mean that the call has no part
/// in it.
template <class Call>
typename Call::Work work_of(const Call* call) {
  using Work = typename Call::Work;
  if (call != nullptr) return call->work_on_device();
  // A work is trivially copyable, so it begins its life in an array of bytes. g++ 12 sometimes does
  // not accept that (see `TravelsToKernels`), and then has no bit_cast.
  alignas(Work) const std::byte zeros[sizeof(Work)] = {};
  return *std::launder(reinterpret_cast<const Work*>(zeros));
}

/// Returns the calls that share a kernel, in the order of their compositions. The list is empty if
/// only a host compiler has compiled this group. Each call is then the launch of its CUDA code
/// elsewhere.
inline std::vector<RecordedCall*> sharing(const CallList& calls, bool has_kernel) {
  std::vector<RecordedCall*> found;
  for (const auto& call : calls) {
    if (!has_kernel) call->share = {};
    if (call->share.size > 0) found.push_back(call.get());
  }
  return found;
}

/// Launches the calls that share a kernel. `places` are the indices of the calls that may share it,
/// among the arguments of the group.
template <class... Calls>
[[nodiscard]] Result<void> launch_shared(Types<Calls...>, std::span<const int> places,
                                         const CallList& calls, Stream stream) {
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
[[nodiscard]] inline Result<void> launch_shared(Types<>, std::span<const int>, const CallList&,
                                                Stream) {
  return {};
}

/// Launches the calls that share no kernel, in the order of their compositions.
template <class... Bound>
[[nodiscard]] Result<void> launch_others(const CallList& calls, Stream stream,
                                         const Bound&... bound) {
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

/// Records a call. `shares` is true if the group's kernel can have a part for it.
template <bool shares, class Bound>
[[nodiscard]] Result<void> record_call(CallList& calls, const Bound& bound) {
  Recorder recorder;
  CCL_CHECK(bound(Stream{recorder}));
  recorder.call->place = int(calls.size());
  if constexpr (shares) {
    // `Auto` can have chosen another composition.
    using Part = typename Bound::Call;
    recorder.call->may_share = dynamic_cast<Part*>(recorder.call.get()) != nullptr;
  }
  calls.push_back(std::move(recorder.call));
  return {};
}

/// Returns `run()`. An exception becomes an error, and fails the communicator of `calls` on all
/// ranks if some call is recorded.
template <class Run>
[[nodiscard]] Result<void> group_guarded(const CallList& calls, Run&& run) {
  return without_exceptions(run, [&calls](Error error) {
    if (calls.empty() || calls.front() == nullptr) return error;
    return fail_thrown(calls.front()->connections().comm(), std::move(error));
  });
}

/// Type of a call that can share a kernel with others of its kind; void for an exchange, because
/// only one exchange of a composition could.
template <class Bound>
using ListedCall =
    std::conditional_t<is_exchange<typename Bound::Call>, void, typename Bound::Call>;

/// Launches calls of one kind: first those that share a kernel, then the others.
template <class Bound>
[[nodiscard]] Result<void> launch_list(const CallList& calls, Stream stream,
                                       std::span<const Bound> bound) {
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

/// Minimum number of kernels of one `group` of such calls on a GPU. All calls over wires or a peer
/// view share one kernel. Each exchange of messages over wires, and each call over wires for GPUs
/// only, has one of its own.
///
/// These calls are launched separately:
/// - A message that is too long for one launch over its peer view.
/// - A call of more than 8 ranks over a peer view.
/// - A call of `Auto` that chooses another candidate than the first over a peer view.
/// - A call of a composition whose earlier calls in the group use all of its channels or its
///   scratch.
/// An exchange of messages over a peer view shares the kernel if
/// - a rank sends and receives at most 512 KiB,
/// - all calls of compositions that were created before its own share it too, and
/// - all arguments fit into those of a kernel, as those of four exchanges do.
template <class... Bound>
inline constexpr int group_kernels = int(sizeof...(Bound)) - detail::Sharing<Bound...>::count +
                                     int(detail::Sharing<Bound...>::count > 0);

/// Runs several calls as one:
///   group(stream, all_reduce.bind(a, b, n, Sum{}), all_gather.bind(c, d, m));
/// The compositions must belong to one communicator. All ranks must name the same ones, in any
/// order, and calls of one composition in the same order. No call waits for another, so a buffer of
/// one call must not be a buffer of another.
///
/// - CPU lanes: the first calls of all compositions run at once, then the second calls.
/// - GPU: calls over wires and peer views are one kernel. They share its blocks by size; small
///   exchanges get one eighth and the rest. The other calls follow in separate launches, in the
///   order in which their compositions were created; see `group_kernels`.
template <class... Bound>
  requires(sizeof...(Bound) > 0)
[[nodiscard]] Result<void> group(Stream stream, const Bound&... bound) {
  static_assert((detail::IsBound<Bound> && ...),
                "ccl: a group takes calls that are not made yet, or one list of them; give it "
                "all_reduce.bind(send, recv, count, op) in place of all_reduce(send, recv, ...)");
  if ((bound.alone() || ...)) {  // no call waits for a peer
    CCL_CHECK(detail::check_alone({bound.ranks()...}));
    Result<void> done;
    (void)((done = bound(stream), done.has_value()) && ...);
    return done;
  }
  detail::CallList calls;
  return detail::group_guarded(calls, [&]() -> Result<void> {
    using Sharing = detail::Sharing<Bound...>;
    calls.reserve(sizeof...(Bound));
    Result<void> recorded;
    (void)((recorded =
                detail::record_call<Sharing::template shares<typename Bound::Call>>(calls, bound),
            recorded.has_value()) &&
           ...);
    CCL_CHECK(std::move(recorded));
    CCL_CHECK(detail::order_group(calls));
    if (!calls.front()->connections().on_device())
      return detail::run_group_on_host(std::move(calls), stream);
    std::vector<int> sharing;
    int place = 0;
    ((Sharing::template shares<typename Bound::Call> ? sharing.push_back(place) : void(), ++place),
     ...);
    CCL_CHECK(detail::launch_shared(typename Sharing::Calls{}, sharing, calls, stream));
    return detail::launch_others(calls, stream, bound...);
  });
}

/// Runs several calls as one, at once on CPU lanes or on the default stream of a GPU.
template <class First, class... Rest>
  requires(detail::IsBound<First> || detail::HoldsBound<First>)
[[nodiscard]] Result<void> group(const First& first, const Rest&... rest) {
  return group(Stream{}, first, rest...);
}

/// Runs a run-time number of calls of one kind as one, of one or several compositions:
///   std::vector sums{all_reduce.bind(a, b, n, Sum{})};  // one for each gradient
///   group(stream, sums);
/// At most `detail::max_listed` calls (about a dozen) form a group, and these groups run one after
/// the other. An empty list does nothing.
template <class Bound>
[[nodiscard]] Result<void> group(Stream stream, std::span<const Bound> bound) {
  using Call = detail::ListedCall<Bound>;
  constexpr auto most = std::size_t(detail::max_listed<Call>);
  for (; !bound.empty(); bound = bound.subspan(std::min(most, bound.size()))) {
    const std::span<const Bound> some = bound.first(std::min(most, bound.size()));
    if (std::ranges::any_of(some, [](const Bound& one) { return one.alone(); })) {
      for (const Bound& one : some) CCL_CHECK(detail::check_alone({1, one.ranks()}));
      for (const Bound& one : some) CCL_CHECK(one(stream));
      continue;
    }
    detail::CallList calls;
    CCL_CHECK(detail::group_guarded(calls, [&]() -> Result<void> {
      calls.reserve(some.size());
      for (const Bound& one : some) {
        CCL_CHECK(detail::record_call<!std::is_void_v<Call>>(calls, one));
      }
      CCL_CHECK(detail::order_group(calls));
      if (calls.front()->connections().on_device()) return detail::launch_list(calls, stream, some);
      return detail::run_group_on_host(std::move(calls), stream);
    }));
  }
  return {};
}
template <class Bound>
[[nodiscard]] Result<void> group(Stream stream, const std::vector<Bound>& bound) {
  return group(stream, std::span<const Bound>{bound});
}

}  // namespace ccl
