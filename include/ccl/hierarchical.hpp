#pragma once

#include <ccl/algo/hierarchical.hpp>
#include <ccl/choose/forward.hpp>
#include <ccl/collective/all_gather.hpp>
#include <ccl/collective/all_reduce.hpp>
#include <ccl/collective/all_to_all.hpp>
#include <ccl/collective/broadcast.hpp>
#include <ccl/collective/reduce.hpp>
#include <ccl/collective/reduce_scatter.hpp>
#include <ccl/comm/stream.hpp>
#include <ccl/detail/base/handle.hpp>
#include <ccl/detail/hierarchical/parts.hpp>

#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace ccl {

/// Collective on two levels; see `Hierarchical`. It splits its communicator into the ranks of each
/// host and the ranks of each rail. All such collectives share these two communicators. Calls are
/// serialized, for any streams. It cannot be part of a group.
template <class Op, class Algo, class Proto, class Transport>
  requires(detail::is_hierarchical<Algo> && !detail::is_auto<Proto>)
class Collective<Op, Algo, Proto, Transport>
    : public detail::Call<Op, Collective<Op, Algo, Proto, Transport>> {
  static_assert(RunsOperation<Algo, Op>,
                "ccl: these levels do not run this operation; see Hierarchical::supports");
  using Stages = detail::HierarchicalStages<Op, Algo, Proto, Transport>;
  using Parts = detail::HierarchicalParts;

 public:
  /// Creates both levels. Collective. `plan` applies to the level between hosts.
  [[nodiscard]] static Result<Collective> create(const Communicator& comm,
                                                 std::optional<Plan> plan = {}) {
    CCL_TRY(auto parts, detail::make_hierarchical(comm, Stages::of(), plan));
    return Collective{std::move(parts)};
  }

  /// The numbers of the level between hosts.
  const Plan& plan() const { return parts_->plan(); }
  const std::string& name() const { return parts_->name; }
  int ranks() const { return comm().ranks(); }

 private:
  explicit Collective(std::shared_ptr<Parts> parts) : parts_{std::move(parts)} {}
  const Communicator& comm() const { return parts_->comm; }

  friend struct detail::Call<Op, Collective>;
  static constexpr bool exchanges = false;
  template <class Acc, class T, class F>
  [[nodiscard]] Result<void> reduce(const T* send, T* recv, Index count, F op,
                                    [[maybe_unused]] int root, const Layout&, Stream stream) const {
    const auto passes = reductions<T, F, Acc>(op);
    const auto by = Stages::reductions(passes);
    const detail::HierarchicalCall call{send, recv, count, root, stream};
    if constexpr (cuda::std::same_as<Op, AllReduce>) {
      return detail::all_reduce_on_levels(parts_, call, by);
    } else if constexpr (cuda::std::same_as<Op, ReduceScatter>) {
      return detail::reduce_scatter_on_levels(parts_, call, by);
    } else {
      return detail::reduce_on_levels(parts_, call, by);
    }
  }
  /// `layout` is in bytes.
  [[nodiscard]] Result<void> move(const detail::CallInfo&, const void* send, void* recv,
                                  const Layout& layout, [[maybe_unused]] int root,
                                  Stream stream) const {
    const detail::HierarchicalCall call{send, recv, layout.count, root, stream};
    if constexpr (cuda::std::same_as<Op, AllGather>) {
      return detail::all_gather_on_levels(parts_, call);
    } else if constexpr (cuda::std::same_as<Op, AllToAll>) {
      return detail::all_to_all_on_levels(parts_, call);
    } else {
      return detail::broadcast_on_levels(parts_, call);
    }
  }

  template <class T, class F, class Acc>
  auto reductions(const F& op) const {
    using A = cuda::std::conditional_t<cuda::std::is_void_v<Acc>, accumulate_t<T>, Acc>;
    using Two = detail::InTwo<F>;
    using Begun = detail::Reduction<decltype(Two::begun(op)), T, A>;
    using Ended = detail::Reduction<decltype(Two::ended(op)), T, A>;
    using Whole = detail::Reduction<F, T, A>;
    static_assert(Whole::commutative,
                  "ccl: this algorithm reduces the ranks in an order of its own, and the functor "
                  "says that it is not commutative");
    static_assert(
        detail::algorithm_takes<Algo, F>(),
        "ccl: this algorithm cannot run this reduction; see `supports_reduction` in its header");
    return detail::ReductionsOfPasses<Whole, Begun, Ended>{
        {op, comm().ranks()}, {Two::begun(op), comm().ranks()}, {Two::ended(op), comm().ranks()}};
  }

  detail::Handle<Parts, Parts::moved_from> parts_;
};

}  // namespace ccl
