// expect: ccl: an element type must be trivially copyable (ranks exchange its bytes); reduce a plain struct of its data instead
#include <ccl/detail/numeric/reduction.hpp>

#include <vector>

struct Histogram {
  std::vector<int> bins;
  friend Histogram operator+(const Histogram& a, const Histogram&) { return a; }
};
using Bad = ccl::detail::Reduction<ccl::Sum, Histogram>;
Histogram first(const Bad& reduction, const Histogram& own) {
  return reduction.prepare(own);
}
