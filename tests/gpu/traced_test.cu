// Kernels of traced compositions on GPUs: the phases that they note are in order, and follow the
// calls.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "late.cuh"

using namespace ccl;
using namespace ccl::test;

namespace {

constexpr Index count = 100'000;

template <class Algo, class Proto>
void notes(const Communicator& comm, cudaStream_t stream) {
  const auto op = must(Collective<AllReduce, Traced<Algo>, Proto, DefaultTransport>::create(comm));
  Buffer<float> in{count, 0}, out{count, 0};
  in.fill([&](Index i) { return value(comm.rank(), i); }, stream);
  for (int i = 0; i < 5; ++i) {
    must(comm.barrier());
    must(op(in.get(), out.get(), count, Sum{}, stream));
    drain(stream, 10);
  }
  const FlightRecord record = comm.flight_record();
  int calls = 0;
  for (const LanePhases& of : record.phases) {
    const Operation* const called = record.status.find(of.number);
    if (called == nullptr || std::string{called->what}.find(op.name()) == std::string::npos)
      continue;
    calls += of.channel == 0;
    const bool in_order = of.begun_ns <= of.ready_ns && of.ready_ns <= of.first_data_ns &&
                          of.first_data_ns <= of.last_data_ns && of.last_data_ns <= of.ended_ns;
    // Clocks are read apart.
    const bool after = called->queued_ns <= of.begun_ns + 1'000'000;
    check(in_order && after, "%s rank %d call %lu: called %lu, %lu %lu %lu %lu %lu",
          op.name().c_str(), comm.rank(), of.call, called->queued_ns, of.begun_ns, of.ready_ns,
          of.first_data_ns, of.last_data_ns, of.ended_ns);
    if (comm.rank() == 0 && of.channel == 0) {
      std::printf("%s: launch %lu ns, first data %lu ns, data %lu ns, end %lu ns\n",
                  op.name().c_str(), of.begun_ns - std::min(called->queued_ns, of.begun_ns),
                  of.first_data_ns - of.ready_ns, of.last_data_ns - of.first_data_ns,
                  of.ended_ns - of.last_data_ns);
    }
  }
  check(calls == 5, "%s rank %d: %d calls with phases", op.name().c_str(), comm.rank(), calls);
}

/// Least time of calls, us.
template <class Algo, class Proto>
double call_us(const Communicator& comm, Index n, cudaStream_t stream) {
  const auto op = must(Collective<AllReduce, Algo, Proto, DefaultTransport>::create(comm));
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
template <class Algo, class Proto>
void times_of(const Communicator& comm, Index n, cudaStream_t stream) {
  const double plain = call_us<Algo, Proto>(comm, n, stream),
               traced = call_us<Traced<Algo>, Proto>(comm, n, stream);
  if (comm.rank() != 0) return;
  std::printf("%ld bytes: %s/%s %.1f us, traced %.1f us\n", long(n) * 4, Algo::name, Proto::name,
              plain, traced);
}
void times(const Communicator& comm, cudaStream_t stream) {
  for (const Index n : {Index{64}, Index{1} << 18, Index{1} << 24}) {
    times_of<Ring, LL128>(comm, n, stream);
    times_of<OneShot, LL128>(comm, n, stream);
  }
}

void suite(Communicator comm) {
  cudaStream_t stream;
  MUST_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  notes<Ring, Simple>(comm, stream);
  notes<Ring, LL128>(comm, stream);
  notes<Tree, LL>(comm, stream);
  notes<OneShot, LL128>(comm, stream);
  notes<TwoShot, LL128>(comm, stream);
  notes<Direct, Simple>(comm, stream);
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
  return result("Traced", ranks.gpus);
}
