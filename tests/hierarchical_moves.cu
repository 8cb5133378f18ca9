// A program moves a collective of two levels into an object of its own. nvcc takes that move for a
// function of host and device, in which a function of the host alone is an error here. Whether
// nvcc notices depends on the whole file, even on the order of its headers, which formatting would
// change.
// clang-format off
#include <ccl/collective.cuh>
#include <ccl/algo/ring.hpp>
#include <ccl/hierarchical.hpp>
#include <memory>
using namespace ccl;
using C = Collective<AllGather, Hierarchical<Ring, Ring>, Simple>;
struct R { virtual ~R() = default; };
struct W : R { explicit W(C c) : c_{std::move(c)} {} C c_; };
Result<std::unique_ptr<R>> make(const Communicator& comm) {
  CCL_TRY(auto c, C::create(comm, {}));
  return std::make_unique<W>(std::move(c));
}
