#pragma once

#include <ccl/comm/communicator.hpp>
#include <ccl/types/plan.hpp>

#include <cstddef>
#include <string>

namespace ccl::detail {

// Checks of arguments that need no other rank. Errors name the rank and the value.

/// A buffer of `runs` times `count` elements.
Result<void> check_buffer(const Communicator& comm, const char* what, const void* buffer,
                          Index count, Index element_bytes, Index runs = 1);
/// The buffers of one call, in runs of `count` elements. A side of 0 runs is not checked.
struct CallBuffers {
  const void* send;
  int send_runs;
  const void* recv;
  int recv_runs;
  Index count, element_bytes;
  /// Runs from `recv` to the place where `send` begins in place.
  int in_place = 0;
  bool apart = false;  // `op` does not run in place
};
/// Checks that the buffers hold their elements and lie apart or in place.
Result<void> check_buffers(const Communicator& comm, const char* op, const CallBuffers& buffers);
/// Both are multiples of `align`, which a GPU's loads want of elements.
Result<void> check_aligned(const Communicator& comm, const void* send, const void* recv, int align);
Result<void> check_root(const Communicator& comm, int root);
/// `op` does not run in place.
Result<void> check_apart(const Communicator& comm, const char* op, const void* send,
                         const void* recv, Index bytes);
/// What `op` sends from `send` and gets at `recv`, which lie apart or as it says: `in_place` is
/// where `send` begins then. Buffers of no bytes lie anywhere.
Result<void> check_overlap(const Communicator& comm, const char* op, const void* send,
                           Index send_bytes, const void* recv, Index recv_bytes,
                           const void* in_place);
struct MessageTable;
/// Nothing of `op` arrives where something else does, or where something leaves from, except this
/// rank's message to itself, which may stay in place. Messages of no bytes lie anywhere.
Result<void> check_overlap(const Communicator& comm, const char* op, const MessageTable& table);
/// Where `count` elements begin in a buffer.
Result<void> check_offset(const Communicator& comm, const char* what, Index offset, Index count,
                          Index element_bytes);
/// One count or offset for each rank.
Result<void> check_counts(const Communicator& comm, std::size_t counts);

/// `Errc::not_supported` if a composition was made for the other kind of rank.
Result<void> check_side(const Communicator& comm, const std::string& name, bool cpus, bool gpus);

Result<void> check_plan(const Communicator& comm, const Plan& plan);

}  // namespace ccl::detail
