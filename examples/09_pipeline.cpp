// User-defined pipeline for an all-reduce of gradients. Sums are in float inside a host, sent as
// bfloat16 between hosts, and returned as float; see docs/guide/pipelines.md. To simulate two
// hosts:
//   for r in 0 1 2 3; do RANK=$r WORLD_SIZE=4 MASTER_ADDR=127.0.0.1 MASTER_PORT=4711
//     CCL_HOSTID=$((r / 2)) 09_pipeline & done
#include <ccl/ccl.hpp>

#include <cmath>
#include <cstdio>
#include <vector>

/// Divides the sum over all ranks by their number, before bfloat16 rounds it.
struct Share {
  float of_all = 1;
  CCL_HD ccl::bfloat16 operator()(float sum) const {
    return ccl::Convert<ccl::bfloat16>{}(sum * of_all);
  }
};

template <class Level, class Op>
using Plain = ccl::On<Level, Op, ccl::Ring, ccl::Simple>;  // Auto, if these two are omitted
using Mean = ccl::Pipeline<Plain<ccl::IntraNode, ccl::ReduceScatter>,  //
                           ccl::Map<Share>,                            //
                           Plain<ccl::InterNode, ccl::AllReduce>,      //
                           ccl::Map<ccl::Convert<float>>,              //
                           Plain<ccl::IntraNode, ccl::AllGather>>;

ccl::Result<void> run() {
  constexpr ccl::Index count = 1'000'003;
  CCL_TRY(const auto comm, ccl::Communicator::from_env());
  CCL_TRY(auto mean, Mean::create(comm, {Share{1.f / float(comm.ranks())}, {}}));
  std::vector<float> gradients(count);
  const auto own = [](int rank, ccl::Index i) { return float(i % 1000) + float(rank); };
  for (ccl::Index i = 0; i < count; ++i) gradients[std::size_t(i)] = own(comm.rank(), i);
  CCL_CHECK(mean(gradients.data(), gradients.data(), count, ccl::Sum{}));
  // Sent values have 8 bits, and so have their sums.
  double worst = 0;
  for (ccl::Index i = 0; i < count; ++i) {
    const double want = own(0, i) + (comm.ranks() - 1) / 2.0;
    worst = std::fmax(worst, std::fabs(gradients[std::size_t(i)] - want) / std::fmax(want, 1));
  }
  if (worst > comm.ranks() / 256.0) return ccl::fail(ccl::Errc::internal, "the mean is wrong");
  if (comm.rank() == 0) {
    std::printf("%sthe largest relative error is %.4f\n", mean.plan<float>(count).text().c_str(),
                worst);
  }
  return comm.finalize();
}

int main() {
  const auto done = run();
  if (!done) std::fprintf(stderr, "%s\n", done.error().message().c_str());
  return done ? 0 : 1;
}
