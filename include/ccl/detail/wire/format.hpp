#pragma once

#include <ccl/detail/base/bytes.hpp>
#include <ccl/detail/lanes/pair_lane.hpp>
#include <ccl/detail/numeric/reduction.hpp>
#include <ccl/detail/numeric/user_buffer.hpp>
#include <ccl/proto/protocol.hpp>
#include <ccl/types/macros.hpp>
#include <ccl/types/wire.hpp>

CCL_ANY_SPACE_BEGIN

namespace ccl::detail {

/// Layout of the elements of `R` on a wire of protocol `Proto` that lanes of `Group` fill or drain.
///
/// Groups of one CPU lane move slices of plain protocols (Simple) as arrays of elements. All other
/// groups move tiles.
template <LaneGroup Group, Protocol<Group> Proto, class R, int Align>
struct WireFormat {
  using T = typename R::Type;
  using Data = UserBuffer<T, Align>;
  using Lane = typename Proto::template Lane<Group, Element<T>::words_per_cell>;
  using Pair = PairLane<Proto, Group, T>;
  static constexpr bool contiguous =
      Group::width == 1 && !Proto::carries_flags && LiesPlainly<Proto>;
  static constexpr int tile_elements = Lane::tile_cells * Data::per_cell;
  static constexpr Index tile_bytes = Index{Lane::tile_packets} * Index{sizeof(Packet)};
  /// Minimum size of a slice in bytes. With a smaller slice no step completes.
  static constexpr Index min_slice_bytes = contiguous ? Index{sizeof(T)} : tile_bytes;

  /// Elements in a slice of `steps` slots.
  CCL_HD static constexpr Index slice_capacity(const Wire& wire, int steps) {
    return slice_capacity(wire.slot_packets, steps);
  }
  CCL_HD static constexpr Index slice_capacity(int slot_packets, int steps) {
    const Index packets = Index{slot_packets} * steps;
    if constexpr (contiguous) return packets * Index{sizeof(Packet)} / Index{sizeof(T)};
    return packets / Lane::tile_packets * tile_elements;
  }
  /// Bytes that n elements take on the wire.
  CCL_HD static Word wire_bytes(int n) {
    if constexpr (contiguous) return Word(n) * sizeof(T);
    if constexpr (!Proto::carries_flags && Lane::tile_packets == Group::width) {
      return Word(div_up(n, tile_elements / Group::width)) * sizeof(Packet);  // a packet per lane
    }
    return Word(div_up(n, tile_elements)) * Word(tile_bytes);
  }
};

/// Parts of a step on one tile, in the order in which a lane does them. A value: the step is known
/// at run time. `FixedStep`: it is known to the compiler.
struct StepParts {
  template <auto Part>
  static constexpr bool may = true;

  bool recv = false;     // take the tiles that the wires in have delivered
  bool own = false;      // load the tile of this rank's own data
  bool out = false;      // store the result in the user's memory
  bool send = false;     // store the result in the slots of the wires out
  bool post_op = false;  // finish the reduction before the result leaves
};
template <StepParts Step>
struct FixedStep {
  static constexpr bool recv = Step.recv, own = Step.own, out = Step.out, send = Step.send,
                        post_op = Step.post_op;
  template <auto Part>
  static constexpr bool may = Step.*Part;
};
/// True for steps that finish what a network has reduced, without data of this rank.
template <class Step>
inline constexpr bool only_finishes = false;
template <StepParts Step>
inline constexpr bool only_finishes<FixedStep<Step>> = Step.recv && Step.post_op && !Step.own;
/// False if the compiler knows that steps of type `Step` lack a part.
template <class Step, bool StepParts::*Part>
inline constexpr bool may = Step::template may<Part>;

}  // namespace ccl::detail

CCL_ANY_SPACE_END
