// Multicast by loads from every rank and stores to every rank.
#include <ccl/detail/lanes/host_memory.hpp>
#include <ccl/detail/multicast/memory.hpp>

#include <cstdint>
#include <cstring>
#include <vector>

#include "support/catch.hpp"

using namespace ccl;

namespace {
using Multicast = detail::UnicastMulticast<detail::HostMemory>;

/// Scratch of some ranks, of four packets each.
struct Copies {
  explicit Copies(int ranks) : of(ranks, std::vector<Packet>(4)) {
    for (auto& scratch : of) table.push_back(scratch.data());
    view.set_table(table.data());
    view.ranks = ranks;
  }
  template <class T>
  void fill(int rank, int packet, T value) {
    T all[sizeof(Packet) / sizeof(T)];
    for (T& x : all) x = value;
    std::memcpy(&of[rank][packet], all, sizeof all);
  }
  std::vector<std::vector<Packet>> of;
  std::vector<Packet*> table;
  detail::PeerView view;
};
template <class F, class T>
std::vector<T> reduced(const Copies& copies, int packet) {
  const Packet got = Multicast{0, copies.view}.load_reduced<F, T>(packet);
  std::vector<T> values(sizeof got / sizeof(T));
  std::memcpy(static_cast<void*>(values.data()), &got, sizeof got);
  return values;
}
}  // namespace

TEST_CASE("a store to all reaches the same place of every rank and no other") {
  Copies copies{17};
  copies.view.rank = 16;
  const Multicast multicast{0, copies.view};
  multicast.store(2, Packet{{5, 6}});
  multicast.store_release(7, Word{9});
  for (const auto& scratch : copies.of) {
    CHECK(scratch[2].word[0] == 5);
    CHECK(scratch[2].word[1] == 6);
    CHECK(scratch[3].word[1] == 9);
    for (const Word untouched : {scratch[0].word[0], scratch[1].word[1], scratch[3].word[0]}) {
      CHECK(untouched == 0);
    }
  }
}

TEST_CASE("a reduced load takes the packet of every rank once") {
  Copies copies{3};
  for (int r = 0; r < 3; ++r) copies.fill(r, 1, std::uint64_t{1} << (8 * r));
  CHECK(reduced<Sum, std::uint64_t>(copies, 1) == std::vector<std::uint64_t>(2, 0x10101));
  CHECK(reduced<Max, std::uint64_t>(copies, 1) == std::vector<std::uint64_t>(2, 0x10000));
  for (int r = 0; r < 3; ++r) copies.fill(r, 0, std::int32_t(1 - r));
  CHECK(reduced<Min, std::int32_t>(copies, 0) == std::vector<std::int32_t>(4, -1));
  // Lanes scale before, and divide afterwards: the switch adds.
  CHECK(reduced<Avg, std::int32_t>(copies, 0) == std::vector<std::int32_t>(4, 0));
  for (int r = 0; r < 3; ++r) copies.fill(r, 0, std::int32_t{0x7fff'ffff});
  CHECK(reduced<Sum, std::int32_t>(copies, 0) == std::vector<std::int32_t>(4, 0x7fff'fffd));
}

TEST_CASE("sums of 16-bit floats are rounded once") {
  Copies copies{3};
  const float values[3] = {256, 1, 1};  // in bfloat16, 256 + 1 is 256
  for (int r = 0; r < 3; ++r) copies.fill(r, 0, Element<bfloat16>::narrow(values[r]));
  for (const bfloat16 sum : reduced<Sum, bfloat16>(copies, 0)) {
    CHECK(Element<bfloat16>::widen(sum) == 258);
  }
}
