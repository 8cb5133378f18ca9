#pragma once

#include <ccl/choose/forward.hpp>
#include <ccl/collective/stages.hpp>
#include <ccl/detail/pipeline/layout.hpp>
#include <ccl/element/reduce_op.hpp>
#include <ccl/types/operations.hpp>

#include <cuda/std/type_traits>

#include <array>
#include <cstddef>
#include <tuple>

namespace ccl::detail {

/// Properties of a stage in a chain.
struct StageFacts {
  bool is_stage = false, has_level = true, has_flow = true, reduces = false;
  Flow flow = Flow::keeps;
  int level = 0;
};

template <class Stage>
struct StageOf {  // for a type that is no stage, so that a single assertion fails
  using At = World;
  using Operation = AllReduce;
  static constexpr StageFacts facts{};
};
template <class Level, class Op, class Algo, class Proto, class Transport>
struct StageOf<On<Level, Op, Algo, Proto, Transport>> {
  using Stage = On<Level, Op, Algo, Proto, Transport>;
  static constexpr bool has_level = is_one_of<Level, World, IntraNode, InterNode>;
  static constexpr bool has_flow = is_one_of<Op, AllReduce, ReduceScatter, AllGather, AllToAll>;
  static constexpr Flow flow = is_one_of<Op, ReduceScatter> ? Flow::scatters
                               : is_one_of<Op, AllGather>   ? Flow::gathers
                               : is_one_of<Op, AllToAll>    ? Flow::exchanges
                                                            : Flow::keeps;
  static constexpr int level = is_one_of<Level, World> ? 0 : is_one_of<Level, IntraNode> ? 1 : 2;
  static constexpr StageFacts facts{
      true, has_level, has_flow, is_one_of<Op, AllReduce, ReduceScatter>, flow, level};
  using At = cuda::std::conditional_t<has_level, Level, World>;
  using Operation = Op;
  using Runs = cuda::std::conditional_t<has_flow, Collective<Op, Algo, Proto, Transport>, Stage>;
};
template <class F>
struct StageOf<Map<F>> {
  using Functor = F;
  static constexpr StageFacts facts{true, true, true, false, Flow::maps, -1};
};

/// Properties that follow from the order of the stages.
struct ChainFacts {
  bool crosses = false;     // an AllGather is on another level than the open ReduceScatter
  bool keeps_place = true;  // element i of the output depends only on element i of the inputs
  bool scatters = false, maps = false;
  bool has_level[3] = {};       // World, IntraNode, InterNode
  bool shares_of_host = false;  // counts depend on the number of ranks of a host
  int reductions = 0, stages = 0;
};
template <std::size_t N>
constexpr ChainFacts follow(const std::array<StageFacts, N>& stages) {
  ChainFacts chain;
  int open[N + 1] = {}, depth = 0;  // levels of ReduceScatters that are not gathered yet
  for (const StageFacts& stage : stages) {
    chain.reductions += stage.reduces;
    chain.maps = chain.maps || stage.flow == Flow::maps;
    if (stage.level < 0) continue;
    ++chain.stages;
    chain.has_level[stage.level] = true;
    if (stage.flow != Flow::keeps && stage.level == 1) chain.shares_of_host = true;
    if (stage.flow == Flow::scatters) {
      chain.scatters = true;
      open[depth++] = stage.level;
    } else if (stage.flow == Flow::gathers) {
      if (depth == 0) {
        chain.keeps_place = false;
      } else if (open[--depth] != stage.level) {
        chain.crosses = true;
      }
    } else if (stage.flow == Flow::exchanges) {
      chain.keeps_place = false;
    }
  }
  if (depth > 0) chain.keeps_place = false;
  return chain;
}

template <class... Stages>
inline constexpr ChainFacts chain_of = follow(std::array{StageOf<Stages>::facts...});

/// States in one sentence what is wrong with a chain of stages.
template <class... Stages>
constexpr bool check_chain() {
  constexpr bool are_stages = (StageOf<Stages>::facts.is_stage && ...);
  constexpr bool have_levels = (StageOf<Stages>::facts.has_level && ...);
  constexpr bool have_flows = (StageOf<Stages>::facts.has_flow && ...);
  static_assert(are_stages, "ccl: a stage of Pipeline is On<Level, Op, ...> or Map<Functor>");
  static_assert(have_levels,
                "ccl: the first argument of On is a level: World, IntraNode or InterNode");
  static_assert(!have_levels || have_flows,
                "ccl: the stages of a Pipeline run AllReduce, ReduceScatter, AllGather or "
                "AllToAll; what has a root or counts of its own is a call beside it");
  static_assert(!are_stages || ((StageOf<Stages>::facts.level >= 0) || ...),
                "ccl: a Pipeline has a stage On some level; a Map alone needs no ranks");
  static_assert(!chain_of<Stages...>.crosses,
                "ccl: an AllGather of this Pipeline is on another level than the ReduceScatter "
                "before it, which would leave the shares in another order; gather what was "
                "scattered last first");
  static_assert(sizeof...(Stages) <= max_stages, "ccl: a Pipeline has at most 32 stages");
  return true;
}

// Type of the elements after a stage.
template <class T, class Stage>
struct AfterStage {
  using Type = T;
};
template <class F, class T>
concept MapsFrom = requires(const F& map, const T& value) { map(value); };
template <class T, class F>
struct AfterStage<T, Map<F>> {
  static_assert(MapsFrom<F, T>,
                "ccl: a Map's functor must be callable as U(T) const with the elements that come "
                "to it from the stage before");
  static_assert(TravelsToKernels<F>,
                "ccl: a Map's functor must be trivially copyable (kernels take it by value); let "
                "it hold plain values or pointers");
  static constexpr auto type_of() {
    if constexpr (MapsFrom<F, T>) {
      return cuda::std::type_identity<cuda::std::decay_t<decltype(cuda::std::declval<const F&>()(
          cuda::std::declval<const T&>()))>>{};
    } else {
      return cuda::std::type_identity<T>{};  // the assertion above has already failed
    }
  }
  using Type = typename decltype(type_of())::type;
  static_assert(cuda::std::is_trivially_copyable_v<Type>,
                "ccl: a Map's functor must return a trivially copyable type (ranks exchange its "
                "bytes)");
};
template <class T, class... Stages>
struct AfterAll {
  using Type = T;
};
template <class T, class Stage, class... Rest>
struct AfterAll<T, Stage, Rest...> : AfterAll<typename AfterStage<T, Stage>::Type, Rest...> {};

/// Functors of all Maps, in the order of the stages.
template <class Stage>
struct FunctorsOf {
  using Type = std::tuple<>;
};
template <class F>
struct FunctorsOf<Map<F>> {
  using Type = std::tuple<F>;
};
template <class... Stages>
using MapsOf = decltype(std::tuple_cat(cuda::std::declval<typename FunctorsOf<Stages>::Type>()...));

}  // namespace ccl::detail
