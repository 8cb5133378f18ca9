#pragma once

#include <ccl/element/reduce_op.hpp>
#include <ccl/types/operations.hpp>

namespace ccl::detail {

/// Reductions of networks, by their numbers in NCCL's plug-ins.
enum class NetworkOp { none = -1, sum, prod, max, min };
inline constexpr int network_op_count = 4;

/// Returns the reduction of a network that the functor takes. An average is a sum that is divided
/// by its number of ranks when it comes back, and `PreMulSum` scales before.
template <class F>
constexpr NetworkOp network_op() {
  if constexpr (is_one_of<F, Sum, Avg, AvgBegun, AvgEnded, PreMulSum>) return NetworkOp::sum;
  if constexpr (is_one_of<F, Prod>) return NetworkOp::prod;
  if constexpr (is_one_of<F, Max>) return NetworkOp::max;
  if constexpr (is_one_of<F, Min>) return NetworkOp::min;
  return NetworkOp::none;
}
/// True if networks that reduce have the reduction of the functor.
template <class F>
inline constexpr bool network_has = network_op<F>() != NetworkOp::none;

}  // namespace ccl::detail
