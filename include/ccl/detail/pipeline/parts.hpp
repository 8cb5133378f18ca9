#pragma once

#include <ccl/collective/collective.hpp>
#include <ccl/detail/launch/call_order.hpp>
#include <ccl/detail/map/elements.hpp>
#include <ccl/detail/pipeline/call.hpp>
#include <ccl/detail/pipeline/stages.hpp>
#include <ccl/detail/runtime/levels.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

namespace ccl::detail {

/// Composition that a stage has created on this rank.
template <class Stage>
struct MadeStage {};  // a Map creates nothing
template <class Level, class Op, class Algo, class Proto, class Transport>
struct MadeStage<On<Level, Op, Algo, Proto, Transport>> {
  std::optional<typename StageOf<On<Level, Op, Algo, Proto, Transport>>::Runs> one{};
};

template <class Stage>
std::string stage_label() {
  if constexpr (StageOf<Stage>::facts.flow == Flow::maps) {
    if constexpr (requires { StageOf<Stage>::Functor::name; }) {
      return std::string{"map "} + StageOf<Stage>::Functor::name;
    }
    return "map";
  } else {
    return std::string{StageOf<Stage>::Operation::name} + " on " + StageOf<Stage>::At::name;
  }
}
/// Name of a pipeline: "pipeline(reduce_scatter on IntraNode, map convert, ...)".
template <class... Stages>
std::string chain_label() {
  std::string all;
  ((all += (all.empty() ? "" : ", ") + stage_label<Stages>()), ...);
  return "pipeline(" + all + ")";
}

/// State that all copies of a `Pipeline` share.
template <class... Stages>
struct PipelineParts {
  static constexpr ChainFacts chain = chain_of<Stages...>;
  static constexpr std::size_t stages = sizeof...(Stages);

  explicit PipelineParts(const Communicator& of) : comm{of}, order{of} {}

  Communicator comm;
  std::string name = chain_label<Stages...>();
  std::shared_ptr<const Levels> levels{};  // null: no stage needs them
  std::tuple<MadeStage<Stages>...> made{};
  CallOrder order;

  /// State of moved-from handles. It is never destroyed.
  static std::shared_ptr<PipelineParts> moved_from() {
    static PipelineParts* const parts =
        new PipelineParts{detail::Access::communicator(detail::moved_from())};
    return {std::shared_ptr<void>{}, parts};
  }

  template <class Level>
  const Communicator& on() const {
    if constexpr (is_one_of<Level, IntraNode>) return levels->inner;
    if constexpr (is_one_of<Level, InterNode>) return *levels->outer;
    return comm;
  }

  /// Creates all stages. Collective. Each step needs all ranks, so an error of one rank fails all.
  static Result<std::shared_ptr<PipelineParts>> make(const Communicator& comm,
                                                     Index scratch_bytes) {
    CCL_CHECK(check_ready(comm));
    auto parts = std::make_shared<PipelineParts>(comm);
    CCL_TRY(const auto lock, creating_alone(comm, parts->name));
    const auto step = [&](auto&& prepare) { return agree_on(comm, parts->name, prepare()); };
    constexpr bool between = chain.has_level[2];
    if (between || (chain.has_level[0] && chain.shares_of_host)) {
      CCL_CHECK(step([&] { return check_rails(comm, parts->name, false); }));
    }
    if (between || chain.has_level[1]) {
      CCL_TRY(parts->levels, levels_of(comm));
    }
    CCL_CHECK(agree_on_scratch(comm, parts->name, scratch_bytes));
    CCL_CHECK(step([&]() -> Result<void> {
      if (scratch_bytes < 0) {
        return fail(
            Errc::invalid_argument,
            std::to_string(scratch_bytes) + " bytes of scratch cannot be; give 0 for ccl's choice");
      }
      // Other pipelines never use it.
      if (chain.keeps_place && !chain.scatters && !chain.maps) return {};
      return parts->order.take_scratch(scratch_bytes > 0 ? scratch_bytes
                                                         : level_scratch_bytes(comm.device() >= 0));
    }));
    CCL_CHECK(make_from<0>(*parts, step));
    return parts;
  }

  /// Shapes of all stages, for counts.
  std::array<StageShape, stages> flows() const {
    std::array<StageShape, stages> all;
    std::size_t at = 0;
    ((all[at++] = flow_of<Stages>()), ...);
    return all;
  }
  /// Shapes of all stages with element sizes, for a call on elements of `T`.
  template <class T>
  std::array<StageShape, stages> shapes() const {
    auto all = flows();
    size_from<0, T>(all);
    return all;
  }
  void name_stages(const std::array<StageShape, stages>& shapes, PipelinePlan& plan) const {
    name_from<0>(shapes, plan);
  }

 private:
  template <std::size_t I>
  using Stage = std::tuple_element_t<I, std::tuple<Stages...>>;

  template <std::size_t I, class Step>
  static Result<void> make_from(PipelineParts& parts, const Step& step) {
    if constexpr (I < stages) {
      CCL_CHECK(step([&]() -> Result<void> {
        using Of = StageOf<Stage<I>>;
        if constexpr (Of::facts.flow == Flow::maps) {
          if (parts.comm.device() < 0) return {};
          const auto load = [&] { return load_maps<typename Of::Functor>(parts.comm.device()); };
          return launched_own(parts.comm, parts.name, in_context(parts.comm, load));
        } else {
          CCL_TRY(auto stage, Of::Runs::create(parts.template on<typename Of::At>()));
          std::get<I>(parts.made).one.emplace(std::move(stage));
          return {};
        }
      }));
      return make_from<I + 1>(parts, step);
    } else {
      return {};
    }
  }

  template <class Stage>
  StageShape flow_of() const {
    StageShape shape;
    shape.flow = StageOf<Stage>::facts.flow;
    if constexpr (StageOf<Stage>::facts.flow != Flow::maps) {
      using At = typename StageOf<Stage>::At;
      if (levels || is_one_of<At, World>) {
        shape.ranks = on<At>().ranks();
        shape.rank = on<At>().rank();
      }
    }
    return shape;
  }
  template <std::size_t I, class T>
  static void size_from(std::array<StageShape, stages>& all) {
    if constexpr (I < stages) {
      using U = typename AfterStage<T, Stage<I>>::Type;
      all[I].in_bytes = Index{sizeof(T)};
      all[I].out_bytes = Index{sizeof(U)};
      size_from<I + 1, U>(all);
    }
  }
  template <std::size_t I>
  void name_from(const std::array<StageShape, stages>& shapes, PipelinePlan& plan) const {
    if constexpr (I < stages) {
      using Of = StageOf<Stage<I>>;
      auto& [runs, ranks, in, out] = plan.stages[I];
      runs = stage_label<Stage<I>>();
      if constexpr (Of::facts.flow != Flow::maps) {
        // A chooser uses the size of the larger buffer.
        const Index bytes = std::max(in, out) * shapes[I].in_bytes;
        if (const auto& one = std::get<I>(made).one) {
          if constexpr (requires { one->name(bytes); }) {
            runs = one->name(bytes) + " on " + Of::At::name;
          } else {
            runs = one->name() + " on " + Of::At::name;
          }
        }
      }
      name_from<I + 1>(shapes, plan);
    }
  }
};

}  // namespace ccl::detail
