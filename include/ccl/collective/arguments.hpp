#pragma once

#include <ccl/communicator.hpp>
#include <ccl/plan.hpp>

#include <cstddef>

namespace ccl::detail {

// Checks of arguments that need no other rank. Errors name the rank and the value.

Result<void> check_buffer(const Communicator& comm, const char* what, const void* buffer,
                          Index count, Index element_bytes);
Result<void> check_root(const Communicator& comm, int root);
/// `op` does not run in place.
Result<void> check_apart(const Communicator& comm, const char* op, const void* send,
                         const void* recv, Index bytes);
/// One count or offset for each rank.
Result<void> check_counts(const Communicator& comm, std::size_t counts);

Result<void> check_plan(const Communicator& comm, const Plan& plan);

}  // namespace ccl::detail
