// Compiled once for each operation and type: CCL_NCCL_OP, CCL_NCCL_TYPE.
#include "nccl/reduce.hpp"

#include <fmt/format.h>

#include "nccl/contents.hpp"

namespace ccl::detail::nccl {
namespace {

template <class Op, class Algo, class T, class F>
bool called(const Collective<Op, Algo>& one, const Call& call, Result<void>& result) {
  if (call.op.name() != F::name) return false;
  const std::optional<F> functor = call.op.as<F>();
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
