#include <ccl/reduction.hpp>

#include <cstring>
#include <vector>

#include "catch.hpp"

using namespace ccl;

namespace {
template <class R, int Words>
std::vector<typename R::Type> reduce(const R& reduction,
                                     const std::vector<std::vector<typename R::Type>>& inputs) {
  using T = typename R::Type;
  using E = Element<T>;
  constexpr int per_fragment = Words / E::words_per_cell * E::per_cell;
  const auto load = [&](const std::vector<T>& from) {
    Fragment<Words> f{};
    for (int i = 0; i < per_fragment; ++i) {
      E::put(f.word + i / E::per_cell * E::words_per_cell, i % E::per_cell, from[i]);
    }
    return f;
  };
  // As a ring does: every rank but the last hands on a partial result.
  Fragment<Words> partial = CellReducer<R, Words>::from_own(reduction, load(inputs[0])).result();
  for (std::size_t rank = 1; rank < inputs.size(); ++rank) {
    auto reducer = CellReducer<R, Words>::from_received(reduction, partial);
    reducer.add_own(load(inputs[rank]));
    partial = rank + 1 == inputs.size() ? reducer.finish() : reducer.result();
  }
  if (inputs.size() == 1) {
    partial = CellReducer<R, Words>::from_own(reduction, load(inputs[0])).finish();
  }
  std::vector<T> out;
  for (int i = 0; i < per_fragment; ++i) {
    out.push_back(E::get(partial.word + i / E::per_cell * E::words_per_cell, i % E::per_cell));
  }
  return out;
}
}  // namespace

TEST_CASE("a chain of ranks sums floats") {
  const std::vector<std::vector<float>> in = {{1, 2, 3, 4}, {10, 20, 30, 40}, {.5, .25, .125, 8}};
  CHECK(reduce<Reduction<Sum, float>, 2>({Sum{}, 3}, in) ==
        std::vector<float>{11.5, 22.25, 33.125, 52});
}
