#include <ccl/detail/numeric/reduction.hpp>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "support/catch.hpp"

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
  // Every rank except the last sends a partial result on, as in a ring.
  Fragment<Words> partial =
      detail::CellReducer<R, Words>::from_own(reduction, load(inputs[0])).result();
  for (std::size_t rank = 1; rank < inputs.size(); ++rank) {
    auto reducer = detail::CellReducer<R, Words>::from_received(reduction, partial);
    reducer.add_own(load(inputs[rank]));
    partial = rank + 1 == inputs.size() ? reducer.finish() : reducer.result();
  }
  if (inputs.size() == 1) {
    partial = detail::CellReducer<R, Words>::from_own(reduction, load(inputs[0])).finish();
  }
  std::vector<T> out;
  for (int i = 0; i < per_fragment; ++i) {
    out.push_back(E::get(partial.word + i / E::per_cell * E::words_per_cell, i % E::per_cell));
  }
  return out;
}

/// Small numbers of both signs, different on each rank, exact in every type.
template <class T>
T sample(int rank, int i) {
  const int x = (7 * rank + 5 * i) % 9 - (std::is_unsigned_v<T> ? 0 : 4);
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(x);
  } else {
    return T(static_cast<float>(x) * 0.5f);
  }
}
template <class T>
auto wide(T x) {
  if constexpr (std::is_integral_v<T> || std::is_same_v<T, double>) {
    return x;
  } else {
    return static_cast<float>(x);  // by the CUDA headers
  }
}

/// Returns the result of a chain of ranks in plain arithmetic, rounded to T after each rank.
template <class Op, class T>
T expected(int ranks, int i, double scalar) {
  constexpr bool integral = std::is_integral_v<T>;
  constexpr bool early = sizeof(T) <= 2 && !integral && !std::is_same_v<T, bfloat16>;
  using A = std::conditional_t<integral, std::int64_t, decltype(wide(T()))>;
  A first_scale = 1, last_scale = 1;
  if (std::is_same_v<Op, PreMulSum>) first_scale = A(scalar);
  if (std::is_same_v<Op, Avg>) last_scale = A(ranks);
  if (std::is_same_v<Op, Avg> && early) {
    int power = 1;
    while (power < ranks) power *= 2;
    first_scale = A(1) / A(power);
    last_scale = A(ranks) / A(power);
  }
  const auto own = [&](int rank) { return static_cast<A>(wide(sample<T>(rank, i)) * first_scale); };
  A total = own(0);
  for (int rank = 1; rank < ranks; ++rank) {
    total = static_cast<A>(wide(static_cast<T>(total)));
    const A next = own(rank);
    if (std::is_same_v<Op, Prod>) {
      total = A(total * next);
    } else if (std::is_same_v<Op, Min>) {
      total = next < total ? next : total;
    } else if (std::is_same_v<Op, Max>) {
      total = total < next ? next : total;
    } else {
      total = A(total + next);
    }
  }
  if (integral && std::is_same_v<Op, Avg>) total = A(wide(static_cast<T>(total)));  // wraps first
  return static_cast<T>(total / last_scale);
}

template <class Op, class T>
void check_chain(Op op, double scalar = 1) {
  constexpr int words = 2, count = words * Element<T>::per_cell;
  for (int ranks = 1; ranks <= 8; ++ranks) {
    std::vector<std::vector<T>> inputs(ranks);
    for (int rank = 0; rank < ranks; ++rank) {
      for (int i = 0; i < count; ++i) inputs[rank].push_back(sample<T>(rank, i));
    }
    const auto got =
        reduce<detail::Reduction<Op, T>, words>(detail::Reduction<Op, T>(op, ranks), inputs);
    for (int i = 0; i < count; ++i) {
      INFO("ranks " << ranks << ", element " << i << ", " << Op::name);
      CHECK(double(wide(got[i])) == double(wide(expected<Op, T>(ranks, i, scalar))));
    }
  }
}

struct Mean {
  double sum;
  std::int64_t count;
  friend Mean operator+(Mean a, Mean b) { return {a.sum + b.sum, a.count + b.count}; }
  friend bool operator==(const Mean&, const Mean&) = default;
};
struct Halves : Mean {
  Halves() = default;
  Halves(double s, std::int64_t c) : Mean{s, c} {}
  friend Halves operator+(Halves a, Halves b) { return {a.sum + b.sum, a.count + b.count}; }
  friend Halves operator/(Halves a, int n) { return {a.sum / n, a.count / n}; }
};
struct Color {
  unsigned char r, g, b;
  friend Color operator+(Color a, Color b) {
    return {static_cast<unsigned char>(a.r + b.r), static_cast<unsigned char>(a.g + b.g),
            static_cast<unsigned char>(a.b + b.b)};
  }
  friend bool operator==(const Color&, const Color&) = default;
};
struct Point {
  int x, y, z;
  friend Point operator+(Point a, Point b) { return {a.x + b.x, a.y + b.y, a.z + b.z}; }
  friend bool operator==(const Point&, const Point&) = default;
};
struct Matrix {
  double v[5];
  friend bool operator==(const Matrix&, const Matrix&) = default;
};
struct AddMatrices {
  double weight;  // a functor may have state
  Matrix operator()(Matrix a, const Matrix& b) const {
    for (int i = 0; i < 5; ++i) a.v[i] += weight * b.v[i];
    return a;
  }
};
struct Chain {
  static constexpr bool commutative = false;
  int operator()(int a, int b) const { return 10 * a + b; }
};
struct Boxed {  // cannot be made from nothing
  explicit Boxed(int x) : value(x) {}
  int value;
  friend Boxed operator+(Boxed a, Boxed b) { return Boxed(a.value + b.value); }
};
}  // namespace

TEST_CASE("a chain of ranks reduces every type with every operation") {
  for (int i = 0; i < data_type_count; ++i) {
    INFO(name(DataType(i)));
    with_type(DataType(i), []<class T>(TypeTag<T>) {
      check_chain<Sum, T>({});
      check_chain<Prod, T>({});
      check_chain<Min, T>({});
      check_chain<Max, T>({});
      check_chain<Avg, T>({});
      check_chain<PreMulSum, T>(PreMulSum(2), 2);
      const T in_memory = T(3);
      check_chain<PreMulSum, T>(PreMulSum::at(&in_memory), 3);
    });
  }
  check_chain<PreMulSum, float>(PreMulSum(0.5), 0.5);
}

TEST_CASE("a chain of ranks sums floats") {
  const std::vector<std::vector<float>> in = {{1, 2, 3, 4}, {10, 20, 30, 40}, {.5, .25, .125, 8}};
  CHECK(reduce<detail::Reduction<Sum, float>, 2>({Sum{}, 3}, in) ==
        std::vector<float>{11.5, 22.25, 33.125, 52});
}

TEST_CASE("a scalar in memory is read when asked, not before") {
  float scalar = 2;
  const detail::Reduction<PreMulSum, float> early(PreMulSum::at(&scalar), 4);
  scalar = 3;
  const auto loaded = early.load();
  CHECK(early.prepare(5) == 15);
  scalar = 7;
  CHECK(early.prepare(5) == 35);
  CHECK(loaded.prepare(5) == 15);
}

TEST_CASE("averages of narrow types stay in range where their sums would not") {
  const auto average = []<class T>(T x, int ranks) {
    const std::vector<std::vector<T>> in(ranks, std::vector<T>(8, x));
    return float(reduce<detail::Reduction<Avg, T>, 2>({Avg{}, ranks}, in)[0]);
  };
  for (int ranks = 1; ranks <= 8; ++ranks) {
    CHECK(average(float16(60000.f), ranks) == Approx(60000).epsilon(0.002));
    CHECK(average(float8_e5m2(57344.f), ranks) > 40000);
  }
  CHECK(average(float8_e4m3(448.f), 8) == 448);
  CHECK(average(float16(65504.f), 8) == 65504);
}

TEST_CASE("integer averages truncate towards zero, to the last bit") {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    for (const auto x :
         {std::numeric_limits<int>::min(), std::numeric_limits<int>::min() + 1, -10, -1, 0, 1, 10,
          std::numeric_limits<int>::max() - 1, std::numeric_limits<int>::max()}) {
      CHECK(detail::Reduction<Avg, int>(Avg{}, ranks).complete(x) == x / ranks);
      CHECK(detail::Reduction<Avg, unsigned>(Avg{}, ranks).complete(unsigned(x)) ==
            unsigned(x) / unsigned(ranks));
    }
    for (int x = -32768; x < 65536; ++x) {
      const bool right =
          detail::Reduction<Avg, std::int16_t>(Avg{}, ranks).complete(std::int16_t(x)) ==
              std::int16_t(x) / ranks &&
          detail::Reduction<Avg, std::uint16_t>(Avg{}, ranks).complete(std::uint16_t(x)) ==
              std::uint16_t(x) / ranks &&
          detail::Reduction<Avg, std::int8_t>(Avg{}, ranks).complete(std::int8_t(x)) ==
              std::int8_t(x) / ranks;
      if (!right) FAIL(x << " / " << ranks);
    }
    CHECK(
        detail::Reduction<Avg, std::int64_t>(Avg{}, ranks).complete(-(std::int64_t{1} << 62) - 1) ==
        (-(std::int64_t{1} << 62) - 1) / ranks);
  }
}

TEST_CASE("the accumulate type may be chosen") {
  // 2048 + 1 + 1: halves lose the ones, floats do not.
  const Fragment<1> big = [] {
    Fragment<1> f{};
    Cell<float16>::put(f.word, 0, float16(2048.f));
    return f;
  }();
  const Fragment<1> one = [] {
    Fragment<1> f{};
    Cell<float16>::put(f.word, 0, float16(1.f));
    return f;
  }();
  const auto sum = [&]<class Acc>(Acc) {
    using R = detail::Reduction<Sum, float16, Acc>;
    auto reducer = detail::CellReducer<R, 1>::from_own(R(Sum{}, 3), big);
    reducer.add_received(one);
    reducer.add_own(one);
    return float(Cell<float16>::get(reducer.finish().word, 0));
  };
  CHECK(sum(float()) == 2050);
  CHECK(sum(double()) == 2050);
  CHECK(sum(float16()) == 2048);

  using Wide = detail::Reduction<Avg, std::int8_t, int>;  // no wrapping before the division
  const Wide r(Avg{}, 2);
  CHECK(r.finish(r.combine(r.prepare(100), r.prepare(120))) == 110);
  const detail::Reduction<Avg, std::int8_t> narrow(Avg{}, 2);
  CHECK(narrow.finish(narrow.combine(narrow.prepare(100), narrow.prepare(120))) == -18);
}

TEST_CASE("doubles round to a narrow type once") {
  // Just above the tie between 1 and the next half. Through a float it would be a tie, to even.
  const double x = 1 + std::ldexp(1., -11) + std::ldexp(1., -40);
  const detail::Reduction<Sum, float16, double> r(Sum{}, 1);
  CHECK(float(r.narrow(x)) == 1 + std::ldexp(1.f, -10));
  CHECK(float(r.narrow(-x)) == -1 - std::ldexp(1.f, -10));
  CHECK(float(r.narrow(1 + std::ldexp(1., -11))) == 1);
  CHECK(float(r.narrow(1 + std::ldexp(1., -11) - std::ldexp(1., -40))) == 1);
  CHECK(std::isnan(float(r.narrow(NAN))));
  CHECK(std::isinf(float(r.narrow(1e300))));
  CHECK(float(r.narrow(1e-300)) == 0);
  const detail::Reduction<Sum, float8_e4m3, double> e(Sum{}, 1);
  CHECK(float(e.narrow(1e300)) == 448);
}

TEST_CASE("user types are reduced like built-in ones") {
  CHECK(reduce<detail::Reduction<Sum, Mean>, 4>({Sum{}, 2},
                                                {{{1.5, 1}, {2, 2}}, {{3, 10}, {4, 20}}}) ==
        std::vector<Mean>{{4.5, 11}, {6, 22}});
  const auto averages =
      reduce<detail::Reduction<Avg, Halves>, 2>({Avg{}, 2}, {{Halves(1, 4)}, {Halves(2, 8)}});
  CHECK(averages[0] == Mean{1.5, 6});
  CHECK(reduce<detail::Reduction<Sum, Color>, 2>({Sum{}, 2},
                                                 {{{1, 2, 3}, {4, 5, 6}, {7, 8, 9}, {250, 1, 1}},
                                                  {{1, 1, 1}, {2, 2, 2}, {3, 3, 3}, {10, 4, 4}}}) ==
        std::vector<Color>{{2, 3, 4}, {6, 7, 8}, {10, 11, 12}, {4, 5, 5}});
  CHECK(reduce<detail::Reduction<Sum, Point>, 4>(
            {Sum{}, 2}, {{{1, 2, 3}, {4, 5, 6}}, {{10, 20, 30}, {40, 50, 60}}}) ==
        std::vector<Point>{{11, 22, 33}, {44, 55, 66}});
  CHECK(reduce<detail::Reduction<AddMatrices, Matrix>, 5>(
            {AddMatrices{2}, 2}, {{{{1, 2, 3, 4, 5}}}, {{{1, 1, 1, 1, 1}}}}) ==
        std::vector<Matrix>{{{3, 4, 5, 6, 7}}});
  const auto boxed = reduce<detail::Reduction<Sum, Boxed>, 1>(
      {Sum{}, 2}, {{Boxed(1), Boxed(2)}, {Boxed(10), Boxed(20)}});
  CHECK(boxed[1].value == 22);
}

TEST_CASE("operands are combined in the order of the calls") {
  const auto fragment = [](int a, int b) {
    Fragment<1> f{};
    Cell<int>::put(f.word, 0, a);
    Cell<int>::put(f.word, 1, b);
    return f;
  };
  using R = detail::Reduction<Chain, int>;
  STATIC_REQUIRE_FALSE(R::commutative);
  auto reducer = detail::CellReducer<R, 1>::from_own(R(Chain{}, 4), fragment(1, 5));
  reducer.add_received(fragment(2, 6));
  reducer.add_own(fragment(3, 7));
  const auto out = reducer.finish();
  CHECK(Cell<int>::get(out.word, 0) == 123);
  CHECK(Cell<int>::get(out.word, 1) == 567);
}

TEST_CASE("a reduction travels to kernels by value") {
  STATIC_REQUIRE(std::is_trivially_copyable_v<detail::Reduction<Sum, float>>);
  STATIC_REQUIRE(std::is_trivially_copyable_v<detail::Reduction<PreMulSum, float16>>);
  STATIC_REQUIRE(std::is_trivially_copyable_v<detail::Reduction<AddMatrices, Matrix>>);
  STATIC_REQUIRE(sizeof(detail::Reduction<Sum, float>) <= 12);
}
