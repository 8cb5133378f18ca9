#include "reduce.hpp"

#include <ccl/detail/numeric/bulk.hpp>
#include <ccl/detail/numeric/network_step.hpp>

#include <array>

namespace software_collnet {
namespace {

using ccl::detail::network_op_count;
using ccl::detail::network_type_count;
using ccl::detail::network_types;

using Loop = void (*)(void* sum, const void* part, std::size_t count);
template <class Op, class T>
void loop(void* sum, const void* part, std::size_t count) {
  const ccl::detail::Reduction<Op, T> reduction{Op{}, 1};
  ccl::detail::reduce_bulk<ccl::detail::Reduction<Op, T>, 1, false>(reduction, sum, sum, &part,
                                                                    ccl::Index(count));
}
template <class T>
constexpr std::array<Loop, std::size_t(network_op_count)> loops_of() {
  // By NCCL's numbers.
  return {loop<ccl::Sum, T>, loop<ccl::Prod, T>, loop<ccl::Max, T>, loop<ccl::Min, T>};
}

}  // namespace

std::size_t element_bytes(int type) {
  if (type < 0 || type >= network_type_count) return 0;
  return std::size_t(ccl::size_of(network_types[std::size_t(type)]));
}

bool can_reduce(int type, int op) {
  return element_bytes(type) > 0 && op >= 0 && op < network_op_count;
}

void reduce(int type, int op, void* sum, const void* part, std::size_t count) {
  ccl::with_type(network_types[std::size_t(type)], [&]<class T>(ccl::TypeTag<T>) {
    static constexpr auto loops = loops_of<T>();
    loops[std::size_t(op)](sum, part, count);
  });
}

}  // namespace software_collnet
