#pragma once

#include <ccl/ccl.hpp>

#include "nccl/abi/call.hpp"

namespace ccl::detail::nccl {

/// One of NCCL's reductions of elements of `T`. Defined in reduce.cpp, which is compiled once for
/// each operation and type.
template <class Op, class Algo, class T>
Result<void> reduce(const Collective<Op, Algo>& one, const Call& call);

}  // namespace ccl::detail::nccl
