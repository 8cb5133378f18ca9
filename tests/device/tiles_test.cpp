// Collectives of tiles on CPU lanes.
#include <ccl/device/tiles.hpp>
#include <ccl/element/small_float.hpp>

#include <atomic>
#include <vector>

#include "support/brief.hpp"
#include "support/catch.hpp"
#include "support/device_world.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {

template <int Width>
using Lanes = detail::ThreadLanes<Width>;
using Solo = detail::SoloLane;

constexpr int launches = brief ? 3 : 4;  // both halves of the packets, and one of them again

/// Element of a rank's tile: whole numbers, whose sums are exact in every type here.
template <class T>
T element(int launch, int rank, int slot, int i) {
  return T((launch + 2 * rank + 3 * slot + i) % 7);
}
template <class T>
T sum(int launch, int ranks, int slot, int i) {
  float all = 0;
  for (int r = 0; r < ranks; ++r) all += float(element<T>(launch, r, slot, i));
  return T(all);
}

template <class T>
struct Tile {
  std::vector<Packet> memory;
  T* at;
  explicit Tile(Index elements)
      : memory(std::size_t(elements * Index{sizeof(T)} / 16 + 2)),
        at{reinterpret_cast<T*>(memory.data())} {}
  void fill(int launch, int rank, int slot, int elements) const {
    for (int i = 0; i < elements; ++i) at[i] = element<T>(launch, rank, slot, i);
  }
};

/// Every collective of tiles in two slots, in every launch.
template <class Group, class T, class Shape, class Proto, int MaxRanks = 8>
void all_collectives(int ranks) {
  using Block = Tiles<Group, T, Shape, Proto, MaxRanks>;
  constexpr int n = Shape::elements, blocks = 2, slots = 6;
  if (brief) detail::crowded = true;  // a lane that waits gives its core to another
  INFO(ranks << " ranks, " << Group::width << " lanes, " << n << " elements, " << Proto::name);
  DeviceRequirements needs{.blocks = blocks};
  (std::is_same_v<Proto, LL> ? needs.ll_bytes : needs.ll128_bytes) =
      Block::bytes(slots * blocks, ranks);
  DeviceWorld world{ranks, needs, 16};
  std::atomic<long> wrong{0}, seen{0};
  // One per rank and block; lanes share it.
  std::vector<Tile<T>> own, shares, all;
  for (int i = 0; i < ranks * blocks; ++i) {
    own.emplace_back(n);
    shares.emplace_back(n);
    all.emplace_back(Index{n} * ranks);
  }
  for (int launch = 0; launch < launches; ++launch) {
    world.launch<Group>(blocks, [&](Group group, const Team& team, int block) {
      TeamSession<Group> session{group, team, block, blocks};
      Block tiles{session};
      const int me = team.rank();
      const std::size_t mine = std::size_t(me * blocks + block);
      T* const tile = own[mine].at;
      const auto fill = [&](int slot) {
        group.sync();
        if (group.rank() == 0) own[mine].fill(launch, me, slot, n);
        group.sync();
      };
      const auto check = [&](const T* got, int begin, int count, auto wanted) {
        if (group.rank() != 0) return;
        for (int i = 0; i < count; ++i) {
          wrong += !(float(got[i]) == float(wanted(begin + i)));
          ++seen;
        }
      };
      int slot = block * slots;
      const auto sums = [&](int i) { return sum<T>(launch, ranks, slot, i); };
      fill(slot);
      wrong += !tiles.all_reduce(slot, tile);
      check(tile, 0, n, sums);
      fill(++slot);
      wrong += !tiles.all_reduce(slot, tile, Max{});
      check(tile, 0, n, [&](int i) {
        float most = 0;
        for (int r = 0; r < ranks; ++r)
          most = std::max(most, float(element<T>(launch, r, slot, i)));
        return T(most);
      });
      fill(++slot);
      wrong += !tiles.reduce_scatter(slot, tile, shares[mine].at);
      check(shares[mine].at, me * Block::share_elements(ranks), Block::share_count(me, ranks),
            sums);
      fill(++slot);
      wrong += !tiles.all_gather(slot, tile, all[mine].at);
      for (int p = 0; p < ranks; ++p) {
        check(all[mine].at + p * n, 0, n, [&](int i) { return element<T>(launch, p, slot, i); });
      }
      fill(++slot);
      const int root = (launch + block) % ranks;
      wrong += !tiles.reduce(root, slot, tile);
      if (me == root) check(tile, 0, n, sums);
      fill(++slot);
      if (ranks == 1) return;
      const int from = (me + ranks - 1) % ranks;
      wrong += !tiles.send((me + 1) % ranks, slot, tile);
      group.sync();
      wrong += !tiles.recv(from, slot, tile);
      check(tile, 0, n, [&](int i) { return element<T>(launch, from, slot, i); });
    });
  }
  CHECK(wrong == 0);
  CHECK(seen > 0);
  CHECK_FALSE(world.failed());
}

/// Map x -> a x + b. Composition is associative and does not commute.
struct Affine {
  int a, b;
};
struct Compose {
  static constexpr bool commutative = false;
  CCL_HD Affine operator()(const Affine& f, const Affine& g) const {
    return {f.a * g.a, f.a * g.b + f.b};
  }
};

}  // namespace

TEST_CASE("collectives of tiles are right for 1 to 8 ranks") {
  for (int ranks = 1; ranks <= 8; ranks += brief && ranks > 2 ? 5 : 1) {
    all_collectives<Solo, float, TileShape<4, 5>, LL>(ranks);
    all_collectives<Solo, float, TileShape<16, 16>, LL128>(ranks);
    all_collectives<Solo, bfloat16, TileShape<3, 5>, LL128>(ranks);
    all_collectives<Solo, double, TileShape<1, 1>, LL>(ranks);
  }
  all_collectives<Solo, int, TileShape<8, 8>, LL128, 2>(2);
  all_collectives<Solo, int, TileShape<8, 8>, LL, 3>(3);
}

TEST_CASE("collectives of tiles are right for blocks of several lanes") {
  all_collectives<Lanes<2>, float, TileShape<8, 8>, LL>(2);
  all_collectives<Lanes<8>, float, TileShape<8, 8>, LL128>(3);
  all_collectives<Lanes<8>, bfloat16, TileShape<7, 9>, LL128>(2);
  all_collectives<Lanes<8>, float, TileShape<8, 8>, LL128Pairs>(3);
  all_collectives<Lanes<8>, float, TileShape<9, 31>, LL128Pairs>(2);
  if (!brief) all_collectives<Lanes<8>, bfloat16, TileShape<7, 9>, LL128Pairs, 17>(9);
}

TEST_CASE("collectives of tiles of more than 8 ranks receive a batch at a time") {
  for (const int ranks : {1, 2, 8, 9, 16, 17}) {
    if (brief && ranks != 2 && ranks != 9) continue;
    all_collectives<Solo, float, TileShape<4, 5>, LL, 17>(ranks);
    all_collectives<Solo, int, TileShape<9, 7>, LL128, 72>(ranks);
  }
}

namespace {
template <int MaxRanks>
void reduce_in_order(int ranks) {
  constexpr int n = 6;
  INFO(ranks << " ranks");
  using Block = Tiles<Solo, Affine, TileShape<2, 3>, LL128, MaxRanks>;
  DeviceWorld world{ranks, {.ll128_bytes = Block::bytes(1, ranks)}, 16};
  std::atomic<long> wrong{0};
  const auto of = [](int r, int i) { return Affine{r % 3 - 1, i - r}; };
  for (int launch = 0; launch < launches; ++launch) {
    world.launch<Solo>(1, [&](Solo group, const Team& team, int block) {
      TeamSession<Solo> session{group, team, block, 1};
      alignas(16) Affine tile[n];
      for (int i = 0; i < n; ++i) tile[i] = of(team.rank(), i);
      wrong += !Block{session}.all_reduce(0, tile, Compose{});
      for (int i = 0; i < n; ++i) {
        Affine wanted = of(0, i);
        for (int r = 1; r < ranks; ++r) wanted = Compose{}(wanted, of(r, i));
        wrong += tile[i].a != wanted.a || tile[i].b != wanted.b;
      }
    });
  }
  CHECK(wrong == 0);
}
}  // namespace

TEST_CASE("a tile is reduced in the order of ranks by the user's functor") {
  reduce_in_order<8>(5);
  reduce_in_order<16>(11);
}

TEST_CASE("averages and scaled sums of tiles are those of collectives") {
  constexpr int ranks = 3;
  using Block = Tiles<Solo, float, TileShape<1, 8>, LL>;
  DeviceWorld world{ranks, {.ll_bytes = Block::bytes(2, ranks)}, 16};
  std::atomic<long> wrong{0};
  world.launch<Solo>(1, [&](Solo group, const Team& team, int block) {
    TeamSession<Solo> session{group, team, block, 1};
    Block tiles{session};
    alignas(16) float tile[8], scaled[8];
    for (int i = 0; i < 8; ++i) tile[i] = scaled[i] = float(team.rank() + 3 * i);
    wrong += !tiles.all_reduce(0, tile, Avg{});
    wrong += !tiles.all_reduce(1, scaled, PreMulSum{2.0});
    for (int i = 0; i < 8; ++i) {
      wrong += tile[i] != float(1 + 3 * i);
      wrong += scaled[i] != float(2 * (3 + 9 * i));
    }
  });
  CHECK(wrong == 0);
}

TEST_CASE("two Tiles of a protocol have packets of their own") {
  constexpr int ranks = 2;
  using Small = Tiles<Solo, float, TileShape<1, 3>, LL128>;
  using Large = Tiles<Solo, int, TileShape<10, 10>, LL128>;
  const Index small = Small::bytes(1, ranks);
  DeviceWorld world{ranks, {.ll128_bytes = small + Large::bytes(2, ranks)}, 16};
  std::atomic<long> wrong{0};
  for (int launch = 0; launch < launches; ++launch) {
    world.launch<Solo>(1, [&](Solo group, const Team& team, int block) {
      TeamSession<Solo> session{group, team, block, 1};
      Small first{session};
      Large second{session, small};
      wrong += second.slots() < 2;
      alignas(16) float a[3] = {1, 2, 3};
      alignas(16) int b[100];
      for (int& x : b) x = team.rank() + 1;
      wrong += !first.send(1 - team.rank(), 0, a);
      wrong += !second.all_reduce(1, b);
      wrong += !first.recv(1 - team.rank(), 0, a);
      wrong += b[0] != 3 || b[99] != 3 || a[2] != 3;
    });
  }
  CHECK(wrong == 0);
}

TEST_CASE("a rank that waits for no other does not overwrite packets that are not read") {
  // Rank 0 only sends: without a step back by the others it would be launches ahead.
  constexpr int ranks = 3, n = 32;
  using Block = Tiles<Solo, int, TileShape<1, n>, LL>;
  DeviceWorld world{ranks, {.ll_bytes = Block::bytes(1, ranks)}, 16};
  std::atomic<long> wrong{0};
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      for (int launch = 0; launch < 200; ++launch) {
        TeamSession<Solo> session{Solo{}, world.team(r), 0, 1};
        Block tiles{session};
        alignas(16) int tile[n];
        for (int i = 0; i < n; ++i) tile[i] = 1000 * launch + i;
        if (r == 0) {
          for (int p = 1; p < ranks; ++p) wrong += !tiles.send(p, 0, tile);
        } else {
          if (launch % 50 == 0) std::this_thread::sleep_for(std::chrono::milliseconds{2});
          for (int& x : tile) x = -1;
          wrong += !tiles.recv(0, 0, tile);
          for (int i = 0; i < n; ++i) wrong += tile[i] != 1000 * launch + i;
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK_FALSE(world.failed());
}

TEST_CASE("wrong calls of tiles fail the session and say why") {
  using Why = detail::LaneFailure::Why;
  using Block = Tiles<Lanes<2>, float, TileShape<1, 8>, LL128>;
  const auto failure = [](auto call) {
    DeviceWorld world{3, {.ll128_bytes = Block::bytes(1, 3)}, 64};
    world.launch<Lanes<2>>(1, [&](Lanes<2> group, const Team& team, int block) {
      if (team.rank() != 0) return;
      TeamSession<Lanes<2>> session{group, team, block, 1};
      call(session);
      if (!session.failed()) std::abort();
    });
    return Why(world.failure(0).why);
  };
  alignas(16) float tile[12] = {};
  CHECK(failure([&](auto& s) { Block{s}.all_reduce(1000, tile); }) == Why::no_slot);
  CHECK(failure([&](auto& s) { Block{s}.all_reduce(-1, tile); }) == Why::no_slot);
  CHECK(failure([&](auto& s) { Block{s}.all_reduce(0, tile + 1); }) == Why::misaligned);
  CHECK(failure([&](auto& s) { Block{s}.send(0, 0, tile); }) == Why::no_rank);
  CHECK(failure([&](auto& s) { Block{s}.reduce(3, 0, tile); }) == Why::no_rank);
  CHECK(failure([&](auto& s) {
          Tiles<Lanes<2>, float, TileShape<1, 8>, LL128, 2>{s}.all_reduce(0, tile);
        }) == Why::few_ranks);
  CHECK(failure([&](auto& s) {
          Tiles<Lanes<2>, float, TileShape<1, 8>, LL>{s}.all_reduce(0, tile);
        }) == Why::no_slot);
}

TEST_CASE("a tile that does not come ends the wait at its deadline") {
  using Block = Tiles<Solo, float, TileShape<1, 8>, LL128>;
  DeviceWorld world{3, {.ll128_bytes = Block::bytes(2, 3)}, 16, 0.05};
  std::atomic<long> good{0};
  world.launch<Solo>(1, [&](Solo group, const Team& team, int block) {
    TeamSession<Solo> session{group, team, block, 1};
    Block tiles{session};
    alignas(16) float tile[8] = {};
    if (team.rank() == 1) return;  // never sends
    good += tiles.all_reduce(0, tile);
    good += tiles.all_reduce(1, tile);
  });
  CHECK(good == 0);
  CHECK(world.failure(0).peer == 2);
  CHECK(world.failure(2).peer == 2);
}
