#pragma once

#include <ccl/algo/hierarchical.hpp>
#include <ccl/comm/communicator.hpp>
#include <ccl/comm/stream.hpp>
#include <ccl/detail/hierarchical/stage.hpp>
#include <ccl/detail/launch/call_order.hpp>
#include <ccl/detail/runtime/levels.hpp>
#include <ccl/types/operations.hpp>

#include <memory>
#include <optional>
#include <string>
#include <type_traits>

namespace ccl::detail {

template <bool Has, class Op, class Algo, class Proto, class Transport>
struct StageIf {
  using Type = Stage<Op, Algo, Proto, Transport>;
};
template <class Op, class Algo, class Proto, class Transport>
struct StageIf<false, Op, Algo, Proto, Transport> {
  using Type = NoStage;
};

/// The levels of a `Hierarchical` and the composition that each of them runs.
template <class Op, class Algo, class Proto, class Transport>
struct HierarchicalParts {
  using InnerAlgo = typename Algo::InnerAlgo;
  using InnerProto = typename Algo::template InnerProto<Proto>;
  using OuterAlgo = typename Algo::OuterAlgo;
  using OuterProto = typename Algo::template OuterProto<Proto>;
  static constexpr bool all_reduce = std::is_same_v<Op, AllReduce>;
  static constexpr bool rails = Algo::rails;  // for AllReduce
  template <class Inner, bool Has = true>
  using InnerStage = typename StageIf<Has, Inner, InnerAlgo, InnerProto, Transport>::Type;
  // `AllToAll` becomes `AllToAllV`, because messages are cut to sizes that fit the scratch memory.
  using Step = std::conditional_t<std::is_same_v<Op, AllToAll>, AllToAllV, Op>;
  using First = InnerStage<
      std::conditional_t<!all_reduce, Step, std::conditional_t<rails, ReduceScatter, Reduce>>>;
  using Last = InnerStage<std::conditional_t<rails, AllGather, Broadcast>, all_reduce>;

  using Outer = Stage<Step, OuterAlgo, OuterProto, Transport>;
  // True if the operation uses every rail and places data of ranks side by side.
  static constexpr bool by_rail = !(all_reduce && !rails) && !std::is_same_v<Op, Broadcast>;
  static constexpr bool by_rank = is_one_of<Op, AllGather, ReduceScatter, AllToAll>;
  static constexpr bool needs_scratch =
      (all_reduce && rails) || is_one_of<Op, ReduceScatter, Reduce, AllToAll>;

  explicit HierarchicalParts(const Communicator& of) : comm{of}, order{of} {}

  Communicator comm;
  std::shared_ptr<const Levels> levels{};
  First first{};  // inside a host
  std::optional<Outer> outer{};
  Last last{};  // inside a host
  // Stream of the level between hosts, while this thread works on the level inside. CPU ranks only,
  // because the launches of a GPU run in one order.
  std::shared_ptr<HostStream> between{};
  CallOrder order;  // order and scratch memory of whole calls
  std::string name{};

  /// State of moved-from handles. It is never destroyed.
  static std::shared_ptr<HierarchicalParts> moved_from() {
    static HierarchicalParts* const parts =
        new HierarchicalParts{detail::Access::communicator(detail::moved_from())};
    return {std::shared_ptr<void>{}, parts};
  }
};

}  // namespace ccl::detail
