#pragma once

#include <cuda/std/type_traits>

namespace ccl {

// Collective operations, as tags. `reduces`: elements are combined, so their type matters; the
// others move bytes. `rooted`: one rank is special. `cuts`: shares are cut from one message, whose
// layout is `split` over wires; those of the others are messages of their own.
struct AllReduce {
  static constexpr const char* name = "all_reduce";
  static constexpr bool reduces = true, rooted = false, cuts = true;
};
struct AllGather {
  static constexpr const char* name = "all_gather";
  static constexpr bool reduces = false, rooted = false, cuts = false;
};
struct ReduceScatter {
  static constexpr const char* name = "reduce_scatter";
  static constexpr bool reduces = true, rooted = false, cuts = false;
};
struct Broadcast {
  static constexpr const char* name = "broadcast";
  static constexpr bool reduces = false, rooted = true, cuts = false;
};
struct Reduce {
  static constexpr const char* name = "reduce";
  static constexpr bool reduces = true, rooted = true, cuts = false;
};
struct AllToAll {
  static constexpr const char* name = "all_to_all";
  static constexpr bool reduces = false, rooted = false, cuts = false;
};
struct AllToAllV {
  static constexpr const char* name = "all_to_all_v";
  static constexpr bool reduces = false, rooted = false, cuts = false;
};
struct Gather {
  static constexpr const char* name = "gather";
  static constexpr bool reduces = false, rooted = true, cuts = false;
};
struct Scatter {
  static constexpr const char* name = "scatter";
  static constexpr bool reduces = false, rooted = true, cuts = false;
};
struct SendRecv {
  static constexpr const char* name = "send_recv";
  static constexpr bool reduces = false, rooted = false, cuts = false;
};
/// An all-reduce of the rows of a matrix, each of which one crew has whole: see `Fused`.
struct AllReduceRows {
  static constexpr const char* name = "all_reduce_rows";
  static constexpr bool reduces = true, rooted = false, cuts = false;
};

/// True if `Op` is one of `Ops`.
template <class Op, class... Ops>
inline constexpr bool is_one_of = (cuda::std::is_same_v<Op, Ops> || ...);

}  // namespace ccl
