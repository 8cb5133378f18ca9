#pragma once

#include <ccl/algo/hierarchical.hpp>
#include <ccl/algo/traits.hpp>
#include <ccl/comm/communicator.hpp>
#include <ccl/comm/stream.hpp>
#include <ccl/detail/hierarchical/any_stage.hpp>
#include <ccl/detail/hierarchical/stage.hpp>
#include <ccl/detail/launch/call_order.hpp>
#include <ccl/detail/runtime/levels.hpp>
#include <ccl/types/operations.hpp>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>

namespace ccl::detail {

/// A `Hierarchical` as values, from which the compiled runtime creates it.
struct HierarchicalOf {
  const char *op, *algo, *proto, *transport;
  bool rails = false;    // of an AllReduce
  bool by_rail = false;  // the operation uses every rail
  bool by_rank = false;  // it places data of ranks side by side
  bool heads = false;    // heads have the rails: see `NvlsTree`
  bool needs_scratch = false;
  const char* other = "";  // algorithm to suggest if the scratch is too small
  MakeStage inner = nullptr, outer = nullptr;
  MakeStage last = nullptr;  // inside a host, after both; null: none
};

/// The levels of a `Hierarchical`.
struct HierarchicalParts {
  HierarchicalParts(const Communicator& all, const HierarchicalOf& how)
      : comm{all}, of{how}, order{all} {}

  Communicator comm;
  HierarchicalOf of;
  std::shared_ptr<const Levels> levels{};
  std::unique_ptr<const AnyStage> first{};  // inside a host
  std::unique_ptr<const AnyStage> outer{};  // null: this rank has none
  std::unique_ptr<const AnyStage> last{};   // inside a host
  // Stream of the level between hosts, while this thread works on the level inside. CPU ranks only,
  // because the launches of a GPU run in one order.
  std::shared_ptr<HostStream> between{};
  CallOrder order;  // order and scratch memory of whole calls
  std::string name{};

  const Plan& plan() const;
  /// State of moved-from handles. It is never destroyed.
  static std::shared_ptr<HierarchicalParts> moved_from();
};

/// Creates both levels. Collective. `plan` applies to the level between hosts.
Result<std::shared_ptr<HierarchicalParts>> make_hierarchical(const Communicator& comm,
                                                             const HierarchicalOf& of,
                                                             const std::optional<Plan>& plan);
/// Data of a call, checked. `count` is in elements of a reduction, else in bytes.
struct HierarchicalCall {
  const void* send;
  void* recv;
  Index count;
  int root;
  Stream stream;
};
// Each makes the launches of a call, after those of earlier calls.
using HierarchicalOwner = std::shared_ptr<HierarchicalParts>;
Result<void> all_reduce_on_levels(const HierarchicalOwner& parts, const HierarchicalCall& call,
                                  const LevelReductions& by);
Result<void> reduce_scatter_on_levels(const HierarchicalOwner& parts, const HierarchicalCall& call,
                                      const LevelReductions& by);
Result<void> reduce_on_levels(const HierarchicalOwner& parts, const HierarchicalCall& call,
                              const LevelReductions& by);
Result<void> all_gather_on_levels(const HierarchicalOwner& parts, const HierarchicalCall& call);
Result<void> all_to_all_on_levels(const HierarchicalOwner& parts, const HierarchicalCall& call);
Result<void> broadcast_on_levels(const HierarchicalOwner& parts, const HierarchicalCall& call);

/// Error of a composition whose scratch does not hold `pieces` elements at once. `other` is the
/// algorithm to suggest instead.
Error scratch_too_small(const Communicator& comm, const std::string& name, Index scratch_bytes,
                        Index pieces, std::size_t element_bytes, const char* other);

/// Stages of a `Hierarchical`.
template <class Op, class Algo, class Proto, class Transport>
struct HierarchicalStages {
  using InnerAlgo = typename Algo::InnerAlgo;
  using InnerProto = typename Algo::template InnerProto<Proto>;
  using OuterAlgo = typename Algo::OuterAlgo;
  using OuterProto = typename Algo::template OuterProto<Proto>;
  static constexpr bool all_reduce = std::is_same_v<Op, AllReduce>;
  static constexpr bool rails = Algo::rails;
  template <class Inner>
  using InnerStage = Stage<Inner, InnerAlgo, InnerProto, Transport>;
  // `AllToAll` becomes `AllToAllV`, because messages are cut to sizes that fit the scratch memory.
  using Step = std::conditional_t<std::is_same_v<Op, AllToAll>, AllToAllV, Op>;
  using First = InnerStage<
      std::conditional_t<!all_reduce, Step, std::conditional_t<rails, ReduceScatter, Reduce>>>;
  using Last = InnerStage<std::conditional_t<rails, AllGather, Broadcast>>;
  using Outer = Stage<Step, OuterAlgo, OuterProto, Transport>;

  static constexpr HierarchicalOf of() {
    HierarchicalOf of{Op::name, Algo::name, Proto::name, Transport::name};
    of.rails = rails;
    of.heads = HeadsOwnShares<InnerAlgo>;
    of.by_rail = !(all_reduce && !rails) && !std::is_same_v<Op, Broadcast> && !of.heads;
    of.by_rank = is_one_of<Op, AllGather, ReduceScatter, AllToAll>;
    of.needs_scratch = (all_reduce && rails) || is_one_of<Op, ReduceScatter, Reduce, AllToAll>;
    of.other = is_one_of<Op, AllToAll>        ? "Pairwise"
               : is_one_of<Op, ReduceScatter> ? "Ring"
                                              : "Ring or Tree";
    of.inner = First::create;
    of.outer = Outer::create;
    if constexpr (all_reduce) of.last = Last::create;
    return of;
  }
  /// Refers to `by`.
  template <class Passes>
  static LevelReductions reductions(const Passes& by) {
    using T = typename decltype(by.whole)::Type;
    return {Index{sizeof(T)}, &by, First::template reduce_pass<Passes>,
            Outer::template reduce_pass<Passes>, [](const void* of) -> std::shared_ptr<const void> {
              return std::make_shared<const Passes>(*static_cast<const Passes*>(of));
            }};
  }
};

}  // namespace ccl::detail
