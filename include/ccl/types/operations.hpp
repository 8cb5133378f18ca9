#pragma once

#include <cuda/std/type_traits>

namespace ccl {

// Tags of the collective operations.
// - `reduces`: elements are combined, so their type matters. The other operations move bytes.
// - `rooted`: one rank is the root.
// - `cuts`: shares are cut from one message, and its layout is `split` over wires. Otherwise each
//   share is a message of its own.

/// Reduces the buffers of all ranks; every rank gets the result.
struct AllReduce {
  static constexpr const char* name = "all_reduce";
  static constexpr bool reduces = true, rooted = false, cuts = true;
};
/// Gathers the shares of all ranks in rank order on every rank.
struct AllGather {
  static constexpr const char* name = "all_gather";
  static constexpr bool reduces = false, rooted = false, cuts = false;
};
/// Reduces the buffers of all ranks; rank r gets share r of the result.
struct ReduceScatter {
  static constexpr const char* name = "reduce_scatter";
  static constexpr bool reduces = true, rooted = false, cuts = false;
};
/// Copies the root's buffer to every rank.
struct Broadcast {
  static constexpr const char* name = "broadcast";
  static constexpr bool reduces = false, rooted = true, cuts = false;
};
/// Reduces the buffers of all ranks; the root gets the result.
struct Reduce {
  static constexpr const char* name = "reduce";
  static constexpr bool reduces = true, rooted = true, cuts = false;
};
/// Sends share p of each rank's buffer to rank p; all shares have the same size.
struct AllToAll {
  static constexpr const char* name = "all_to_all";
  static constexpr bool reduces = false, rooted = false, cuts = false;
};
/// Sends a message of its own size from each rank to each rank.
struct AllToAllV {
  static constexpr const char* name = "all_to_all_v";
  static constexpr bool reduces = false, rooted = false, cuts = false;
};
/// Gathers the shares of all ranks in rank order on the root.
struct Gather {
  static constexpr const char* name = "gather";
  static constexpr bool reduces = false, rooted = true, cuts = false;
};
/// Sends share p of the root's buffer to rank p.
struct Scatter {
  static constexpr const char* name = "scatter";
  static constexpr bool reduces = false, rooted = true, cuts = false;
};
/// Sends and receives messages between pairs of ranks.
struct SendRecv {
  static constexpr const char* name = "send_recv";
  static constexpr bool reduces = false, rooted = false, cuts = false;
};
/// All-reduce of the rows of a matrix. One block holds each row whole; see `Fused`.
struct AllReduceRows {
  static constexpr const char* name = "all_reduce_rows";
  static constexpr bool reduces = true, rooted = false, cuts = false;
};

/// True if `Op` is one of `Ops`.
template <class Op, class... Ops>
inline constexpr bool is_one_of = (cuda::std::is_same_v<Op, Ops> || ...);

}  // namespace ccl
