// Lanes that a program contains: exchanges, and reductions of elements that the compiled part has
// no lanes for. A compiler must take them with debugging information.
#include <ccl/algo/pairwise.hpp>
#include <ccl/algo/ring.hpp>
#include <ccl/collective.hpp>
#include <ccl/proto/ll.hpp>
#include <ccl/proto/simple.hpp>

#include <span>

struct Vector {
  double x, y, z;
};
struct Add {
  Vector operator()(const Vector& a, const Vector& b) const {
    return {a.x + b.x, a.y + b.y, a.z + b.z};
  }
};
template <class Op, class Algo>
using Plain = ccl::Collective<Op, Algo, ccl::Simple>;

ccl::Result<void> calls(const Plain<ccl::SendRecv, ccl::Pairwise>& messages,
                        const Plain<ccl::AllToAllV, ccl::Pairwise>& exchange,
                        const Plain<ccl::AllReduce, ccl::Ring>& sum,
                        const ccl::Collective<ccl::AllReduce, ccl::Ring, ccl::LL>& sum_by_words,
                        Vector* data, std::span<const ccl::Index> counts) {
  CCL_CHECK(messages(data, 1, 0, data + 1, 1, 0));
  CCL_CHECK(exchange(data, counts, counts, data, counts, counts));
  CCL_CHECK(sum(data, data, 1, Add{}));
  return sum_by_words(data, data, 1, Add{});
}
