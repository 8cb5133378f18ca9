// Compositions with checks on GPUs: they run like others, and a NaN or another call fails all ranks
// with an error that names the rank and the values.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "late.cuh"

using namespace ccl;
using namespace ccl::test;

namespace {

constexpr Index count = 100'000;

template <class Algo, class Proto>
void runs_well(const Communicator& comm, cudaStream_t stream) {
  const auto op = must(Collective<AllReduce, Checked<Algo>, Proto, DefaultTransport>::create(comm));
  for (const Index n : {Index{1}, Index{1001}, count}) {
    Buffer<float> in{n, n % 2}, out{n, n % 2};
    in.fill([&](Index i) { return value(comm.rank(), i); }, stream);
    for (int i = 0; i < 3; ++i) must(op(in.get(), out.get(), n, Sum{}, stream));
    drain(stream, 10);
    const auto sum = [&](Index i) {
      double s = 0;
      for (int r = 0; r < comm.ranks(); ++r) s += value(r, i);
      return s;
    };
    check(out.wrong(n, sum, stream) == 0, "%s count %ld rank %d", op.name().c_str(), long(n),
          comm.rank());
  }
}

/// Every rank's failure contains `text`.
void check_failure(const char* what, const Communicator& comm, Errc code, const std::string& text) {
  const auto status = failure(comm, 10);
  check(!status, "%s: rank %d noticed nothing", what, comm.rank());
  if (status) return;
  const Error& e = status.error();
  check(e.code == code && e.what.find(text) != std::string::npos, "%s: rank %d: %s", what,
        comm.rank(), e.message().c_str());
  if (comm.rank() == 0) std::printf("%s: %s\n", what, e.message().c_str());
}

template <class Proto>
void finds_nan(const Communicator& whole, cudaStream_t stream) {
  const auto comm = with_timeout(whole, 20);
  const auto op = must(Collective<AllReduce, Checked<Ring>, Proto, DefaultTransport>::create(comm));
  Buffer<float> in{count, 0}, out{count, 0};
  const int at_rank = comm.ranks() - 1;
  in.fill(
      [&](Index i) {
        const bool bad = comm.rank() == at_rank && (i == 54'321 || i == 98'765);
        return bad ? std::nan("") : value(comm.rank(), i);
      },
      stream);
  must(op(in.get(), out.get(), count, Sum{}, stream));
  check_failure("NaN", comm, Errc::not_a_number,
                "element 54321 of the input of rank " + std::to_string(at_rank) + " is NaN");
  drain(stream, 10);
  must(whole.barrier());
}

template <class Proto>
void finds_mismatch(const Communicator& whole, cudaStream_t stream) {
  const auto comm = with_timeout(whole, 20);
  const auto op = must(Collective<AllReduce, Checked<Ring>, Proto, DefaultTransport>::create(comm));
  Buffer<float> in{count, 0}, out{count, 0};
  in.fill([&](Index i) { return value(comm.rank(), i); }, stream);
  must(op(in.get(), out.get(), comm.rank() == 0 ? count : count / 2, Sum{}, stream));
  check_failure("mismatch", comm, Errc::mismatch, "100000 float, sum");
  check_failure("mismatch", comm, Errc::mismatch, "50000 float, sum");
  drain(stream, 10);
  must(whole.barrier());
}

/// Times of calls with checks and without, us, of which the least counts.
template <class Algo>
double call_us(const Communicator& comm, Index n, cudaStream_t stream) {
  const auto op = must(Collective<AllReduce, Algo, Simple, DefaultTransport>::create(comm));
  Buffer<float> in{n, 0}, out{n, 0};
  in.fill([&](Index i) { return value(comm.rank(), i); }, stream);
  double best = 1e9;
  for (int round = 0; round < 20; ++round) {
    must(comm.barrier());
    const double begin = now_s();
    for (int i = 0; i < 20; ++i) must(op(in.get(), out.get(), n, Sum{}, stream));
    drain(stream, 10);
    best = std::min(best, (now_s() - begin) / 20 * 1e6);
  }
  return best;
}
void times(const Communicator& comm, cudaStream_t stream) {
  for (const Index n : {Index{64}, Index{1} << 18, Index{1} << 24}) {
    const double plain = call_us<Ring>(comm, n, stream),
                 calls = call_us<Checked<Ring, CallCheck>>(comm, n, stream),
                 both = call_us<Checked<Ring>>(comm, n, stream);
    if (comm.rank() != 0) continue;
    std::printf("%ld bytes: Ring %.1f us, with CallCheck %.1f us, with both checks %.1f us\n",
                long(n) * 4, plain, calls, both);
  }
}

void suite(Communicator comm) {
  cudaStream_t stream;
  MUST_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  runs_well<Ring, Simple>(comm, stream);
  runs_well<Ring, LL>(comm, stream);
  runs_well<Ring, LL128>(comm, stream);
  runs_well<Tree, Simple>(comm, stream);
  finds_nan<Simple>(comm, stream);
  finds_nan<LL>(comm, stream);
  finds_nan<LL128>(comm, stream);
  finds_mismatch<Simple>(comm, stream);
  finds_mismatch<LL>(comm, stream);
  finds_mismatch<LL128>(comm, stream);
  if (std::getenv("TEST_TIMES") != nullptr) times(comm, stream);
  MUST_CUDA(cudaStreamDestroy(stream));
}

}  // namespace

int main() {
  const Ranks ranks = find_ranks();
  if (ranks.gpus == 0) return skipped();
  ::setenv("CCL_DEBUG", "NONE", 0);
  as_threads(ranks.count, {}, suite);
  as_processes(ranks.count, {}, suite);
  return result("Checked", ranks.gpus);
}
