#pragma once

#include <vector>

#include "options.hpp"
#include "verify.hpp"

namespace ccl::perf {

/// The sizes that the options ask for, in bytes; of those that are one in elements, the first.
std::vector<Index> sizes(const Options& options, DataType type, int ranks);
/// Bytes of the largest send or receive buffer of any rank.
Index largest_buffer(const Options& options, int ranks);
/// A call of that shape, still without buffers and stream.
Call make_call(const Shape& shape, DataType type, RedOp redop);

}  // namespace ccl::perf
