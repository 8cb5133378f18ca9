#pragma once

#include <ccl/choose/forward.hpp>
#include <ccl/comm/communicator.hpp>
#include <ccl/comm/stream.hpp>
#include <ccl/detail/compose/bound_call.hpp>
#include <ccl/detail/compose/check_composition.hpp>
#include <ccl/detail/compose/composition.hpp>
#include <ccl/detail/compose/operation_call.hpp>
#include <ccl/detail/runtime/guarded.hpp>

#include <optional>
#include <type_traits>
#include <utility>

namespace ccl {

/// Collective operation, composed at compile time of operation, algorithm, protocol and transport.
/// A handle: copies share the connections. Calls of one object are serialized; all ranks must make
/// them in the same order. Each <ccl/collective/OPERATION.hpp> has the call of an operation.
template <class Op, class Algo, class Proto, class Transport>
class Collective : public detail::Composition<Op, Algo, Proto, detail::exec_spaces<Transport>()>,
                   public detail::Call<Op, Collective<Op, Algo, Proto, Transport>> {
  static_assert(detail::check_collective<Op, Algo, Proto, Transport>());
  using Base = detail::Composition<Op, Algo, Proto, detail::exec_spaces<Transport>()>;

 public:
  /// Connects the ranks that the algorithm needs. Collective. `plan` must be the same on all ranks.
  [[nodiscard]] static Result<Collective> create(const Communicator& comm,
                                                 std::optional<Plan> plan = {}) {
    return detail::guarded(comm, [&]() -> Result<Collective> {
      CCL_TRY(auto connections, Base::template make_connections<Transport>(comm, plan));
      return Collective{std::move(connections)};
    });
  }

  /// Returns a call with these arguments, for `ccl::group`.
  template <class Acc = void, class... Args>
  auto bind(Args... args) const {
    if constexpr (Op::reduces && !Op::rooted && sizeof...(Args) == 3) {
      return bind<Acc>(args..., Sum{});
    } else {
      // A composition over wires for GPUs alone has no code for CPU lanes.
      using Wired = std::conditional_t<detail::exec_spaces<Transport>().cpus || OverPeers<Algo>,
                                       detail::bound_call<Op, Algo, Proto, Acc, Args...>, void>;
      return detail::BoundCall<Collective, Wired, Acc, Args...>{*this, {args...}};
    }
  }

 private:
  template <class, class, class, bool>
  friend struct detail::MadeCandidates;
  friend struct detail::Call<Op, Collective>;
  explicit Collective(std::shared_ptr<detail::Connections> connections)
      : Base{std::move(connections)} {}
  static const detail::Composed& description() { return Base::template description<Transport>(); }
  /// Reduces in a communicator of one rank. It combines nothing, so any functor may be given.
  template <class Acc, class T, class F>
  [[nodiscard]] Result<void> alone(const T* send, T* recv, Index count, F op,
                                   Stream stream = {}) const {
    CCL_CHECK(detail::check_buffers(this->comm(), Op::name, {send, 1, recv, 1, count, sizeof(T)}));
    return this->reduce_alone(typename Base::template ReductionOf<Acc, T, F>{op, 1}, send, recv,
                              count, stream);
  }
  template <class Acc, class T, class F>
  [[nodiscard]] Result<void> alone(const T* send, T* recv, Index count, F op, int root,
                                   Stream stream = {}) const {
    CCL_CHECK(detail::check_root(this->comm(), root));
    return alone<Acc>(send, recv, count, op, stream);
  }
};

}  // namespace ccl
