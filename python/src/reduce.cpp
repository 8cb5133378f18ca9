// Compiled once for each operation and type: CCL_PYTHON_OP, CCL_PYTHON_TYPE.
#include "reduce.hpp"

#include <ccl/element/reduce_op.hpp>

#include <fmt/format.h>

namespace ccl::python {
namespace {

/// Minimum or maximum, so that both have the same code.
struct MinOrMax {
  bool max;
  const char* label() const { return max ? Max::name : Min::name; }
  template <class A>
  constexpr A operator()(const A& a, const A& b) const {
    return max ? Max{}(a, b) : Min{}(a, b);
  }
};

/// Functor of an extension, called through its address.
template <class A>
struct UserFunctor {
  const LoadedFunctor* loaded;
  const char* label() const { return loaded->label; }
  A operator()(const A& a, const A& b) const {
    return reinterpret_cast<A (*)(A, A)>(loaded->combine)(a, b);
  }
};

template <class Op, class T, class F>
Result<void> run(const Collective<Op>& collective, const Call& call, const F& functor) {
  const auto* send = static_cast<const T*>(call.send);
  auto* recv = static_cast<T*>(call.recv);
  if constexpr (Op::rooted) {
    return collective(send, recv, call.count, functor, call.root, call.stream);
  } else {
    return collective(send, recv, call.count, functor, call.stream);
  }
}

}  // namespace

template <class Op, class T>
Result<void> reduce(const Collective<Op>& collective, const Call& call) {
  if (call.functor != nullptr) {
    return run<Op, T>(collective, call, UserFunctor<accumulate_t<T>>{call.functor});
  }
  if (call.op == Sum::name) return run<Op, T>(collective, call, Sum{});
  if (call.op == Avg::name) return run<Op, T>(collective, call, Avg{});
  if (call.op == Prod::name) return run<Op, T>(collective, call, Prod{});
  if (call.op == Min::name) return run<Op, T>(collective, call, MinOrMax{false});
  if (call.op == Max::name) return run<Op, T>(collective, call, MinOrMax{true});
  return fail(Errc::invalid_argument,
              fmt::format("there is no reduction \"{}\" ({}); take sum, prod, min, max or avg",
                          call.op, Op::name));
}
template Result<void> reduce<CCL_PYTHON_OP, CCL_PYTHON_TYPE>(const Collective<CCL_PYTHON_OP>&,
                                                             const Call&);

}  // namespace ccl::python
