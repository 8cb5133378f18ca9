#pragma once

#include <ccl/ccl.hpp>

#include <string_view>

#include "nccl/abi/call.hpp"

namespace ccl::detail::nccl {

/// Reductions whose kernels are compiled together. nvcc takes minutes for all of a type.
enum class ReductionPart { plain, scaled };
inline ReductionPart part_of(std::string_view reduction) {
  const bool scaled = reduction == Avg::name || reduction == PreMulSum::name;
  return scaled ? ReductionPart::scaled : ReductionPart::plain;
}

/// One of NCCL's reductions of elements of `T`, of the part `Part`. Defined in reduce.cpp, which is
/// compiled once for each operation and type, and by nvcc once for each part, too.
template <class Op, class Algo, class T, ReductionPart Part>
Result<void> reduce(const Collective<Op, Algo>& one, const Call& call);

}  // namespace ccl::detail::nccl
