#pragma once

#include <ccl/types/word.hpp>

#include <span>

namespace ccl::detail {

// Counts of elements that pass from stage to stage of a `Pipeline`, and the places of intermediate
// results. All ranks compute the same numbers, except `StageShape::rank` and the offsets that
// follow from it.

/// Number of elements that a stage over R ranks makes from `n`.
enum class Flow : char {
  keeps,      // n (AllReduce)
  scatters,   // n / R (ReduceScatter)
  gathers,    // n * R (AllGather)
  exchanges,  // n, in R blocks that are exchanged (AllToAll)
  maps,       // n of another type
};

struct StageShape {
  Flow flow = Flow::keeps;
  int ranks = 1, rank = 0;            // size of the stage's level; number of this rank in it
  Index in_bytes = 1, out_bytes = 1;  // bytes of an element
};

/// Place of a stage's result: at an offset in the pass's output, or in one of two scratch buffers.
struct BufferOffset {
  enum Where : char { output, first, second } where = output;
  Index at = 0;  // offset in bytes; only for `output`
};

constexpr int max_stages = 32;

/// Bytes of the two buffers.
struct Buffers {
  Index first = 0, second = 0;
};

/// Minimum number of input elements that every stage divides without a remainder.
Index min_count(std::span<const StageShape> stages);
/// Number of output elements for `count`, a multiple of `min_count`. Negative if the number
/// overflows.
Index count_after(std::span<const StageShape> stages, Index count);
/// Places the results of `count` elements, one place for each stage. The last place is the start of
/// the output.
///
/// As many last stages as possible work in place in the output. The first stages may also use the
/// output, if the stages after them write to scratch.
Buffers place_results(std::span<const StageShape> stages, Index count,
                      std::span<BufferOffset> places);

/// Passes of a call through a pipeline. A straight pass goes from the caller's buffer to the
/// caller's buffer. A staged pass copies its input into scratch and its output out of it.
struct Passes {
  Index unit = 1;      // `min_count`
  Index straight = 0;  // elements of straight passes
  // Elements of one pass; multiples of `unit`; 0: not one unit fits.
  Index straight_step = 0, staged_step = 0;
};

/// Divides a call into passes. With `keeps_place`, element i of the output depends only on element
/// i of the inputs, and a staged pass takes neighboring elements. Otherwise it takes some elements
/// of each of the `unit` blocks into which stages cut the message.
Passes plan_passes(std::span<const StageShape> stages, Index count, bool keeps_place,
                   Index scratch_bytes);

/// Scratch of a staged pass of `count` elements: input, output and buffers of the stages.
struct StagedPass {
  Index output = 0, buffers = 0, end = 0;  // bytes from the start of the scratch
};
StagedPass staged_pass(std::span<const StageShape> stages, Index count, bool keeps_place);

/// Alignment in bytes of every buffer in scratch.
constexpr Index scratch_line = 256;
constexpr Index in_scratch_lines(Index bytes) {
  return (bytes + scratch_line - 1) / scratch_line * scratch_line;
}

}  // namespace ccl::detail
