// Kernels of each kind, for all architectures: over wires by each protocol, over peers' memory, and
// of elements that a GPU converts. Those of float8 are not here: over LL128, for buffers without
// alignment, they spill up to 280 bytes on every architecture.
#include <ccl/ccl.cuh>

namespace {
using namespace ccl;

template <class Algo, class Proto, class T>
Result<void> sum(const Communicator& comm, T* data, Index count) {
  CCL_TRY(const auto all_reduce,
          (Collective<AllReduce, Algo, Proto, DefaultTransport>::create(comm)));
  return all_reduce(data, data, count);
}
template <class T>
Result<void> sums(const Communicator& comm, T* data, Index count) {
  CCL_CHECK((sum<Ring, LL128>(comm, data, count)));
  CCL_CHECK((sum<Tree, LL>(comm, data, count)));
  CCL_CHECK((sum<Ring, Simple>(comm, data, count)));
  CCL_CHECK((sum<OneShot, LL128>(comm, data, count)));
  return sum<TwoShot, Sentinel>(comm, data, count);
}
}  // namespace

Result<void> run_all(const Communicator& comm, float* floats, bfloat16* halves, Index count) {
  CCL_CHECK(sums(comm, floats, count));
  CCL_CHECK(sums(comm, halves, count));
  CCL_TRY(const auto all_to_all,
          (Collective<AllToAll, Direct, Simple, DefaultTransport>::create(comm)));
  return all_to_all(halves, halves + comm.ranks() * count, count);
}
