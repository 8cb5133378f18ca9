#include <ccl/element/element.hpp>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "support/catch.hpp"

using namespace ccl;

namespace {
struct Three {
  unsigned char c[3];
};
struct Mean {
  double sum;
  std::int64_t count;
};
struct Twelve {
  int x, y, z;
};
struct Forty {
  double v[5];
};
struct NoDefault {
  explicit NoDefault(int x) : value(x) {}
  int value;
};

template <class T>
T of_bits(unsigned bits) {
  T value;
  std::memcpy(static_cast<void*>(&value), &bits, sizeof(T));
  return value;
}
template <class T>
unsigned to_bits(T value) {
  unsigned bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  return bits;
}

/// A format by its definition: sign, exponent, mantissa. It shares nothing with the library.
struct Format {
  int exponent_bits, mantissa_bits;
  bool has_infinity, saturates;

  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  unsigned codes() const { return 1u << (1 + exponent_bits + mantissa_bits); }
  double value(unsigned code) const {
    const unsigned mantissa = code & ((1u << mantissa_bits) - 1);
    const int exponent = int(code >> mantissa_bits & ((1u << exponent_bits) - 1));
    const double sign = code >= codes() / 2 ? -1 : 1;
    if (exponent == (1 << exponent_bits) - 1) {
      if (has_infinity) return mantissa == 0 ? sign * INFINITY : NAN;
      if (mantissa == (1u << mantissa_bits) - 1) return NAN;
    }
    if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias() - mantissa_bits);
    return sign * std::ldexp(mantissa + (1u << mantissa_bits), exponent - bias() - mantissa_bits);
  }
  /// The nearest code to x >= 0, by search: values grow with codes.
  unsigned nearest(double x) const {
    unsigned top = codes() / 2 - 1;
    while (!std::isfinite(value(top))) --top;
    unsigned low = 0, high = top;
    while (low < high) {
      const unsigned middle = (low + high + 1) / 2;
      if (value(middle) <= x) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    if (low == top) {
      const double step = value(top) - value(top - 1);
      // One step beyond the largest is where an infinity would be.
      const bool beyond = x - value(top) >= step / 2;
      return beyond && !saturates ? top + 1 : top;
    }
    const double below = x - value(low), above = value(low + 1) - x;
    if (below != above) return below < above ? low : low + 1;
    return low % 2 == 0 ? low : low + 1;
  }
};
template <class T>
Format format_of();
template <>
Format format_of<float16>() {
  return {5, 10, true, false};
}
template <>
Format format_of<bfloat16>() {
  return {8, 7, true, false};
}
template <>
Format format_of<float8_e4m3>() {
  return {4, 3, false, true};
}
template <>
Format format_of<float8_e5m2>() {
  return {5, 2, true, true};
}

template <class T>
void check_narrow(float x) {
  const Format format = format_of<T>();
  const unsigned got = to_bits(Element<T>::narrow(x));
  if (std::isnan(x)) {
    if (!std::isnan(format.value(got))) FAIL("a NaN became " << got);
    return;
  }
  const unsigned sign = std::signbit(x) ? format.codes() / 2 : 0;
  const unsigned want = format.nearest(std::fabs(double(x))) | sign;
  if (got != want) FAIL(x << " became " << got << ", not " << want);
}
}  // namespace

TEMPLATE_TEST_CASE("small floats widen to what their bits mean, and come back", "", float16,
                   bfloat16, float8_e4m3, float8_e5m2) {
  const Format format = format_of<TestType>();
  for (unsigned code = 0; code < format.codes(); ++code) {
    const float wide = Element<TestType>::widen(of_bits<TestType>(code));
    const double want = format.value(code);
    const unsigned back = to_bits(Element<TestType>::narrow(wide));
    if (std::isnan(want)) {
      REQUIRE(std::isnan(wide));
      REQUIRE(std::isnan(format.value(back)));
    } else {
      REQUIRE(double(wide) == want);
      REQUIRE(std::signbit(wide) == std::signbit(want));
      const bool kept = std::isfinite(want) || !format.saturates;
      if (kept) {
        REQUIRE(back == code);
      } else {
        REQUIRE(back == code - 1);  // the largest finite value
      }
    }
  }
}

TEMPLATE_TEST_CASE("small floats narrow to the nearest, ties to even", "", float16, bfloat16,
                   float8_e4m3, float8_e5m2) {
  const Format format = format_of<TestType>();
  // Every value, every tie, and the floats next to each.
  for (unsigned code = 0; code + 1 < format.codes() / 2; ++code) {
    const double low = format.value(code), high = format.value(code + 1);
    const double tie =
        std::isfinite(high) ? (low + high) / 2 : low + (low - format.value(code - 1)) / 2;
    if (!std::isfinite(low)) continue;
    for (const double exact : {low, tie}) {
      const auto x = float(exact);
      for (const float near : {x, std::nextafter(x, 0.f), std::nextafter(x, INFINITY)}) {
        check_narrow<TestType>(near);
        check_narrow<TestType>(-near);
      }
    }
  }
  for (const float x :
       {INFINITY, NAN, std::numeric_limits<float>::max(), std::numeric_limits<float>::denorm_min(),
        0.f, 448.f, 464.f, 465.f, 480.f, 57344.f, 61439.f, 61440.f, 65519.f, 65520.f}) {
    check_narrow<TestType>(x);
    check_narrow<TestType>(-x);
  }
  // A walk over all of float's bit patterns in steps of a prime.
  for (std::uint64_t bits = 0; bits < std::uint64_t{1} << 32; bits += 99'991) {
    const auto u = std::uint32_t(bits);
    float x;
    std::memcpy(&x, &u, 4);
    check_narrow<TestType>(x);
  }
}

TEMPLATE_TEST_CASE("small floats agree with the CUDA headers", "", float16, bfloat16, float8_e4m3,
                   float8_e5m2) {
  for (unsigned code = 0; code < 1u << 8 * sizeof(TestType); ++code) {
    const auto value = of_bits<TestType>(code);
    const auto want = float(value);
    const float got = Element<TestType>::widen(value);
    REQUIRE((got == want || (std::isnan(got) && std::isnan(want))));
  }
  for (std::uint64_t bits = 0; bits < std::uint64_t{1} << 32; bits += 399'989) {
    const auto u = std::uint32_t(bits);
    float x;
    std::memcpy(&x, &u, 4);
    if (std::isnan(x)) continue;
    if (to_bits(Element<TestType>::narrow(x)) != to_bits(TestType(x))) FAIL("differs for " << x);
  }
}

TEST_CASE("cells have the shape their type asks for") {
  STATIC_REQUIRE(Cell<char>::per_cell == 8);
  STATIC_REQUIRE(Cell<float16>::per_cell == 4);
  STATIC_REQUIRE(Cell<double>::per_cell == 1);
  STATIC_REQUIRE(Cell<double>::packed);
  STATIC_REQUIRE(Cell<Three>::per_cell == 2);
  STATIC_REQUIRE_FALSE(Cell<Three>::packed);
  STATIC_REQUIRE(Cell<Twelve>::words_per_cell == 2);
  STATIC_REQUIRE(Cell<Twelve>::per_cell == 1);
  STATIC_REQUIRE_FALSE(Cell<Twelve>::packed);
  STATIC_REQUIRE(Cell<Mean>::words_per_cell == 2);
  STATIC_REQUIRE(Cell<Mean>::packed);
  STATIC_REQUIRE(Cell<Forty>::words_per_cell == 5);
  STATIC_REQUIRE(Cell<Forty>::packed);
}

TEMPLATE_TEST_CASE("elements go into cells and out again, next to each other", "", char,
                   std::int16_t, std::uint32_t, double, float16, float8_e4m3, Three, Mean, Twelve,
                   Forty, NoDefault) {
  using C = Cell<TestType>;
  Word cell[C::words_per_cell] = {};
  char image[C::per_cell][sizeof(TestType)];
  for (int i = 0; i < C::per_cell; ++i) {
    for (std::size_t b = 0; b < sizeof(TestType); ++b) image[i][b] = char(17 * i + 3 * int(b) + 1);
  }
  union Any {
    Any() {}
    TestType value;
  } any;
  for (int round = 0; round < 2; ++round) {  // the second overwrites what the first left
    for (int i = C::per_cell - 1; i >= 0; --i) {
      std::memcpy(static_cast<void*>(&any), image[i], sizeof(TestType));
      C::put(cell, i, any.value);
    }
  }
  for (int i = 0; i < C::per_cell; ++i) {
    const TestType value = C::get(cell, i);
    CHECK(std::memcmp(&value, image[i], sizeof(TestType)) == 0);
  }
  if (C::packed) CHECK(std::memcmp(cell, image, sizeof(cell)) == 0);
}

TEMPLATE_TEST_CASE("whole cells convert as their elements do", "", float16, bfloat16, float8_e4m3,
                   float8_e5m2) {
  using E = Element<TestType>;
  const Word cell = 0x3c12'5b31'8001'0400;
  float wide[E::per_cell];
  E::unpack(&cell, wide);
  for (int i = 0; i < E::per_cell; ++i) CHECK(wide[i] == E::widen(E::get(&cell, i)));
  for (float& x : wide) x *= 1.3f;
  Word packed, one_by_one = 0;
  E::pack(&packed, wide);
  for (int i = 0; i < E::per_cell; ++i) E::put(&one_by_one, i, E::narrow(wide[i]));
  CHECK(packed == one_by_one);
}

namespace {
// A storage type of a program's own: hundredths, added up as doubles.
struct Cents {
  std::int16_t hundredths;
};
struct NoPut {
  using Accumulate = Cents;
  static constexpr int words_per_cell = 1, per_cell = 4;
  static Cents get(const Word*, int) { return {}; }
  static Cents widen(Cents c) { return c; }
  static Cents narrow(Cents c) { return c; }
};
struct NoNarrow : Cell<Cents> {
  using Accumulate = double;
  static double widen(Cents c) { return c.hundredths / 100.; }
};
struct NoShape {
  using Accumulate = Cents;
  static Cents get(const Word*, int) { return {}; }
  static void put(Word*, int, Cents) {}
  static Cents widen(Cents c) { return c; }
  static Cents narrow(Cents c) { return c; }
};
}  // namespace
template <>
struct ccl::Element<Cents> : ccl::Cell<Cents> {
  using Accumulate = double;
  static double widen(Cents c) { return c.hundredths / 100.; }
  static Cents narrow(double x) { return {std::int16_t(std::lround(x * 100))}; }
};

TEST_CASE("the element concept tells a whole specialization from a deficient one") {
  STATIC_REQUIRE(ElementOf<Element<Cents>, Cents>);
  STATIC_REQUIRE(ElementOf<Element<float16>, float16>);
  STATIC_REQUIRE(ElementOf<Element<Mean>, Mean>);
  STATIC_REQUIRE_FALSE(ElementOf<NoPut, Cents>);
  STATIC_REQUIRE_FALSE(ElementOf<NoNarrow, Cents>);
  STATIC_REQUIRE_FALSE(ElementOf<NoShape, Cents>);
  STATIC_REQUIRE(std::is_same_v<accumulate_t<Cents>, double>);
  STATIC_REQUIRE(std::is_same_v<accumulate_t<float8_e5m2>, float>);
  STATIC_REQUIRE(std::is_same_v<accumulate_t<std::int8_t>, std::int8_t>);
  STATIC_REQUIRE(std::is_same_v<accumulate_t<Mean>, Mean>);
}
