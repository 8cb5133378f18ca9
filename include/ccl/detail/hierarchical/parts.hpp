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

/// The levels of a `Hierarchical` and what each of them runs.
template <class Op, class Algo, class Proto, class Transport>
struct HierarchicalParts {
  using InnerAlgo = typename Algo::InnerAlgo;
  using InnerProto = typename Algo::template InnerProto<Proto>;
  using OuterAlgo = typename Algo::OuterAlgo;
  using OuterProto = typename Algo::template OuterProto<Proto>;
  static constexpr bool all_reduce = std::is_same_v<Op, AllReduce>;
  static constexpr bool rails = Algo::rails;  // of an AllReduce
  template <class Inner, bool Has = true>
  using InnerStage = typename StageIf<Has, Inner, InnerAlgo, InnerProto, Transport>::Type;
  // What moves messages cuts them to what its scratch memory holds, and so in sizes of its own.
  using Step = std::conditional_t<std::is_same_v<Op, AllToAll>, AllToAllV, Op>;
  using First = InnerStage<
      std::conditional_t<!all_reduce, Step, std::conditional_t<rails, ReduceScatter, Reduce>>>;
  using Last = InnerStage<std::conditional_t<rails, AllGather, Broadcast>, all_reduce>;

  using Outer = Stage<Step, OuterAlgo, OuterProto, Transport>;
  // Whether it takes every rail, and lays data of ranks side by side.
  static constexpr bool by_rail = !(all_reduce && !rails) && !std::is_same_v<Op, Broadcast>;
  static constexpr bool by_rank = is_one_of<Op, AllGather, ReduceScatter, AllToAll>;
  static constexpr bool needs_scratch =
      (all_reduce && rails) || is_one_of<Op, ReduceScatter, Reduce, AllToAll>;

  explicit HierarchicalParts(const Communicator& of) : comm{of}, order{of} {}

  Communicator comm;
  std::shared_ptr<const Levels> levels{};
  First first{};  // inside
  std::optional<Outer> outer{};
  Last last{};  // inside
  // Of the level between hosts, while this thread works on the one inside. On CPUs only: a GPU's
  // launches go in one order.
  std::shared_ptr<HostStream> between{};
  CallOrder order;  // of whole calls; their scratch
  std::string name{};

  /// Of what was moved from; never destroyed.
  static std::shared_ptr<HierarchicalParts> moved_from() noexcept {
    static HierarchicalParts* const parts =
        new HierarchicalParts{detail::Access::communicator(detail::moved_from())};
    return {std::shared_ptr<void>{}, parts};
  }
};

}  // namespace ccl::detail
