#include <ccl/collective.hpp>
#include <ccl/proto/simple.hpp>
#include <ccl/transport/loopback.hpp>

#include <vector>

#include "support/catch.hpp"
#include "support/on_ranks.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
using Counted = Collective<AllToAllV, Pairwise, Simple, LoopbackTransport>;

std::vector<Result<void>> on_ranks(int ranks, const RankBody& body) {
  Config config;
  config.timeout_s = 30;
  return test::on_ranks(ranks, config, body);
}
int rows_for(int from, int to, int turn) {
  return (from * 3 + to + turn) % 5;
}
}  // namespace

TEST_CASE("counted: rows between CPU ranks, by counts that change from call to call") {
  for (const int ranks : {1, 4}) {
    for (const Index row : {Index{3}, Index{600}}) {  // packed, and rows apart
      const auto results = on_ranks(ranks, [&](const Communicator& comm) -> Result<void> {
        CCL_TRY(const auto all_to_all_v, Counted::create(comm));
        const int stride = 4, me = comm.rank();
        std::vector<int> counts(std::size_t(ranks), 0), got(std::size_t(ranks), -1);
        std::vector<int> list(std::size_t(ranks * stride));
        for (int i = 0; i < ranks * stride; ++i) list[std::size_t(i)] = ranks * stride - 1 - i;
        std::vector<float> from(std::size_t(row * ranks * stride)), to(from.size());
        std::vector<int> side(std::size_t(ranks * stride)), sides(side.size(), -1);
        for (std::size_t i = 0; i < side.size(); ++i) side[i] = me * 1000 + int(i);
        for (int turn = 0; turn < 5; ++turn) {
          for (int p = 0; p < ranks; ++p) counts[std::size_t(p)] = rows_for(me, p, turn);
          for (std::size_t i = 0; i < from.size(); ++i) from[i] = float(me * 100000 + int(i));
          to.assign(to.size(), -1.f);
          CountedRows rows;
          rows.row = row;
          rows.send_counts = counts.data();
          rows.send_stride = rows.recv_stride = stride;
          rows.recv_counts = got.data();
          if (row == 600) {
            rows.send_rows = list.data();
            rows.send_side = side.data();
            rows.recv_side = sides.data();
            rows.side_bytes = sizeof(int);
          }
          CCL_CHECK(all_to_all_v.counted(from.data(), to.data(), rows));
          for (int p = 0; p < ranks; ++p) {
            const int n = rows_for(p, me, turn);
            if (got[std::size_t(p)] != n) return fail(Errc::internal, "a count");
            for (int i = 0; i < n && row == 600; ++i) {
              const int listed = ranks * stride - 1 - (me * stride + i);
              if (sides[std::size_t(p * stride + i)] != p * 1000 + listed) {
                return fail(Errc::internal, "what goes with a row");
              }
            }
            for (Index i = 0; i < row * stride; ++i) {
              Index at = me * stride + i / row;
              if (row == 600) at = ranks * stride - 1 - at;
              const float want = i < n * row ? float(p * 100000 + int(at * row + i % row)) : -1.f;
              if (to[std::size_t(p * stride * row + i)] != want) {
                return fail(Errc::internal, "an element");
              }
            }
          }
        }
        return comm.ranks() == 1 ? Result<void>{}
                                 : all_to_all_v.counted(
                                       from.data(), to.data(),
                                       {row, counts.data(), stride, nullptr, got.data(), stride});
      });
      for (const auto& result : results) {
        INFO((result ? "" : result.error().message()));
        REQUIRE(result.has_value());
      }
    }
  }
}

TEST_CASE("counted: a CPU rank that sends nothing names no room for it") {
  const auto results = on_ranks(2, [&](const Communicator& comm) -> Result<void> {
    CCL_TRY(const auto all_to_all_v, Counted::create(comm));
    const int stride = comm.rank() == 0 ? 0 : 3;
    const std::vector<int> counts{stride, 0}, from(2 * 3, 7);
    std::vector<int> got(2, -1), to(2 * 3, -1);
    CCL_CHECK(all_to_all_v.counted(from.data(), to.data(),
                                   {1, counts.data(), stride, nullptr, got.data(), 3}));
    if (comm.rank() == 1) return {};
    CHECK(got == std::vector<int>{0, 3});
    CHECK(to == std::vector<int>{-1, -1, -1, 7, 7, 7});
    return {};
  });
  for (const auto& result : results) {
    INFO((result ? "" : result.error().message()));
    CHECK(result.has_value());
  }
}

TEST_CASE("counted: a count beyond the stride fails with overflow, on CPU ranks") {
  const auto results = on_ranks(3, [&](const Communicator& comm) -> Result<void> {
    CCL_TRY(const auto all_to_all_v, Counted::create(comm));
    std::vector<int> counts{1, 1, 1}, got(3);
    if (comm.rank() == 1) counts[2] = 9;
    std::vector<int> from(3 * 8), to(3 * 8, -1);
    const auto done =
        all_to_all_v.counted(from.data(), to.data(), {2, counts.data(), 4, nullptr, got.data(), 4});
    for (const int x : to) {
      if (x != -1 && x != 0) return fail(Errc::internal, "an element");
    }
    return done;
  });
  REQUIRE(!results[1]);
  CHECK(results[1].error().code == Errc::overflow);
  CHECK(results[1].error().peer == 2);
  CHECK(results[1].error().what.find("rank 1 has 9 rows for rank 2") != std::string::npos);
  CHECK(results[1].error().what.find("room for 4") != std::string::npos);
  CHECK(!results[0]);
  CHECK(!results[2]);
}

TEST_CASE("counted: arguments that can never work") {
  const auto results = on_ranks(1, [&](const Communicator& comm) -> Result<void> {
    CCL_TRY(const auto all_to_all_v, Counted::create(comm));
    int count = 1, got = 0, list = 0;
    float a = 1, b = 2;
    CHECK(all_to_all_v.counted(&a, &b, {0, &count, 1, nullptr, &got, 1}).error().code ==
          Errc::invalid_argument);
    CHECK(
        all_to_all_v.counted(&a, &b, {Index{1} << 62, &count, 1, nullptr, &got, 1}).error().code ==
        Errc::invalid_argument);
    CHECK(all_to_all_v.counted(&a, &b, {1, nullptr, 1, nullptr, &got, 1}).error().code ==
          Errc::invalid_argument);
    CHECK(all_to_all_v.counted(&a, &b, {1, &count, 1, &list, &got, 1}).error().code ==
          Errc::invalid_argument);
    CountedRows sided{1, &count, 1, nullptr, &got, 1, &list, &list, 4};
    CHECK(all_to_all_v.counted(&a, &b, sided).error().code == Errc::invalid_argument);
    CHECK(all_to_all_v.counted(&a, &b, {1, &count, -1, nullptr, &got, 1}).error().code ==
          Errc::invalid_argument);
    CHECK(all_to_all_v.counted(&a, &b, {1, &count, 1, nullptr, &got, 1}).has_value());
    CHECK(b == 1);
    return {};
  });
  REQUIRE(results[0].has_value());
}
