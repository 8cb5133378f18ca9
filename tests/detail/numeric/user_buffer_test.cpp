// The view that tests alignment at run time accesses what the view of single elements does.
#include <ccl/detail/lanes/host_memory.hpp>
#include <ccl/detail/numeric/user_buffer.hpp>
#include <ccl/proto/ll.hpp>
#include <ccl/proto/ll128.hpp>
#include <ccl/proto/simple.hpp>

#include <algorithm>
#include <cstring>
#include <vector>

#include "support/catch.hpp"

using namespace ccl;

namespace {
struct OneOf32 {
  static constexpr int width = 32;
  using Memory = detail::HostMemory;
  int lane = 0;
  int rank() const { return lane; }
  void sync() const {}
  bool any(bool vote) const { return vote; }
  bool all(bool vote) const { return vote; }
};
struct Three {
  char x[3];
};

template <class T, class Proto>
void agree() {
  using Lane = typename Proto::template Lane<OneOf32, Element<T>::words_per_cell>;
  constexpr int tile = Lane::tile_cells * Element<T>::per_cell, size = int(sizeof(T));
  alignas(16) static char from[(tile + 40) * size];
  alignas(16) static char into[2][(tile + 40) * size];
  for (std::size_t i = 0; i < sizeof from; ++i) from[i] = char(i * 37 + i / 256);
  int wrong = 0;
  for (const int offset : {0, 1, 2, 4, 8, 16, 17}) {
    for (const int left : {-3, 0, 1, 2, 5, 16, tile / 2 + 1, tile - 1, tile, tile + 9}) {
      std::memset(into, 9, sizeof into);
      const detail::UserBuffer<T, 1> one{from, into[0]};
      const detail::UserBuffer<T, detail::any_align> any{from, into[1]};
      for (int l = 0; l < 32; ++l) {
        const Lane lane{OneOf32{l}};
        const auto a = one.template load<detail::Fill::any>(lane, offset, left);
        const auto b = any.template load<detail::Fill::any>(lane, offset, left);
        wrong += std::memcmp(&a, &b, sizeof a) != 0 ? 1 : 0;
        one.template store<detail::Fill::any>(lane, offset, left, a);
        any.template store<detail::Fill::any>(lane, offset, left, a);
      }
      wrong += std::memcmp(into[0], into[1], sizeof into[0]) != 0 ? 1 : 0;
      const int moved = std::clamp(left, 0, tile) * size;
      wrong += std::memcmp(into[1] + offset * size, from + offset * size, std::size_t(moved)) != 0;
    }
  }
  CHECK(wrong == 0);
}
template <class T>
void agree_in_all_protocols() {
  agree<T, LL>();
  agree<T, LL128>();
  agree<T, Simple>();
}
}  // namespace

TEST_CASE("any alignment: each lane accesses the elements of its cells that exist") {
  agree_in_all_protocols<float>();
  agree_in_all_protocols<char>();
  agree_in_all_protocols<short>();
  agree_in_all_protocols<double>();
  agree_in_all_protocols<Three>();
  agree<float, LL128Pairs>();
  agree<char, LL128Pairs>();
}
