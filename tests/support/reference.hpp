#pragma once

// Elements of every type, functors, and the expected result of a reduction over ranks, by plain
// arithmetic on the host.
#include <ccl/element/data_type.hpp>
#include <ccl/element/element.hpp>
#include <ccl/element/reduce_op.hpp>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <tuple>

namespace ccl::test {

/// A user's element: three numbers that wrap, compared as a whole, in an order of their own.
struct Triple {
  std::uint32_t x = 0, y = 0, z = 0;
  constexpr Triple() = default;
  CCL_HD constexpr Triple(std::uint32_t a, std::uint32_t b, std::uint32_t c) : x{a}, y{b}, z{c} {}
  CCL_HD constexpr Triple(double all)  // NOLINT(google-explicit-constructor): PreMulSum's scalar
      : x{std::uint32_t(std::int64_t(all))}, y{x}, z{x} {}
  CCL_HD friend constexpr Triple operator+(Triple a, Triple b) {
    return {a.x + b.x, a.y + b.y, a.z + b.z};
  }
  CCL_HD friend constexpr Triple operator*(Triple a, Triple b) {
    return {a.x * b.x, a.y * b.y, a.z * b.z};
  }
  CCL_HD friend constexpr Triple operator/(Triple a, int n) {
    return {a.x / unsigned(n), a.y / unsigned(n), a.z / unsigned(n)};
  }
  CCL_HD friend constexpr bool operator==(const Triple& a, const Triple& b) {
    return a.x == b.x && a.y == b.y && a.z == b.z;
  }
  CCL_HD friend constexpr bool operator<(const Triple& a, const Triple& b) {
    return a.x != b.x ? a.x < b.x : a.y != b.y ? a.y < b.y : a.z < b.z;
  }
};

/// A user's functor, with a value: the operand that is nearer to it, else the smaller one.
struct Nearest {
  int target;
  template <class A>
  CCL_HD constexpr A operator()(const A& a, const A& b) const {
    const auto from = distance(a), to = distance(b);
    return from != to ? (from < to ? a : b) : (b < a ? b : a);
  }

 private:
  template <class A>
  CCL_HD constexpr auto distance(const A& a) const {
    if constexpr (std::is_same_v<A, Triple>) {
      return a.y ^ std::uint32_t(target);
    } else if constexpr (detail::Integer<A>) {
      return std::uint64_t(a) ^ std::uint64_t(target);
    } else {
      const double off = double(a) - target;
      return off < 0 ? -off : off;
    }
  }
};

using Types = std::tuple<std::int8_t, std::int16_t, std::int32_t, std::int64_t, std::uint8_t,
                         std::uint16_t, std::uint32_t, std::uint64_t, float16, bfloat16, float,
                         double, float8_e4m3, float8_e5m2, Triple>;
using Functors = std::tuple<Sum, Prod, Min, Max, Avg, PreMulSum, Nearest>;
template <class T>
inline constexpr bool is_float = !std::is_integral_v<T> && !std::is_same_v<T, Triple>;
/// Half the distance of two numbers near 1: what one rounding changes at most.
template <class T>
constexpr double roundoff() {
  if constexpr (std::is_same_v<T, double>) return 0x1p-53;
  if constexpr (std::is_same_v<T, float>) return 0x1p-24;
  if constexpr (std::is_same_v<T, float16>) return 0x1p-11;
  if constexpr (std::is_same_v<T, bfloat16>) return 0x1p-8;
  if constexpr (std::is_same_v<T, float8_e4m3>) return 0x1p-4;
  return 0x1p-3;
}
inline std::uint64_t mix(std::uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}
template <class T>
double real(const T& x) {
  if constexpr (std::is_same_v<T, double>) return x;
  return double(float(x));
}
template <class T>
T number(double x) {
  if constexpr (std::is_same_v<T, double>) {
    return x;
  } else {
    return T(float(x));
  }
}

template <class T, class F>
T element(int rank, Index i, bool rough) {
  const std::uint64_t bits = mix(std::uint64_t(rank + 1) << 40 ^ std::uint64_t(i));
  if constexpr (std::is_same_v<T, Triple>) {
    return {std::uint32_t(bits), std::uint32_t(bits >> 32), std::uint32_t(bits >> 16)};
  } else if constexpr (std::is_integral_v<T>) {
    return T(bits);
  } else {
    const double sign = bits % 2 == 0 ? 1 : -1;
    if (rough) return number<T>(sign * (0.75 + double(bits >> 40) * 0x1p-24 * 0.75));
    if (std::is_same_v<F, Prod>) return number<T>(sign * std::ldexp(1, int(bits >> 8) % 3 - 1));
    // Sums of eight of them are exact.
    const int most = int(1 / roundoff<T>() / 8 < 1000 ? 1 / roundoff<T>() / 8 : 1000);
    return number<T>(sign * int((bits >> 8) % unsigned(most + 1)) + 0.0);  // one zero
  }
}

template <class T>
constexpr int scalar() {
  return is_float<T> ? 2 : 3;
}

/// Element i of the reduction over `ranks` ranks: what it is, and how far off it may be.
template <class T>
struct Wanted {
  T value;
  double off = 0;
};
template <class T, class F>
Wanted<T> wanted(int ranks, Index i, bool rough) {
  const auto x = [&](int r) { return element<T, F>(r, i, rough); };
  constexpr bool adds = std::is_same_v<F, Sum> || std::is_same_v<F, Avg>;
  constexpr bool scales = std::is_same_v<F, PreMulSum>, multiplies = std::is_same_v<F, Prod>;
  if constexpr (!adds && !scales && !multiplies) {
    T best = x(0);
    for (int r = 1; r < ranks; ++r) {
      const T next = x(r);
      bool better;
      if constexpr (std::is_same_v<F, Nearest>) {
        // In the type that elements are reduced in; copies nothing but the definition above.
        using A = accumulate_t<T>;
        const F f{1};
        better = bool(f(A(best), A(next)) == A(next)) && !bool(A(best) == A(next));
      } else if constexpr (is_float<T>) {
        better = std::is_same_v<F, Min> ? real(next) < real(best) : real(best) < real(next);
      } else {
        better = std::is_same_v<F, Min> ? next < best : best < next;
      }
      if (better) best = next;
    }
    return {best};
  } else if constexpr (is_float<T>) {
    long double result = multiplies ? 1 : 0, size = result;  // no rounding of their own
    for (int r = 0; r < ranks; ++r) {
      const long double v = real(x(r)) * (scales ? scalar<T>() : 1);
      result = multiplies ? result * v : result + v;
      size = multiplies ? size * std::abs(v) : size + std::abs(v);
    }
    if constexpr (std::is_same_v<F, Avg>) {
      size /= ranks;
      using A = std::conditional_t<std::is_same_v<T, double>, double, float>;
      result = rough ? result / ranks : A(result) / A(ranks);
    }
    if (!rough) return {number<T>(double(result))};
    // Each rank rounds once; the scalar's product, the division, the result and this value too.
    const double most = std::expm1((ranks + 3) * std::log1p(roundoff<T>()));
    return {number<T>(double(result)), most * double(size)};
  } else {
    T result = x(0);
    if constexpr (std::is_same_v<T, Triple>) {
      const Triple by(scales ? scalar<T>() : 1, scales ? scalar<T>() : 1, scales ? scalar<T>() : 1);
      result = result * by;
      for (int r = 1; r < ranks; ++r) result = multiplies ? result * x(r) : result + x(r) * by;
      if constexpr (std::is_same_v<F, Avg>) result = result / ranks;
    } else {
      std::uint64_t whole = std::uint64_t(result) * (scales ? scalar<T>() : 1);
      for (int r = 1; r < ranks; ++r) {
        const std::uint64_t next = std::uint64_t(x(r)) * (scales ? scalar<T>() : 1);
        whole = multiplies ? whole * next : whole + next;
      }
      result = T(whole);
      if constexpr (std::is_same_v<F, Avg>) {
        // Towards zero, in a type that holds both.
        result = std::is_signed_v<T> ? T(std::int64_t(result) / ranks)
                                     : T(std::uint64_t(result) / std::uint64_t(ranks));
      }
    }
    return {result};
  }
}

/// Values of the elements of one type and functor, created for each pair.
struct Rules {
  Index size;
  void (*fill)(char* at, int rank, Index i, bool rough);
  bool (*good)(const char* at, int ranks, Index i, bool rough);
  void (*put_scalar)(char* at);
};
template <class T, class F>
constexpr Rules rules() {
  return {Index{sizeof(T)},
          [](char* at, int rank, Index i, bool rough) {
            const T x = element<T, F>(rank, i, rough);
            std::memcpy(at, &x, sizeof x);
          },
          [](const char* at, int ranks, Index i, bool rough) {
            T got;
            std::memcpy(static_cast<void*>(&got), at, sizeof got);
            const auto want = wanted<T, F>(ranks, i, rough);
            if constexpr (is_float<T>) {
              return std::abs(real(got) - real(want.value)) <= want.off;
            } else {
              return got == want.value;
            }
          },
          [](char* at) {
            const T x = [] {
              if constexpr (is_float<T>) return number<T>(scalar<T>());
              return T(scalar<T>());
            }();
            std::memcpy(at, &x, sizeof x);
          }};
}

/// PreMulSum's scalar lies at `scalar_at`, unless that is null.
template <class F, class T>
F functor_of(const void* scalar_at) {
  if constexpr (std::is_same_v<F, PreMulSum>) {
    if (scalar_at != nullptr) return PreMulSum::at(static_cast<const T*>(scalar_at));
    return PreMulSum{scalar<T>()};
  } else if constexpr (std::is_same_v<F, Nearest>) {
    return Nearest{1};
  } else {
    return F{};
  }
}

}  // namespace ccl::test
