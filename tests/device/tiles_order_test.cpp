// Tiles and their collectives over a model of memory: no execution that release and acquire allow
// shows a lane old data. Then the same code runs with orders removed, which the model must detect.
#include <ccl/device/tiles.hpp>

#include <algorithm>
#include <array>
#include <type_traits>

#include "support/catch.hpp"
#include "support/model_session.hpp"

using namespace ccl;
using namespace ccl::test;
using namespace ccl::test::session;

namespace {

/// Rank 0 sends a tile to rank 1 by the same slot in each launch.
template <class Proto, Promises P = Promises{}>
long tiles(int launches, Word begun = 0) {
  constexpr int size = std::is_same_v<Proto, LL> ? 1 : 3;
  static std::array<std::array<Word, size>, 8> got;
  return explore<1, P>(
      launches,
      [](auto group, const Team& team, int launch, int) {
        using Group = decltype(group);
        TeamSession session{group, team, 0, 1};
        Tiles<Group, Word, TileShape<1, size>, Proto> all{session};
        alignas(16) Word tile[size];
        for (int i = 0; i < size; ++i) tile[i] = value_of(launch, team.rank(), i);
        if (team.rank() == 0) {
          all.send(1, 0, tile);
        } else {
          all.recv(0, 0, tile);
          for (int i = 0; i < size; ++i) got[std::size_t(launch)][std::size_t(i)] = tile[i];
        }
      },
      [launches](const MemoryModel& model) {
        for (int n = 0; n < launches; ++n) {
          for (int i = 0; i < size; ++i) {
            if (model.value_of(got[std::size_t(n)][std::size_t(i)]) != value_of(n, 0, i)) {
              throw OrderError{"a wrong word"};
            }
          }
        }
      },
      begun);
}

/// Reductions that keep the element of one rank, so that elements are only moved.
struct First {
  Word operator()(Word a, Word) const { return a; }
};
struct Last {
  Word operator()(Word, Word b) const { return b; }
};
enum class Kind { all_reduce, reduce, reduce_scatter, all_gather };

/// Both ranks make a collective of tiles by one slot.
template <class Proto, Kind How, class Keep, Promises P = Promises{}>
long collective() {
  constexpr int size = std::is_same_v<Proto, LL> ? 1 : 3, most = ranks * size;
  constexpr int kept = std::is_same_v<Keep, First> ? 0 : 1;
  static std::array<std::array<Word, most>, ranks> got;
  return explore<1, P>(
      1,
      [](auto group, const Team& team, int, int) {
        using Group = decltype(group);
        using Block = Tiles<Group, Word, TileShape<1, size>, Proto, 2>;
        TeamSession session{group, team, 0, 1};
        Block all{session};
        const int me = team.rank();
        alignas(16) Word tile[size + 1], out[most + 2];
        for (int i = 0; i < size; ++i) tile[i] = value_of(0, me, i);
        if constexpr (How == Kind::all_reduce) all.all_reduce(0, tile, Keep{});
        if constexpr (How == Kind::reduce) all.reduce(1, 0, tile, Keep{});
        if constexpr (How == Kind::reduce_scatter) all.reduce_scatter(0, tile, out, Keep{});
        if constexpr (How == Kind::all_gather) all.all_gather(0, tile, out);
        constexpr bool in_tile = How == Kind::all_reduce || How == Kind::reduce;
        for (int i = 0; i < most; ++i) {
          got[std::size_t(me)][std::size_t(i)] = in_tile ? tile[i % size] : out[i];
        }
      },
      [](const MemoryModel& model) {
        for (int me = How == Kind::reduce ? 1 : 0; me < ranks; ++me) {
          const int begin = How == Kind::reduce_scatter ? 2 * me : 0;
          const int count = How == Kind::all_gather       ? most
                            : How == Kind::reduce_scatter ? std::clamp(size - begin, 0, 2)
                                                          : size;
          for (int i = 0; i < count; ++i) {
            const int from = How == Kind::all_gather ? i / size : kept;
            const int at = How == Kind::all_gather ? i % size : begin + i;
            if (model.value_of(got[std::size_t(me)][std::size_t(i)]) != value_of(0, from, at)) {
              throw OrderError{"a wrong word"};
            }
          }
        }
      });
}

/// Cell of a tile that each lane fills and reads: one that another lane of the block moves.
template <int Width, int Size>
constexpr int other_cell(int i) {
  return (i + Size / 2) % Size;
}

/// Blocks of several lanes send two tiles each, which are in memory that their lanes share. A lane
/// writes and reads cells that another lane moves.
template <int Width, class Proto, Promises P = Promises{}>
long block_tiles(long samples = 0) {
  constexpr int tile_count = 2;
  constexpr int size = std::is_same_v<Proto, LL> ? Width : Width == 2 ? 10 : 20;
  alignas(16) static Word tile[ranks][tile_count][size];
  static std::array<std::array<Word, size>, tile_count> got;
  return explore<Width, P>(
      1,
      [](auto group, const Team& team, int, int) {
        using Group = decltype(group);
        const int me = team.rank();
        if (group.rank() == 0) std::fill_n(&tile[me][0][0], tile_count * size, Word{0});
        TeamSession session{group, team, 0, 1};
        Tiles<Group, Word, TileShape<1, size>, Proto, 2> all{session};
        const auto mine = [&](auto&& f) {  // of this lane
          constexpr int each = (size + Width - 1) / Width;
          const int begin = group.rank() * each, end = std::min(int{size}, begin + each);
          for (int i = begin; i < end; ++i) f(other_cell<Width, size>(i));
        };
        for (int n = 0; n < tile_count; ++n) {
          if (me == 0) {
            mine([&](int i) { tile[0][n][i] = value_of(n, 0, i); });
            all.send(1, n, tile[0][n]);
          } else {
            all.recv(0, n, tile[1][n]);
            mine([&](int i) { got[std::size_t(n)][std::size_t(i)] = tile[1][n][i]; });
          }
        }
      },
      [](const MemoryModel& model) {
        for (int n = 0; n < tile_count; ++n) {
          for (int i = 0; i < size; ++i) {
            if (model.value_of(got[std::size_t(n)][std::size_t(i)]) != value_of(n, 0, i)) {
              throw OrderError{"a wrong word"};
            }
          }
        }
      },
      0, {}, samples);
}

/// Random executions: those of 16 lanes are too many to try all.
constexpr long samples = 2000;

}  // namespace

TEST_CASE("no execution of tiles of blocks of several lanes shows old data") {
  const long ll = block_tiles<2, LL>(), ll128 = block_tiles<2, LL128>();
  const long pairs = block_tiles<8, LL128Pairs>(samples), wide = block_tiles<8, LL>(samples);
  WARN("executions: LL " << ll << ", LL128 " << ll128 << ", LL128Pairs " << pairs
                         << " random ones, LL with 8 lanes " << wide);
  CHECK(ll > 10);
  CHECK(ll128 > 10);
  CHECK(pairs > samples / 10);
  CHECK(wide > samples / 10);
}

TEST_CASE("the model catches a missing order among lanes of a block, and of each protocol") {
  CHECK(flaw([] { block_tiles<2, LL, no_sync>(); }) != "");     // before the second tile
  CHECK(flaw([] { block_tiles<2, LL, no_vote>(); }) != "");     // after a tile
  CHECK(flaw([] { block_tiles<2, LL128, no_sync>(); }) != "");  // data, then the flag
  CHECK(flaw([] { block_tiles<2, LL128, no_release>(); }) != "");
  CHECK(flaw([] { block_tiles<2, LL128, no_acquire>(); }) != "");
  CHECK(flaw([] { block_tiles<8, LL128Pairs, no_sync>(samples); }) != "");
  CHECK(flaw([] { block_tiles<8, LL128Pairs, no_release>(samples); }) != "");
  CHECK(flaw([] { block_tiles<8, LL128Pairs, no_acquire>(samples); }) != "");
  CHECK(flaw([] { block_tiles<8, LL, no_sync>(samples); }) != "");
}

TEST_CASE("no execution of collectives of tiles shows old data") {
  long ll = 0, ll128 = 0;
  const auto add = []<class Proto>(long& all, Proto) {
    all += collective<Proto, Kind::all_reduce, First>();
    all += collective<Proto, Kind::all_reduce, Last>();
    all += collective<Proto, Kind::reduce, First>();
    all += collective<Proto, Kind::reduce, Last>();
    all += collective<Proto, Kind::reduce_scatter, First>();
    all += collective<Proto, Kind::reduce_scatter, Last>();
    all += collective<Proto, Kind::all_gather, First>();
  };
  add(ll, LL{});
  add(ll128, LL128{});
  WARN("executions: LL " << ll << ", LL128 " << ll128);
  CHECK(ll > 10);
  CHECK(ll128 > 10);
}

TEST_CASE("no execution of launches overwrites a packet that is not read") {
  long ll = 0, ll128 = 0;
  for (int launches = 1; launches <= 3; ++launches) {
    ll += tiles<LL>(launches);
    ll128 += tiles<LL128>(launches);
  }
  WARN("executions: LL " << ll << ", LL128 " << ll128);
  CHECK(ll > 10);
  CHECK(ll128 > 10);
}

TEST_CASE("the model catches an order of tiles that is left out") {
  CHECK(flaw([] { collective<LL128, Kind::all_reduce, First, no_release>(); }) != "");
  CHECK(flaw([] { collective<LL128, Kind::all_reduce, First, no_acquire>(); }) != "");
  CHECK(flaw([] { collective<LL128, Kind::reduce, First, no_release>(); }) != "");
  CHECK(flaw([] { collective<LL128, Kind::reduce_scatter, First, no_acquire>(); }) != "");
  CHECK(flaw([] { collective<LL128, Kind::all_gather, First, no_release>(); }) != "");
  CHECK(flaw([] { tiles<LL128, no_release>(3); }) != "");
  CHECK(flaw([] { tiles<LL128, no_acquire>(3); }) != "");
  CHECK(flaw([] { tiles<LL128, no_credit_release>(3); }) != "");
  CHECK(flaw([] { tiles<LL128, no_credit_acquire>(3); }) != "");
  // Packets are written before the peer has begun the launch that frees them.
  CHECK(flaw([] { tiles<LL>(3, 8); }) != "");
  CHECK(flaw([] { tiles<LL128>(3, 8); }) != "");
}
