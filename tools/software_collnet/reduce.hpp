#pragma once

#include <cstddef>

namespace software_collnet {

/// Bytes of an element of a type, by NCCL's number; 0: there is no such type.
std::size_t element_bytes(int type);
/// True if `reduce` knows the type and the reduction, by NCCL's numbers.
bool can_reduce(int type, int op);
/// Combines `count` elements: sum[i] = sum[i] (op) part[i].
void reduce(int type, int op, void* sum, const void* part, std::size_t count);

}  // namespace software_collnet
