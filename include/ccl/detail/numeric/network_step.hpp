#pragma once

#include <ccl/element/data_type.hpp>
#include <ccl/element/network_op.hpp>
#include <ccl/types/macros.hpp>
#include <ccl/types/word.hpp>

#include <array>

CCL_ANY_SPACE_BEGIN

namespace ccl::detail {

/// Element types that networks reduce, in the order of their numbers in NCCL's plug-ins.
inline constexpr std::array network_types{
    DataType::int8,    DataType::uint8,    DataType::int32,       DataType::uint32,
    DataType::int64,   DataType::uint64,   DataType::float16,     DataType::float32,
    DataType::float64, DataType::bfloat16, DataType::float8_e4m3, DataType::float8_e5m2};
inline constexpr int network_type_count = int(network_types.size());

/// Returns the number of an element type in NCCL's plug-ins, or -1.
template <class T>
constexpr int network_type() {
  if constexpr (has_data_type<T>) {
    for (int n = 0; n < network_type_count; ++n) {
      if (network_types[std::size_t(n)] == data_type_of<T>) return n;
    }
  }
  return -1;
}

/// Operation of a network between the heads of a rail.
enum class NetworkMove { all_reduce, all_gather, reduce_scatter };
template <class Op>
inline constexpr NetworkMove network_move_of =
    is_one_of<Op, AllGather>       ? NetworkMove::all_gather
    : is_one_of<Op, ReduceScatter> ? NetworkMove::reduce_scatter
                                   : NetworkMove::all_reduce;

/// What a network does in one step of a wire. The step's size carries it, so that the proxy needs
/// no other word of a call.
///
/// A step of an all-gather or a reduce-scatter is the part of one host: that host alone sends its
/// data, or gets its sum.
struct NetworkStep {
  int type = 0;
  NetworkOp op = NetworkOp::sum;
  Index bytes = 0;
  NetworkMove move = NetworkMove::all_reduce;
  int host = 0;  // whose part it is; 0 of an all-reduce

  static constexpr int host_bit = 36, type_bit = 52, op_bit = 57, move_bit = 59;
  static constexpr int max_hosts = 1 << (type_bit - host_bit);
  /// Returns the part of a size that names the reduction.
  CCL_HD static constexpr Word tag(int type, NetworkOp op) {
    return Word(type) << type_bit | Word(op) << op_bit;
  }
  /// Returns the part of a size that names an operation on the part of one host.
  CCL_HD static constexpr Word window(NetworkMove move, int host) {
    return Word(move) << move_bit | Word(host) << host_bit;
  }
  static constexpr NetworkStep of(Word size) {
    return {int(size >> type_bit & 0x1f), NetworkOp(size >> op_bit & 3),
            Index(size & ((Word{1} << host_bit) - 1)), NetworkMove(size >> move_bit & 3),
            int(size >> host_bit & Word(max_hosts - 1))};
  }
};
/// Tag of the steps of a reduction; 0 for elements and functors that no network knows.
template <class R>
inline constexpr Word network_tag =
    network_type<typename R::Type>() < 0 || !network_has<typename R::Functor>
        ? 0
        : NetworkStep::tag(network_type<typename R::Type>(), network_op<typename R::Functor>());
/// Returns the tag of a reduction, which the reduction itself may hold.
template <class R>
CCL_HD constexpr Word network_tag_of(const R& reduction) {
  if constexpr (requires { reduction.network_tag; }) {
    return reduction.network_tag;
  } else {
    return network_tag<R>;
  }
}

}  // namespace ccl::detail

CCL_ANY_SPACE_END
