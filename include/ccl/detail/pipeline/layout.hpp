#pragma once

#include <ccl/types/word.hpp>

#include <span>

namespace ccl::detail {

// How many elements go from stage to stage of a `Pipeline`, and where they lie in between. Numbers
// only; all of them are the same on all ranks, but for `StageShape::rank` and offsets that follow
// from it.

/// What becomes of `n` elements in a stage over R ranks.
enum class Flow : char {
  keeps,      // n (AllReduce)
  scatters,   // n / R (ReduceScatter)
  gathers,    // n * R (AllGather)
  exchanges,  // n, in R blocks that change places (AllToAll)
  maps,       // n of another type
};

struct StageShape {
  Flow flow = Flow::keeps;
  int ranks = 1, rank = 0;            // of the stage's level, and this one's number there
  Index in_bytes = 1, out_bytes = 1;  // of an element
};

/// Where a stage's result lies: so many bytes into the pass's output, or in one of two buffers of
/// scratch.
struct BufferOffset {
  enum Where : char { output, first, second } where = output;
  Index at = 0;  // bytes; of the output only
};

constexpr int max_stages = 32;

/// Bytes of the two buffers.
struct Buffers {
  Index first = 0, second = 0;
};

/// The least number of elements of the input that every stage divides without a rest.
Index min_count(std::span<const StageShape> stages);
/// Elements that `count` become, a multiple of `min_count`; below 0 if no number says how many.
Index count_after(std::span<const StageShape> stages, Index count);
/// Where results of `count` elements lie; one place for each stage, the last one's the output's
/// begin. As many stages as can work in place at the end do so in the output; so may the first one
/// or ones, where what follows them goes into scratch.
Buffers place_results(std::span<const StageShape> stages, Index count,
                      std::span<BufferOffset> places);

/// How a call goes through a pipeline: so many elements at once, from buffer to buffer or staged,
/// that is copied into scratch before and out of it afterwards.
struct Passes {
  Index unit = 1;      // `min_count`
  Index straight = 0;  // elements that go from the caller's buffer to the caller's buffer
  Index straight_step = 0, staged_step = 0;  // of these, and of the rest, in one pass; both in
                                             // multiples of `unit`; 0: not one unit fits
};

/// `keeps_place`: element i of the output stems from the inputs' element i alone. A staged pass is
/// then of neighboring elements; else of some of each of the `unit` blocks that stages cut the
/// message into.
Passes plan_passes(std::span<const StageShape> stages, Index count, bool keeps_place,
                   Index scratch_bytes);

/// Scratch of a staged pass of `count` elements: its input, its output, the stages' buffers.
struct StagedPass {
  Index output = 0, buffers = 0, end = 0;  // bytes from the begin of scratch
};
StagedPass staged_pass(std::span<const StageShape> stages, Index count, bool keeps_place);

/// Every buffer in scratch begins at a multiple of this.
constexpr Index scratch_line = 256;
constexpr Index in_scratch_lines(Index bytes) {
  return (bytes + scratch_line - 1) / scratch_line * scratch_line;
}

}  // namespace ccl::detail
