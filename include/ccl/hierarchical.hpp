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
#include <ccl/detail/hierarchical/steps.hpp>
#include <ccl/detail/launch/call_order.hpp>
#include <ccl/detail/runtime/guarded.hpp>

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
  using Parts = detail::HierarchicalParts<Op, Algo, Proto, Transport>;

 public:
  /// Creates both levels. Collective. `plan` applies to the level between hosts.
  static Result<Collective> create(const Communicator& comm, std::optional<Plan> plan = {}) {
    return detail::guarded(comm, [&]() -> Result<Collective> {
      CCL_CHECK(detail::check_ready(comm));
      if (plan) CCL_CHECK(detail::check_plan(comm, *plan));
      auto parts = std::make_shared<Parts>(comm);
      parts->name =
          std::string{Op::name} + "/" + Algo::name + "/" + Proto::name + "/" + Transport::name;
      CCL_TRY(const auto lock, detail::creating_alone(comm, parts->name));
      // Each step needs all ranks. If one rank refuses, all ranks get an error.
      const auto step = [&](auto&& prepare) {
        return detail::agree_on(comm, parts->name, prepare());
      };
      CCL_CHECK(step([&]() -> Result<void> {
        CCL_CHECK(detail::may_compose(Op::name, Algo::name, Proto::name));
        if (!Parts::by_rail) return {};
        return detail::check_rails(comm, parts->name, Parts::by_rank);
      }));
      CCL_TRY(parts->levels, detail::levels_of(comm));
      const detail::Levels& levels = *parts->levels;
      CCL_CHECK(step([&]() -> Result<void> {
        CCL_TRY(parts->first, Parts::First::create(levels.inner, {}));
        if constexpr (Parts::all_reduce) {
          CCL_TRY(parts->last, Parts::Last::create(levels.inner, {}));
        }
        return {};
      }));
      CCL_CHECK(step([&]() -> Result<void> {
        if (!levels.outer) return {};
        CCL_TRY(auto outer, Parts::Outer::create(*levels.outer, plan));
        parts->outer.emplace(std::move(outer));
        if (Parts::all_reduce && Parts::rails && comm.device() < 0 && levels.host_count() > 1 &&
            levels.locals() > 1) {
          parts->between = std::make_shared<HostStream>();
        }
        if (!Parts::needs_scratch) return {};
        return parts->order.take_scratch(detail::level_scratch_bytes(comm.device() >= 0));
      }));
      return Collective{std::move(parts)};
    });
  }

  /// The numbers of the level between hosts.
  const Plan& plan() const {
    const Parts& parts = *steps_.parts();
    return parts.outer ? parts.outer->plan() : parts.first.plan();
  }
  const std::string& name() const { return steps_.parts()->name; }
  int ranks() const { return comm().ranks(); }

 private:
  explicit Collective(std::shared_ptr<Parts> parts) : steps_{std::move(parts)} {}
  const Communicator& comm() const { return steps_.comm(); }

  friend struct detail::Call<Op, Collective>;
  static constexpr bool exchanges = false;
  template <class Acc, class T, class F>
  Result<void> reduce(const T* send, T* recv, Index count, F op, [[maybe_unused]] int root,
                      const Layout&, Stream stream) const {
    CCL_CHECK(check_stream(stream));
    return in_turn(stream, [&] {
      const auto reduction = reductions<T, F, Acc>(op);
      if constexpr (cuda::std::same_as<Op, AllReduce>) {
        return steps_.all_reduce(send, recv, count, reduction, stream);
      } else if constexpr (cuda::std::same_as<Op, ReduceScatter>) {
        return steps_.reduce_scatter(send, recv, count, reduction, stream);
      } else {
        return steps_.reduce(send, recv, count, reduction, root, stream);
      }
    });
  }
  /// `layout` is in bytes.
  Result<void> move(const detail::CallInfo&, const void* send, void* recv, const Layout& layout,
                    [[maybe_unused]] int root, Stream stream) const {
    CCL_CHECK(check_stream(stream));
    const auto* const from = static_cast<const char*>(send);
    auto* const to = static_cast<char*>(recv);
    return in_turn(stream, [&] {
      if constexpr (cuda::std::same_as<Op, AllGather>) {
        return steps_.all_gather(from, to, layout.count, stream);
      } else if constexpr (cuda::std::same_as<Op, AllToAll>) {
        return steps_.all_to_all(from, to, layout.count, stream);
      } else {
        return steps_.broadcast(from, to, layout.count, root, stream);
      }
    });
  }
  Result<void> check_stream(Stream stream) const {
    CCL_CHECK(detail::check_ready(comm()));
    return detail::check_stream(comm(), name(), stream);
  }
  /// Runs the launches of all levels of a call, after those of earlier calls.
  template <class Call>
  Result<void> in_turn(Stream stream, Call call) const {
    return detail::in_turn(comm(), steps_.parts(), stream, std::move(call));
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
    return detail::LevelReductions<Whole, Begun, Ended>{
        {op, comm().ranks()}, {Two::begun(op), comm().ranks()}, {Two::ended(op), comm().ranks()}};
  }

  detail::HierarchicalSteps<Op, Algo, Proto, Transport> steps_;
};

}  // namespace ccl
