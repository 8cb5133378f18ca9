#pragma once

#include <vector>

#include "options.hpp"
#include "verify.hpp"

namespace ccl::perf {

/// Returns the requested sizes in bytes. Of sizes with the same number of elements, only the first
/// is kept.
std::vector<Index> sizes(const Options& options, DataType type, int ranks);
/// Returns the bytes of the largest send or receive buffer of any rank.
Index largest_buffer(const Options& options, int ranks);
/// Returns a call of this shape, without buffers and stream.
Call make_call(const Shape& shape, DataType type, RedOp redop);

}  // namespace ccl::perf
