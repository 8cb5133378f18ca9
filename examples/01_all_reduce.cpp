#include <ccl/ccl.hpp>

#include <cstdio>
#include <vector>

// An all-reduce over the ring, on the CPU. Run it alone, or with mpirun, torchrun or srun.
using SumRing = ccl::Collective<ccl::AllReduce, ccl::Ring, ccl::Simple, ccl::DefaultTransport>;

ccl::Result<void> run() {
  CCL_TRY(auto comm, ccl::Communicator::from_env());
  CCL_TRY(auto all_reduce, SumRing::create(comm));
  std::vector<float> send(1 << 20, float(comm.rank() + 1)), recv(send.size());
  CCL_CHECK(all_reduce(send.data(), recv.data(), ccl::Index(send.size()), ccl::Sum{}));
  std::printf("rank %d of %d: sum %g\n", comm.rank(), comm.ranks(), double(recv[0]));
  return comm.finalize();
}

int main() {
  if (auto done = run(); !done) {
    std::fprintf(stderr, "%s\n", done.error().message().c_str());
    return 1;
  }
}
