#pragma once

#include <ccl/collective.hpp>
#include <ccl/device_code.hpp>

#include <algorithm>
#include <array>
#include <memory>
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
/// Makes them on CPU lanes: the first calls of all compositions at once, each on threads of its
/// own, then their second ones, and so on.
Result<void> run_group_on_host(CallList& calls);
/// Before and after one launch of several calls: locks, journals and orders all of them.
class GroupLaunch {
 public:
  /// `calls` in their compositions' order; must outlive this.
  explicit GroupLaunch(std::span<RecordedCall* const> calls) : calls_{calls} {}
  Result<DeviceTarget> begin(Stream stream);
  Result<void> finish(int code, Stream stream);

 private:
  std::span<RecordedCall* const> calls_;
  std::vector<std::unique_lock<std::mutex>> locks_;
};

template <class... Calls>
struct Types {};
template <class... A, class... B>
Types<A..., B...> operator+(Types<A...>, Types<B...>);
template <class Call>
using OneOrNone = std::conditional_t<std::is_void_v<Call>, Types<>, Types<Call>>;
/// Those of the calls that may share a kernel.
template <class... Bound>
using SharingOf = decltype((Types<>{} + ... + OneOrNone<typename Bound::Call>{}));

/// `places`: those of the calls that may share the kernel, among the arguments of the group.
template <class... Calls>
Result<void> launch_shared(Types<Calls...>, std::span<const int> places, const CallList& calls,
                           Stream stream) {
  using Kernels = GroupKernels<Calls...>;
  enroll<Kernels>();
  std::vector<RecordedCall*> sorted;
  for (const auto& call : calls) {
    const bool may = std::ranges::find(places, call->place) != places.end();
    if (may && call->shares_kernel()) sorted.push_back(call.get());
  }
  if (sorted.empty()) return {};
  auto place = places.begin();
  const auto take = [&]<class C>(std::type_identity<C>) {
    const auto at =
        std::ranges::find(calls, *place++, [](const auto& call) { return call->place; });
    return dynamic_cast<C*>(at->get());
  };
  const std::tuple<Calls*...> sharing{take(std::type_identity<Calls>{})...};
  if (std::apply([](auto*... call) { return (... || (call == nullptr)); }, sharing)) {
    return fail(Errc::internal,
                "a call of a group was recorded as another type than it is bound to");
  }
  if (Kernels::launch == nullptr) return fail(sorted.front()->links().no_device_code());
  GroupLaunch group{sorted};
  CCL_TRY(const DeviceTarget target, group.begin(stream));
  const int code = std::apply(
      [&](auto*... call) { return Kernels::launch(target, call->work_on_device()...); }, sharing);
  return group.finish(code, stream);
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
    constexpr bool never = std::is_void_v<typename std::remove_cvref_t<decltype(one)>::Call>;
    if (done && place == call.place && (never || !call.shares_kernel())) done = one(stream);
    ++place;
  };
  for (const auto& call : calls) {
    place = 0;
    (launch(*call, bound), ...);
  }
  return done;
}

template <class... Bound>
Result<void> record_group(CallList& calls, const Bound&... bound) {
  const auto record = [&](const auto& one) -> Result<void> {
    Recorder recorder;
    CCL_CHECK(one(Stream{recorder}));
    recorder.call->place = int(calls.size());
    calls.push_back(std::move(recorder.call));
    return {};
  };
  Result<void> done;
  (void)((done = record(bound), done.has_value()) && ...);
  return done;
}
}  // namespace detail

/// On a GPU, the kernels of one `group` of such calls: one for all that go over wires or a peer
/// view, and one for each exchange of messages, each over wires for GPUs only, and each that `Auto`
/// chooses. A message that is too long for one launch over its peer view has launches of its own,
/// and a call whose composition has another before it in the group has one.
template <class... Bound>
inline constexpr int group_kernels = (0 + ... + int(std::is_void_v<typename Bound::Call>)) +
                                     int((0 + ... + int(!std::is_void_v<typename Bound::Call>)) >
                                         0);

/// Several calls as one:
///   group(stream, all_reduce.bind(a, b, n, Sum{}), all_gather.bind(c, d, m));
/// Of compositions of one communicator; all ranks name the same ones, in any order. Calls of one
/// composition run one after the other, in the order in which they are listed, which must be the
/// same on all ranks; calls of different ones do not wait for each other, and buffers of one must
/// not be those of another. On CPU lanes the first calls of all compositions run at once, then the
/// second ones; on a GPU those first calls that go over wires and peer views are one kernel, whose
/// blocks they share by their sizes, and the others follow in launches of their own, in the order
/// in which their compositions were created, see `group_kernels`.
template <class... Bound>
requires(sizeof...(Bound) > 0)
    [[nodiscard]] Result<void> group(Stream stream, const Bound&... bound) {
  if ((bound.alone() || ...)) {  // nobody waits for anybody
    Result<void> done;
    (void)((done = bound(stream), done.has_value()) && ...);
    return done;
  }
  detail::CallList calls;
  CCL_CHECK(detail::record_group(calls, bound...));
  CCL_CHECK(detail::settle_group(calls));
  detail::Links& first = calls.front()->links();
  if (first.on_device()) {
    std::vector<int> sharing;
    int place = 0;
    ((std::is_void_v<typename Bound::Call> ? void() : sharing.push_back(place), ++place), ...);
    CCL_CHECK(detail::launch_shared(detail::SharingOf<Bound...>{}, sharing, calls, stream));
    return detail::launch_others(calls, stream, bound...);
  }
  for (auto& call : calls) call->info() = call->links().noted(call->info());
  auto shared = std::make_shared<detail::CallList>(std::move(calls));
  return detail::queue_on_host(first, stream,
                               [shared] { return detail::run_group_on_host(*shared); });
}

}  // namespace ccl
