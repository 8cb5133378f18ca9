// A late rank, an abort and a dead rank end every kernel that waits, and errors name the rank at
// fault. The GPU and the survivors can create another communicator.
#include <csignal>

#include "late.cuh"

using namespace ccl;
using namespace ccl::test;

namespace {

constexpr Index count = 1 << 16;

template <class Algo, class Proto>
auto all_reduce_on(const Communicator& comm) {
  return must(Collective<AllReduce, Algo, Proto, DefaultTransport>::create(comm));
}

/// Tests on all ranks together that the machine works as before the failure.
void check_works(const Communicator& comm) {
  cudaStream_t stream;
  MUST_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  Buffer<float> in{count, 0}, out{count, 0};
  in.fill([&](Index i) { return value(comm.rank(), i); }, stream);
  const auto op = all_reduce_on<Ring, LL128>(comm);
  must(op(in.get(), out.get(), count, Sum{}, stream));
  drain(stream, 10);
  const auto sum = [&](Index i) { return sum_of(comm.ranks(), i); };
  check(out.wrong(count, sum, stream) == 0, "rank %d: wrong after a failure", comm.rank());
  MUST_CUDA(cudaStreamDestroy(stream));
}

/// The last rank does not call. The others' kernels end at the deadline and name it.
template <class Algo, class Proto>
void late(const Communicator& whole) {
  const auto comm = with_timeout(whole, 0.5);
  cudaStream_t stream;
  MUST_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  Buffer<float> in{count, 0}, out{count, 0};
  const auto op = all_reduce_on<Algo, Proto>(comm);
  const int last = comm.ranks() - 1;
  if (comm.rank() != last) {
    const double begin = now_s();
    must(op(in.get(), out.get(), count, Sum{}, stream));
    drain(stream, 10);
    const auto status = failure(comm, 5);
    check(!status, "%s: rank %d noticed nothing", op.name().c_str(), comm.rank());
    if (!status) {
      const Error& e = status.error();
      check(e.code == Errc::timed_out || e.code == Errc::aborted, "%s", e.message().c_str());
      check(!e.message().empty() && now_s() - begin < 5, "%s", e.message().c_str());
      if (comm.rank() == 0) std::printf("late: %s\n", e.message().c_str());
    }
    const auto again = op(in.get(), out.get(), count, Sum{}, stream);
    check(!again, "%s: a poisoned communicator launches", op.name().c_str());
  } else {
    const auto status = failure(comm, 10);
    check(!status, "the late rank gets no error");
  }
  MUST_CUDA(cudaStreamDestroy(stream));
  must(whole.barrier());
}

/// Tests a late rank in a group, whose calls share a kernel.
void late_group(const Communicator& whole) {
  const auto comm = with_timeout(whole, 0.5);
  cudaStream_t stream;
  MUST_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  Buffer<float> in{count, 0}, out{count, 0}, other{count, 0};
  const auto viewed = all_reduce_on<OneShot, LL128>(comm);
  const auto wired = all_reduce_on<Ring, LL128>(comm);
  const auto call = [&] {
    return group(stream, viewed.bind(in.get(), out.get(), count),
                 wired.bind(in.get(), other.get(), count));
  };
  must(call());
  drain(stream, 10);
  if (comm.rank() != comm.ranks() - 1) {
    must(call());
    drain(stream, 10);
    const auto status = failure(comm, 5);
    check(!status, "rank %d noticed nothing of a late group", comm.rank());
    if (!status) {
      const Error& e = status.error();
      check(e.code == Errc::timed_out || e.code == Errc::aborted, "%s", e.message().c_str());
      if (comm.rank() == 0) std::printf("late group: %s\n", e.message().c_str());
    }
    check(!call(), "a poisoned communicator launches a group");
  } else {
    check(!failure(comm, 10), "the rank that is late with a group gets no error");
  }
  MUST_CUDA(cudaStreamDestroy(stream));
  must(whole.barrier());
}

/// Rank 0 waits in a kernel without a deadline, and another thread calls abort.
void aborted(const Communicator& whole) {
  const auto comm = with_timeout(whole, 0);
  cudaStream_t stream;
  MUST_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  Buffer<float> in{count, 0}, out{count, 0};
  const auto op = all_reduce_on<Ring, Simple>(comm);
  const int last = comm.ranks() - 1;
  if (comm.rank() != last) must(op(in.get(), out.get(), count, Sum{}, stream));
  double asked = 0;
  if (comm.rank() == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds{300});
    check(cudaStreamQuery(stream) == cudaErrorNotReady, "the kernel did not wait");
    asked = now_s();
    comm.abort("the test wants it");
  }
  const auto status = failure(comm, 10);
  check(!status && status.error().message().find("the test wants it") != std::string::npos, "%s",
        status ? "no failure" : status.error().message().c_str());
  drain(stream, 10);
  if (comm.rank() == 0) std::printf("abort: kernels ended within %.3f s\n", now_s() - asked);
  MUST_CUDA(cudaStreamDestroy(stream));
  must(whole.barrier());
}

void suite(const Communicator& comm) {
  late<Ring, LL>(comm);
  late<Ring, LL128>(comm);
  late<Ring, Simple>(comm);
  late<Tree, LL128>(comm);
  late<OneShot, LL128>(comm);
  late_group(comm);
  aborted(comm);
  check_works(comm);
}

/// In read mode, where kernels load from their peers.
void reading_suite(const Communicator& comm) {
  late<Ring, Simple>(comm);
  late<Tree, Simple>(comm);
  aborted(comm);
  check_works(comm);
}

/// A rank of which the last one is killed while its peers' kernels wait for it.
template <class Proto>
void killed_rank(const Config& config) {
  Communicator comm = must(Communicator::from_env(config));
  const int last = comm.ranks() - 1;
  MUST_CUDA(cudaSetDevice(comm.device()));
  cudaStream_t stream;
  MUST_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  Buffer<float> in{count, 0}, out{count, 0};
  const auto op = all_reduce_on<Ring, Proto>(comm);
  for (int i = 0; i < 10; ++i) must(op(in.get(), out.get(), count, Sum{}, stream));
  drain(stream, 10);
  // The others may still be in it when the last rank, which is through, dies.
  (void)comm.barrier();
  if (comm.rank() == last) ::kill(::getpid(), SIGKILL);
  const double begin = now_s();
  (void)op(in.get(), out.get(), count, Sum{}, stream);
  const auto status = failure(comm, 10);
  drain(stream, 10);
  const double took = now_s() - begin;
  check(!status && status.error().peer == last, "a killed rank: %s",
        status ? "nobody noticed" : status.error().message().c_str());
  check(took < 5, "it took %.1f s", took);
  if (comm.rank() == 0 && !status) {
    std::printf("kill: %.3f s: %s\n", took, status.error().message().c_str());
  }
  // Those that are left go on, on the same GPUs.
  const Communicator rest = must(comm.shrink(std::vector{last}));
  check_works(rest);
  must(rest.finalize());
  std::fflush(stdout);
  std::_Exit(0);
}

template <class Proto>
void killed(int ranks, const Config& config) {
  const auto children =
      start_processes(ranks, rendezvous_port(1), [&](int) { killed_rank<Proto>(config); });
  for (std::size_t c = 0; c < children.size(); ++c) {
    int status = 0;
    ::waitpid(children[c], &status, 0);
    const bool victim = c + 1 == children.size();
    check(victim ? WIFSIGNALED(status) : ended_well(status), "rank %d's process ended with %d",
          int(c), status);
  }
}

}  // namespace

int main() {
  const Ranks ranks = find_ranks();
  if (ranks.gpus == 0) return skipped();
  ::setenv("CCL_TIMEOUT", "5", 0);
  ::setenv("CCL_DEBUG", "NONE", 0);
  as_threads(ranks.count, {}, suite);
  as_processes(ranks.count, {}, suite);
  for (int i = 0; i < 3; ++i) killed<LL128>(ranks.count, {});
  ::setenv("CCL_P2P_READ_ENABLE", "1", 1);
  as_threads(ranks.count, {}, reading_suite);
  as_processes(ranks.count, {}, reading_suite);
  killed<Simple>(ranks.count, {});
  return result("Abort", ranks.gpus);
}
