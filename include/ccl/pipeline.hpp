#pragma once

#include <ccl/collective.hpp>
#include <ccl/comm/communicator.hpp>
#include <ccl/comm/stream.hpp>
#include <ccl/detail/base/handle.hpp>
#include <ccl/detail/launch/arguments.hpp>
#include <ccl/detail/pipeline/call.hpp>
#include <ccl/detail/pipeline/parts.hpp>
#include <ccl/detail/pipeline/pass.hpp>
#include <ccl/detail/pipeline/stages.hpp>
#include <ccl/detail/runtime/guarded.hpp>
#include <ccl/element/convert.hpp>

#include <cuda/std/type_traits>

#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

namespace ccl {

/// Collectives on levels and element-wise maps, one after the other, as one call. Example: reduce
/// inside a host in float and between hosts in bfloat16; see docs/guide/pipelines.md.
///
///   using TwoLevel = Pipeline<On<IntraNode, ReduceScatter, Ring, Simple>, Map<Convert<bfloat16>>,
///                             On<InterNode, AllReduce, Tree, LL128, SocketTransport>,
///                             Map<Convert<float>>, On<IntraNode, AllGather>>;
///
/// A stage over R ranks makes these numbers of elements from n:
/// - AllReduce, Map: n.
/// - ReduceScatter: n / R.
/// - AllGather: n * R.
/// - AllToAll: n, cut into R blocks.
/// If an AllGather reverses each ReduceScatter, and there is no other AllGather and no AllToAll,
/// elements keep their place. Element i of `recv` then depends only on the elements i of all
/// `send`. Any count is valid, and `send` may be `recv` if their elements have the same size.
/// Otherwise every stage must divide its count, and the buffers must not overlap.
///
/// It is a handle: copies share connections and scratch memory. Calls are serialized, for any
/// streams, and all ranks must make them in the same order. It cannot be part of a group.
template <class... Stages>
class Pipeline {
  static_assert(detail::check_chain<Stages...>());
  using Parts = detail::PipelineParts<Stages...>;
  static constexpr detail::ChainFacts chain = Parts::chain;

 public:
  /// Functors of the Maps, in the order of the stages.
  using Maps = detail::MapsOf<Stages...>;

  /// Creates the pipeline. Collective. `scratch_bytes`, equal on all ranks, is the memory between
  /// the stages; longer messages go in several passes. 0 means 4 MiB, or 1 MiB on CPU ranks. It
  /// counts against the communicator's memory budget.
  [[nodiscard]] static Result<Pipeline> create(const Communicator& comm, Maps maps = {},
                                               Index scratch_bytes = 0) {
    return detail::guarded(comm, [&]() -> Result<Pipeline> {
      CCL_TRY(auto parts, Parts::make(comm, scratch_bytes));
      return Pipeline{std::move(parts), std::move(maps)};
    });
  }
  /// Returns a pipeline with other functors of the same types, on the same connections.
  Pipeline with(Maps maps) const { return Pipeline{parts_, std::move(maps)}; }

  /// Runs the pipeline. Each stage that reduces uses `op` over the ranks of its level. `count` is
  /// the number of elements of `send`, equal on all ranks; `recv` has `out_count(count)`. Elements
  /// are added up in `Acc`.
  template <class Acc = void, class T, class U, class F = Sum>
    requires(chain.reductions > 0)
  [[nodiscard]] Result<void> operator()(const T* send, U* recv, Index count, F op = {},
                                        Stream stream = {}) const {
    static_assert(chain.reductions <= 1 || !cuda::std::is_same_v<F, PreMulSum>,
                  "ccl: PreMulSum multiplies each rank's own data once, and several stages of this "
                  "Pipeline reduce; multiply in a Map, and reduce by Sum");
    static_assert(chain.reductions <= 1 || is_commutative<F>,
                  "ccl: several stages of this Pipeline reduce, in an order of their own, and the "
                  "functor says that it is not commutative");
    return call<Acc>(send, recv, count, op, stream);
  }
  template <class T, class U>
    requires(chain.reductions == 0)
  [[nodiscard]] Result<void> operator()(const T* send, U* recv, Index count,
                                        Stream stream = {}) const {
    return call<void>(send, recv, count, Sum{}, stream);
  }
  /// States what is wrong with buffers that are no pointers.
  template <class Send, class Recv, class... Rest>
    requires(!std::is_pointer_v<std::decay_t<Send>> || !std::is_pointer_v<std::decay_t<Recv>>)
  [[nodiscard]] Result<void> operator()(Send&&, Recv&&, Rest&&...) const {
    return detail::refuse_buffers<Send, Recv>();
  }

  /// Returns the elements of `recv` for `count` elements of `send`, or a negative number if the
  /// result overflows.
  Index out_count(Index count) const {
    return chain.keeps_place ? count : detail::count_after(parts_->flows(), count);
  }
  /// Returns the number of which `count` must be a multiple.
  Index min_count() const { return chain.keeps_place ? 1 : detail::min_count(parts_->flows()); }
  /// Returns the plan of a call of `count` elements of `T` on this rank.
  template <class T>
  PipelinePlan plan(Index count) const {
    const auto shapes = parts_->template shapes<T>();
    PipelinePlan plan =
        detail::plan_call(shapes, count, chain.keeps_place, parts_->order.scratch_bytes());
    parts_->name_stages(shapes, plan);
    return plan;
  }
  /// Returns the name, such as "pipeline(reduce_scatter on IntraNode, map convert, ...)".
  const std::string& name() const { return parts_->name; }
  int ranks() const { return parts_->comm.ranks(); }

 private:
  Pipeline(std::shared_ptr<Parts> parts, Maps maps)
      : parts_{std::move(parts)}, maps_{std::move(maps)} {}

  template <class Acc, class T, class U, class F>
  [[nodiscard]] Result<void> call(const T* send, U* recv, Index count, const F& op,
                                  Stream stream) const {
    return detail::guarded(parts_->comm, [&]() -> Result<void> {
      static_assert(
          cuda::std::is_same_v<U, typename detail::AfterAll<T, Stages...>::Type>,
          "ccl: recv must point to elements of the type that this Pipeline leaves: what its "
          "last Map returns, that of send if it has none");
      const Communicator& comm = parts_->comm;
      CCL_CHECK(detail::check_ready(comm));
      CCL_CHECK(detail::check_stream(comm, parts_->name, stream));
      if (comm.device() >= 0) {
        CCL_CHECK(detail::check_aligned(comm, send, nullptr, int(alignof(T))));
        CCL_CHECK(detail::check_aligned(comm, nullptr, recv, int(alignof(U))));
      }
      const auto shapes = parts_->template shapes<T>();
      const detail::PipelineCall call{comm,  parts_->name,  shapes, chain.keeps_place, send, recv,
                                      count, parts_->order, stream};
      CCL_CHECK(detail::check_call(call));
      if (count == 0) return {};
      const std::shared_ptr<Parts>& parts = parts_;
      return detail::in_turn(comm, parts, stream, [&] {
        detail::PipelinePass<Acc, T, F, Stages...> pass{*parts, shapes, maps_, op, stream};
        return detail::run_passes(call, std::ref(pass));
      });
    });
  }

  detail::Handle<Parts, Parts::moved_from> parts_;
  Maps maps_;
};

}  // namespace ccl
