#include <ccl/detail/pipeline/layout.hpp>

#include <array>
#include <vector>

#include "support/catch.hpp"

// Counts and places of a pipeline's stages, as numbers: every rank of every level.
using namespace ccl;
using namespace ccl::detail;

namespace {

StageShape stage(Flow flow, int ranks, int rank, Index bytes) {
  return {flow, ranks, rank, bytes, bytes};
}
StageShape map(Index from, Index to) {
  return {Flow::maps, 1, 0, from, to};
}
Index after(const StageShape& s, Index n) {
  return count_after({&s, 1}, n);
}

/// Returns the defect of a layout: a stage that does not replace its input overwrites it, or writes
/// beyond its buffer. Empty if there is none.
std::string check_places(const std::vector<StageShape>& stages, Index count, bool in_place) {
  std::vector<BufferOffset> places(stages.size());
  const Buffers used = place_results(stages, count, places);
  const Index total = count_after(stages, count) * stages.back().out_bytes;
  struct Run {
    int where;
    Index begin, end;
  };
  const Index out = 0, first = 1, second = 2;
  Run from{in_place ? int(out) : 3, 0, count * stages[0].in_bytes};
  Index n = count;
  for (std::size_t i = 0; i < stages.size(); ++i) {
    const StageShape& s = stages[i];
    const Index m = after(s, n), bytes = m * s.out_bytes;
    const int where = places[i].where == BufferOffset::output  ? int(out)
                      : places[i].where == BufferOffset::first ? int(first)
                                                               : int(second);
    const Run to{where, places[i].at, places[i].at + bytes};
    const Index most = where == out ? total : where == first ? used.first : used.second;
    if (to.begin < 0 || to.end > most) return "beyond its buffer";
    if (to.where == from.where && to.begin < from.end && from.begin < to.end) {
      // Places of the collectives: ReduceScatter and AllGather use the place of this rank's share.
      Index begin = from.begin;
      if (s.flow == Flow::scatters) begin += s.rank * bytes;
      if (s.flow == Flow::gathers) begin -= s.rank * n * s.in_bytes;
      const bool may = s.flow != Flow::exchanges && s.in_bytes == s.out_bytes;
      if (!may || begin != to.begin) return "over its input";
    }
    from = to;
    n = m;
  }
  return places.back().where == BufferOffset::output && places.back().at == 0 ? ""
                                                                              : "not in the output";
}

}  // namespace

TEST_CASE("pipeline layout: the least count is what every stage divides") {
  using S = StageShape;
  const S half = stage(Flow::scatters, 2, 0, 4), third = stage(Flow::scatters, 3, 0, 4);
  const S twice = stage(Flow::gathers, 2, 0, 4), six = stage(Flow::exchanges, 6, 0, 4);
  CHECK(min_count(std::array{half, third}) == 6);
  CHECK(min_count(std::array{twice, half, third}) == 3);
  CHECK(min_count(std::array{twice, half}) == 1);
  CHECK(min_count(std::array{half, six}) == 12);
  CHECK(min_count(std::array{twice, six}) == 3);
  CHECK(min_count(std::array{map(4, 2)}) == 1);
  CHECK(count_after(std::array{half, third, twice}, 60) == 20);
  CHECK(count_after(std::array{twice}, Index{1} << 62) < 0);
}

TEST_CASE("pipeline layout: no stage writes over what it reads, and what can be is in the output") {
  const std::vector<Index> counts{24, 48, 24 * 128};
  for (int hosts : {1, 2, 3}) {
    for (int locals : {1, 2, 4}) {
      for (int host = 0; host < hosts; ++host) {
        for (int local = 0; local < locals; ++local) {
          const auto in = [&](Flow flow, Index bytes) { return stage(flow, locals, local, bytes); };
          const auto out = [&](Flow flow, Index bytes) { return stage(flow, hosts, host, bytes); };
          const std::vector<std::vector<StageShape>> kept{
              {in(Flow::scatters, 4), out(Flow::keeps, 4), in(Flow::gathers, 4)},
              {in(Flow::scatters, 4), map(4, 2), out(Flow::keeps, 2), map(2, 4),
               in(Flow::gathers, 4)},
              {in(Flow::scatters, 4), out(Flow::scatters, 4), out(Flow::gathers, 4),
               in(Flow::gathers, 4)},
              {map(4, 4), in(Flow::scatters, 4), map(4, 4), in(Flow::gathers, 4), map(4, 4)},
              {map(4, 2), in(Flow::keeps, 2), map(2, 8), out(Flow::keeps, 8), map(8, 4)},
              {map(4, 1), in(Flow::scatters, 1), in(Flow::gathers, 1), map(1, 4)}};
          const std::vector<std::vector<StageShape>> moved{
              {in(Flow::gathers, 4), out(Flow::gathers, 4)},
              {in(Flow::scatters, 4), out(Flow::scatters, 4)},
              {in(Flow::exchanges, 4), map(4, 2), out(Flow::exchanges, 2)},
              {in(Flow::gathers, 4), map(4, 8), out(Flow::gathers, 8), map(8, 2)},
              {out(Flow::scatters, 8), map(8, 4), in(Flow::gathers, 4), in(Flow::scatters, 4)}};
          for (const Index n : counts) {
            INFO(hosts << " x " << locals << ", host " << host << ", local " << local);
            for (std::size_t p = 0; p < kept.size(); ++p) {
              INFO("pipeline " << p << ", count " << n);
              CHECK(check_places(kept[p], n, false) == "");
              CHECK(check_places(kept[p], n, true) == "");
            }
            for (std::size_t p = 0; p < moved.size(); ++p) {
              INFO("moving pipeline " << p << ", count " << n);
              CHECK(check_places(moved[p], n, false) == "");
            }
          }
          std::vector<BufferOffset> places(5);
          const Buffers none = place_results(kept[0], 24, {places.data(), 3});
          CHECK(none.first + none.second == 0);
          const Buffers narrow = place_results(kept[1], 24, places);
          CHECK(narrow.first == 24 / locals * 2);  // what travels between hosts
          CHECK(narrow.second == 0);
          CHECK(places[0].at == local * (24 / locals) * 4);
          const Buffers all = place_results(moved[0], 24, {places.data(), 2});
          CHECK(all.first + all.second == 0);
        }
      }
    }
  }
}

TEST_CASE("pipeline layout: passes hold no more than the scratch, in whole lines if they can") {
  const std::vector<StageShape> narrow{stage(Flow::scatters, 4, 1, 4), map(4, 2),
                                       stage(Flow::keeps, 3, 0, 2), map(2, 4),
                                       stage(Flow::gathers, 4, 1, 4)};
  for (const Index count : {Index{4}, Index{5}, Index{1000}, Index{1001}, Index{5'000'003}}) {
    const Passes p = plan_passes(narrow, count, true, 65536);
    INFO(count);
    CHECK(p.unit == 4);
    CHECK(p.straight % 4 == 0);
    CHECK(p.straight <= count);
    CHECK(count - p.straight < (count < 100'000 ? count + 1 : 4 * 128));
    CHECK(p.straight_step % (4 * 128) == 0);
    CHECK(p.straight_step / 4 * 2 <= 65536);
    CHECK(staged_pass(narrow, p.staged_step, true).end <= 65536);
  }
  CHECK(plan_passes(narrow, 1000, true, 65536).straight == 1000);
  CHECK(plan_passes(narrow, 1001, true, 65536).straight == 0);
  CHECK(plan_passes(narrow, 1001, true, 16).staged_step == 0);
  // A pipeline without scratch takes the message whole.
  const std::vector<StageShape> plain{stage(Flow::scatters, 4, 1, 4),
                                      stage(Flow::gathers, 4, 1, 4)};
  CHECK(plan_passes(plain, Index{1} << 40, true, 65536).straight_step == Index{1} << 40);
  const std::vector<StageShape> shares{stage(Flow::scatters, 2, 1, 4),
                                       stage(Flow::scatters, 3, 1, 4)};
  CHECK(plan_passes(shares, 600, false, 65536).straight == 600);
  const Passes columns = plan_passes(shares, 600'000, false, 65536);
  CHECK(columns.straight == 0);
  CHECK(columns.staged_step % 6 == 0);
  CHECK(staged_pass(shares, columns.staged_step, false).end <= 65536);
}
