#include <ccl/detail/pipeline/layout.hpp>

#include <algorithm>
#include <numeric>

namespace ccl::detail {
namespace {

Index after(const StageShape& stage, Index count) {
  if (stage.flow == Flow::scatters) return count / stage.ranks;
  if (stage.flow == Flow::gathers) return count * stage.ranks;
  return count;
}
/// Returns true if the result may replace the input in its place.
bool replaces(const StageShape& stage) {
  return stage.flow == Flow::keeps ||
         (stage.flow == Flow::maps && stage.in_bytes == stage.out_bytes);
}
/// Returns the largest number of elements that fits `bytes`, if each unit takes `unit_bytes`.
/// Prefers whole lines of each share.
Index step_within(Index unit, Index unit_bytes, Index bytes) {
  const Index units = std::max<Index>(0, bytes) / unit_bytes;
  return (units >= 128 ? units / 128 * 128 : units) * unit;
}

}  // namespace

Index min_count(std::span<const StageShape> stages) {
  Index least = 1, now = 1;
  for (const StageShape& stage : stages) {
    if (stage.flow == Flow::scatters || stage.flow == Flow::exchanges) {
      const Index more = stage.ranks / std::gcd(now, Index{stage.ranks});
      least *= more;
      now *= more;
    }
    now = after(stage, now);
  }
  return least;
}

Index count_after(std::span<const StageShape> stages, Index count) {
  for (const StageShape& stage : stages) {
    Index checked = 0;
    if (__builtin_mul_overflow(count, Index{stage.ranks}, &checked)) return -1;
    count = after(stage, count);
  }
  return count;
}

Buffers place_results(std::span<const StageShape> stages, Index count,
                      std::span<BufferOffset> places) {
  const int last = int(stages.size()) - 1;
  // Places of the last stages, backwards: the place of a stage's input if the stage works in place.
  // A stage that scatters leaves this rank's share at the place from which the stage that gathers
  // takes it.
  const Index total = count_after(stages, count) * stages[std::size_t(last)].out_bytes;
  Index n = count_after(stages, count), at = 0;
  int first = last;  // first stage of those at the end whose results lie in the output
  for (int i = last; i >= 0; --i) {
    const StageShape& stage = stages[std::size_t(i)];
    places[std::size_t(i)] = {BufferOffset::output, at};
    first = i;
    if (stage.flow == Flow::scatters) {
      at -= stage.rank * n * stage.out_bytes;
      n *= stage.ranks;
    } else if (stage.flow == Flow::gathers) {
      n /= stage.ranks;
      at += stage.rank * n * stage.in_bytes;
    } else if (!replaces(stage)) {
      break;
    }
    if (at < 0 || at + n * stage.in_bytes > total) break;
  }
  Buffers used;
  const auto in = [&](BufferOffset::Where where, Index bytes) {
    Index& most = where == BufferOffset::first ? used.first : used.second;
    most = std::max(most, bytes);
    return BufferOffset{where, 0};
  };
  // Places of the other stages, forwards. The result of the first stage, and of stages that replace
  // it, fits into the output until a stage moves it into scratch.
  int stays = 0;
  while (stays + 1 < first && replaces(stages[std::size_t(stays + 1)])) ++stays;
  const bool lent = stays + 1 < first;
  n = count;
  for (int i = 0; i < first; ++i) {
    const StageShape& stage = stages[std::size_t(i)];
    n = after(stage, n);
    const Index bytes = n * stage.out_bytes;
    BufferOffset& place = places[std::size_t(i)];
    if (i > 0 && replaces(stage)) {
      place = places[std::size_t(i - 1)];
      if (place.where != BufferOffset::output) in(place.where, bytes);
      continue;
    }
    const Index share = stage.flow == Flow::scatters ? bytes : 0;
    // In a call in place, a stage that narrows elements would overwrite elements that are not read
    // yet.
    const bool lends = i == 0 && lent && (stage.flow != Flow::maps || replaces(stage));
    if (lends && std::max(bytes, share * stage.ranks) <= total) {
      place = {BufferOffset::output, share * stage.rank};
      continue;
    }
    const bool other = i > 0 && places[std::size_t(i - 1)].where == BufferOffset::first;
    place = in(other ? BufferOffset::second : BufferOffset::first, bytes);
  }
  return used;
}

StagedPass staged_pass(std::span<const StageShape> stages, Index count, bool keeps_place) {
  const StageShape &begin = stages.front(), &end = stages.back();
  BufferOffset places[max_stages];
  const Buffers used = place_results(stages, count, {places, stages.size()});
  StagedPass pass;
  const bool in_place = keeps_place && begin.in_bytes == end.out_bytes;
  pass.output = in_place ? 0 : in_scratch_lines(count * begin.in_bytes);
  pass.buffers = pass.output + in_scratch_lines(count_after(stages, count) * end.out_bytes);
  pass.end = pass.buffers + in_scratch_lines(used.first) + in_scratch_lines(used.second);
  return pass;
}

Passes plan_passes(std::span<const StageShape> stages, Index count, bool keeps_place,
                   Index scratch_bytes) {
  Passes passes;
  const Index unit = passes.unit = min_count(stages);
  const Index each = count / unit;
  BufferOffset places[max_stages];
  // All sizes grow with the count, except for the rounding to lines.
  constexpr Index rounding = 4 * scratch_line;
  const Buffers of_unit = place_results(stages, unit, {places, stages.size()});
  const StageShape &begin = stages.front(), &end = stages.back();
  const Index straight_bytes = of_unit.first + of_unit.second;
  passes.straight_step = straight_bytes == 0
                             ? std::max<Index>(each, 1) * unit
                             : step_within(unit, straight_bytes, scratch_bytes - rounding);
  const bool in_place = keeps_place && begin.in_bytes == end.out_bytes;
  const Index staged_bytes = straight_bytes + count_after(stages, unit) * end.out_bytes +
                             (in_place ? 0 : unit * begin.in_bytes);
  passes.staged_step = step_within(unit, staged_bytes, scratch_bytes - rounding);
  if (!keeps_place) {
    passes.straight = passes.straight_step >= count ? count : 0;
  } else if (unit == 1) {
    passes.straight = count;
  } else if (each * begin.in_bytes >= 65536) {
    passes.straight = each / 128 * 128 * unit;  // shares begin at whole lines
  } else if (each * unit == count) {
    passes.straight = count;
  }
  return passes;
}

}  // namespace ccl::detail
