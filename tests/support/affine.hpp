#pragma once

// Reduction that is associative and not commutative.
namespace ccl::test {

/// Map x -> factor * x + term. The composition of two depends on their order.
struct Affine {
  unsigned factor = 1, term = 0;
  friend bool operator==(const Affine&, const Affine&) = default;
};
struct Then {
  static constexpr bool commutative = false;
  Affine operator()(const Affine& a, const Affine& b) const {
    return {a.factor * b.factor, a.term * b.factor + b.term};
  }
};
/// The i-th that rank `r` gives.
inline Affine affine_of(int r, long i) {
  return {unsigned(i * 2 + r * 6 + 3), unsigned(i * 7 + r * r)};
}

}  // namespace ccl::test
