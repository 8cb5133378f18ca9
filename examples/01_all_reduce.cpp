#include <ccl/ccl.hpp>

#include <cstdio>
#include <vector>

ccl::Result<void> run() {
  CCL_TRY(const auto comm, ccl::Communicator::from_env());  // mpirun, torchrun, srun, or alone
  CCL_TRY(const auto all_reduce, ccl::Collective<ccl::AllReduce>::create(comm));
  std::vector<float> data(1000, float(comm.rank() + 1));
  CCL_CHECK(all_reduce(data.data(), data.data(), 1000, ccl::Sum{}));
  std::printf("rank %d of %d: the sum is %g\n", comm.rank(), comm.ranks(), data[999]);
  return comm.finalize();
}

int main() {
  const auto done = run();
  if (!done) std::fprintf(stderr, "%s\n", done.error().message().c_str());
  return done ? 0 : 1;
}
