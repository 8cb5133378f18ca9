#pragma once

#include <ccl/detail/pipeline/parts.hpp>

#include <array>
#include <cstddef>
#include <tuple>
#include <type_traits>

namespace ccl::detail {

/// One pass of a call: all stages in order, on elements that begin as `T`. `Acc` and `F` apply to
/// all stages that reduce.
template <class Acc, class T, class F, class... Stages>
class PipelinePass {
 public:
  using Parts = PipelineParts<Stages...>;
  static constexpr std::size_t stages = sizeof...(Stages);

  PipelinePass(const Parts& parts, const std::array<StageShape, stages>& shapes,
               const MapsOf<Stages...>& maps, const F& op, Stream stream)
      : parts_{parts}, shapes_{shapes}, maps_{maps}, op_{op}, stream_{stream} {}

  Result<void> operator()(const char* input, char* output, Index count, char* buffers) {
    const Buffers used = place_results(shapes_, count, places_);
    output_ = output;
    buffers_[0] = buffers;
    buffers_[1] = buffers + in_scratch_lines(used.first);
    return stage<0, 0, T>(input, count);
  }

 private:
  template <std::size_t I>
  using Stage = std::tuple_element_t<I, std::tuple<Stages...>>;

  char* at(const BufferOffset& place) const {
    if (place.where == BufferOffset::output) return output_ + place.at;
    return buffers_[place.where == BufferOffset::second];
  }

  /// Runs stage `I`, whose input is `count` elements of `In`, and all later stages. `M` is the
  /// number of earlier Maps.
  template <std::size_t I, std::size_t M, class In>
  Result<void> stage(const void* from, Index count) {
    if constexpr (I < stages) {
      using Of = StageOf<Stage<I>>;
      using Out = typename AfterStage<In, Stage<I>>::Type;
      constexpr Flow flow = Of::facts.flow;
      const Index ranks = shapes_[I].ranks;
      const auto* const in = static_cast<const In*>(from);
      void* const to = at(places_[I]);
      if constexpr (flow == Flow::maps) {
        CCL_CHECK((map_own<In, Out>(parts_.comm, parts_.comm.device(), parts_.name,
                                    std::get<M>(maps_), from, to, count, stream_)));
      } else {
        constexpr bool changes = std::is_same_v<F, PreMulSum> && Of::facts.reduces;
        const auto& one = *std::get<I>(parts_.made).one;
        const Index out = flow == Flow::scatters ? count / ranks : count;
        if (changes || ranks > 1 || from != to) {
          if constexpr (Of::facts.reduces) {
            static_assert(
                Parts::chain.reductions <= 1 || !std::is_same_v<F, Avg> || !std::is_integral_v<In>,
                "ccl: several stages of this Pipeline reduce, and each would cut an "
                "average of integers; reduce by Sum, and divide in a Map");
            CCL_CHECK(one.template operator()<Acc>(in, static_cast<In*>(to), out, op_, stream_));
          } else {
            const Index block = flow == Flow::exchanges ? count / ranks : count;
            CCL_CHECK(one(in, static_cast<In*>(to), block, stream_));
          }
        }
        count = flow == Flow::gathers ? count * ranks : out;
      }
      return stage<I + 1, M + (flow == Flow::maps), Out>(to, count);
    } else {
      return {};
    }
  }

  const Parts& parts_;
  const std::array<StageShape, stages>& shapes_;
  const MapsOf<Stages...>& maps_;
  const F& op_;
  Stream stream_;
  char* output_ = nullptr;
  char* buffers_[2] = {};
  std::array<BufferOffset, stages> places_{};
};

}  // namespace ccl::detail
