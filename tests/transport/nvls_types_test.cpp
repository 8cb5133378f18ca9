// Every type and functor that switches have, over emulated multicast memory. Ranks are threads;
// counts, alignments and plans alternate.
#include <ccl/algo/nvls.hpp>
#include <ccl/transport/nvls.hpp>

#include "support/types_suite.hpp"

namespace ccl::test {
namespace {

/// Several launches for the largest counts, or one.
Plan plan_of_scratch(int level) {
  Plan plan;
  plan.slot_count = 2;
  plan.slot_bytes = level == 0 ? 4096 : 1 << 20;
  plan.channels = 1 + level;
  return plan;
}

template <class Op, class F, class T>
Result<void> reduce_over_multicast(const Communicator& comm, const Case& row, const void* send,
                                   void* recv, const void* scalar_at) {
  CCL_TRY(auto c, (Collective<Op, Nvls, Simple, NvlsTransport>::create(
                      comm, plan_of_scratch(row.level[plan]))));
  const F op = functor_of<F, T>(row.level[memory] != 0 ? scalar_at : nullptr);
  if constexpr (Op::rooted) {
    return c(static_cast<const T*>(send), static_cast<T*>(recv), row.count(), op, row.root());
  } else {
    return c(static_cast<const T*>(send), static_cast<T*>(recv), row.count(), op);
  }
}

/// One operation at each number of ranks and each count; other factors alternate.
template <class Op, class F, class T>
int run_operation(const std::vector<std::vector<Communicator>>& comms, Shape shape) {
  int ran = 0;
  for (const int ranks : {2, 3, 8}) {
    for (int n = 0; n < int(counts.size()); ++n, ++ran) {
      Case row{};
      row.level[rank_count] = ranks - 1;
      row.level[count] = n;
      row.level[skew] = (n + ranks) % 3;
      row.level[plan] = n / 2 % 2;
      row.level[in_place] = (n + ranks / 2) % 2;
      row.level[rough] = is_float<T> && n % 2 == 0 && !is_one_of<F, Min, Max>;
      row.level[memory] = n % 2;
      INFO(detail::type_label<T>() << ' ' << detail::redop_label<F>() << ", " << Op::name << ", "
                                   << ranks << " ranks, " << row.count() << " elements");
      run_case(comms[size_t(ranks)], row, shape, rules<T, F>(), reduce_over_multicast<Op, F, T>);
    }
  }
  return ran;
}
/// One operation for a type and a functor; each type takes each second functor besides Sum. All
/// functors, and the types together, run all operations.
template <class F, int Functor, int N>
int run_type(const std::vector<std::vector<Communicator>>& comms) {
  using T = TypeAt<N>;
  if constexpr (!detail::SwitchOp<F, T>::possible || (Functor > 0 && (N + Functor) % 2 != 0)) {
    return 0;
  } else if constexpr ((N + Functor) % 3 == 0) {
    return run_operation<AllReduce, F, T>(comms, Shape::all_reduce);
  } else if constexpr ((N + Functor) % 3 == 1) {
    return run_operation<ReduceScatter, F, T>(comms, Shape::reduce_scatter);
  } else {
    return run_operation<Reduce, F, T>(comms, Shape::reduce);
  }
}
template <class F, int Functor>
int run_functor(const std::vector<std::vector<Communicator>>& comms) {
  return [&]<int... N>(std::integer_sequence<int, N...>) {
    return (run_type<F, Functor, N>(comms) + ...);
  }(std::make_integer_sequence<int, int(std::tuple_size_v<Types>)>{});
}

}  // namespace
}  // namespace ccl::test

TEST_CASE("Nvls: the types and reductions of switches") {
  using namespace ccl::test;
  const auto comms = communicators();
  const int ran = run_functor<ccl::Sum, 0>(comms) + run_functor<ccl::Avg, 1>(comms) +
                  run_functor<ccl::PreMulSum, 2>(comms) + run_functor<ccl::Min, 3>(comms) +
                  run_functor<ccl::Max, 4>(comms);
  WARN(ran << " cases");
}
