#pragma once

#include <ccl/comm/communicator.hpp>
#include <ccl/types/plan.hpp>

#include <cstddef>
#include <string>

namespace ccl::detail {

// Checks of arguments that need no other rank. Errors name the rank and the value.

/// Checks a buffer of `runs` times `count` elements.
Result<void> check_buffer(const Communicator& comm, const char* what, const void* buffer,
                          Index count, Index element_bytes, Index runs = 1);
/// Buffers of one call, in runs of `count` elements. A side of 0 runs is not checked.
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
/// Checks that both buffers are multiples of `align`, because a GPU loads elements at aligned
/// addresses.
Result<void> check_aligned(const Communicator& comm, const void* send, const void* recv, int align);
Result<void> check_root(const Communicator& comm, int root);
/// Checks that the buffers do not overlap, because `op` does not run in place.
Result<void> check_apart(const Communicator& comm, const char* op, const void* send,
                         const void* recv, Index bytes);
/// Checks that the sent and received bytes of `op` lie apart, or that `send` is `in_place`. Buffers
/// of no bytes may lie anywhere.
Result<void> check_overlap(const Communicator& comm, const char* op, const void* send,
                           Index send_bytes, const void* recv, Index recv_bytes,
                           const void* in_place);
struct MessageTable;
/// Checks that no received message overlaps another received or sent message. The message of this
/// rank to itself may stay in place. Messages of no bytes may lie anywhere.
Result<void> check_overlap(const Communicator& comm, const char* op, const MessageTable& table);
/// Checks the offset of `count` elements in a buffer.
Result<void> check_offset(const Communicator& comm, const char* what, Index offset, Index count,
                          Index element_bytes);
/// Checks that there is one count or offset for each rank.
Result<void> check_counts(const Communicator& comm, std::size_t counts);

/// Fails with `Errc::not_supported` if a composition was made for the other kind of rank.
Result<void> check_side(const Communicator& comm, const std::string& name, bool cpus, bool gpus);

Result<void> check_plan(const Communicator& comm, const Plan& plan);

}  // namespace ccl::detail
