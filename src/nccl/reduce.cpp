// Compiled once for each operation and type: CCL_NCCL_OP, CCL_NCCL_TYPE.
#include "nccl/reduce.hpp"

#include <fmt/format.h>

#include "nccl/contents.hpp"

namespace ccl::detail::nccl {
namespace {

/// Minimum or maximum, so that both have the same kernels.
struct MinOrMax {
  bool max;
  const char* label() const { return max ? Max::name : Min::name; }
  template <class A>
  CCL_HD constexpr A operator()(const A& a, const A& b) const {
    return max ? Max{}(a, b) : Min{}(a, b);
  }
};

/// Functor that a call of `op` runs; nothing if `op` is not an `F`.
template <class F>
std::optional<F> functor_of(const RedOp& op) {
  return op.name() == F::name ? op.as<F>() : std::nullopt;
}
template <>
std::optional<MinOrMax> functor_of<MinOrMax>(const RedOp& op) {
  if (op.name() == Min::name) return MinOrMax{false};
  if (op.name() == Max::name) return MinOrMax{true};
  return std::nullopt;
}

/// Functor whose kernels run `F`.
template <class F>
using Shared = std::conditional_t<is_one_of<F, Min, Max>, MinOrMax, F>;

template <class Op, class Algo, class T, class F>
bool called(const Collective<Op, Algo>& one, const Call& call, Result<void>& result) {
  if (call.op.name() != F::name) return false;
  const auto functor = functor_of<Shared<F>>(call.op);
  if (!functor) return false;
  const auto* send = static_cast<const T*>(call.send);
  auto* recv = static_cast<T*>(call.recv);
  const Stream stream{call.stream};
  if constexpr (Op::rooted) {
    result = one(send, recv, call.count, *functor, call.root, stream);
  } else {
    result = one(send, recv, call.count, *functor, stream);
  }
  return true;
}

template <class... Fs, class Op, class Algo, class T>
Result<void> reduce_by(ccl::Reductions<Fs...>, const Collective<Op, Algo>& one, const Call& call,
                       TypeTag<T>) {
  Result<void> result;
  if ((called<Op, Algo, T, Fs>(one, call, result) || ...)) return result;
  return fail(Errc::not_supported,
              fmt::format("there is no code for {} of {} ({}); build with CCL_NCCL_REDOPS=all",
                          call.op.name(), name(call.type), Op::name));
}

}  // namespace

template <class Op, class Algo, class T>
Result<void> reduce(const Collective<Op, Algo>& one, const Call& call) {
  return reduce_by(Reductions{}, one, call, TypeTag<T>{});
}
template Result<void> reduce<CCL_NCCL_OP, Auto, CCL_NCCL_TYPE>(const Collective<CCL_NCCL_OP>&,
                                                               const Call&);
template Result<void> reduce<CCL_NCCL_OP, Deterministic, CCL_NCCL_TYPE>(
    const Collective<CCL_NCCL_OP, Deterministic>&, const Call&);

}  // namespace ccl::detail::nccl
