#include <ccl/detail/numeric/reduction.hpp>
#include <ccl/element/data_type.hpp>

struct Pair {
  float a, b;
  constexpr Pair(double x) : a(float(x)), b(float(x)) {}
  constexpr Pair(float x, float y) : a(x), b(y) {}
  friend CCL_HD constexpr Pair operator+(Pair x, Pair y) { return {x.a + y.a, x.b + y.b}; }
  friend CCL_HD constexpr Pair operator*(Pair x, Pair y) { return {x.a * y.a, x.b * y.b}; }
  friend CCL_HD constexpr Pair operator/(Pair x, int n) { return {x.a / float(n), x.b / float(n)}; }
};
struct Larger {
  float operator()(float a, float b) const { return a < b ? b : a; }
};
static_assert(sizeof(ccl::detail::Reduction<ccl::PreMulSum, Pair>) > 0);
static_assert(sizeof(ccl::detail::Reduction<ccl::Avg, Pair>) > 0);
static_assert(sizeof(ccl::detail::Reduction<Larger, float>) > 0);
static_assert(sizeof(ccl::detail::Reduction<ccl::Sum, float, double>) > 0);
static_assert(sizeof(ccl::detail::CellReducer<ccl::detail::Reduction<ccl::Sum, Pair>, 2>) > 0);
static_assert(ccl::data_type_of<float> == ccl::DataType::float32);
