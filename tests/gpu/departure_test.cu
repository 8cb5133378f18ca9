// Processes on GPUs that exit with live communicators. The others learn of it only if they need
// more of the one that has left.
#include "late.cuh"

using namespace ccl;
using namespace ccl::test;

namespace {

constexpr Index count = 1 << 16;

/// When the last rank leaves.
enum class Leaves { after_calls, before_a_call, with_a_call };

const char* name_of(Leaves when) {
  switch (when) {
    case Leaves::after_calls:
      return "after its calls";
    case Leaves::before_a_call:
      return "before a call of the others";
    case Leaves::with_a_call:
      return "with a call under way";
  }
  return "";
}

/// What a rank does that stays.
template <class Call>
void stays(const Communicator& comm, Leaves when, Call call, const Buffer<float>& out,
           cudaStream_t stream) {
  const int last = comm.ranks() - 1;
  const double begin = now_s();
  if (when == Leaves::after_calls) {
    std::this_thread::sleep_for(std::chrono::seconds{2});
    const auto status = comm.status();
    check(bool(status), "nothing was needed: %s", status ? "" : status.error().message().c_str());
    return;
  }
  const auto called = call();
  drain(stream, 20);
  if (when == Leaves::with_a_call) {
    // Either the call was through when the other left, or it has an error.
    std::this_thread::sleep_for(std::chrono::seconds{2});
    if (called && comm.status()) {
      check(out.wrong(
                count, [&](Index i) { return sum_of(comm.ranks(), i); }, stream) == 0,
            "rank %d: a wrong sum without an error", comm.rank());
      return;
    }
  }
  const auto status = failure(comm, 10);
  const std::string text = status ? "no failure" : status.error().message();
  check(!status && status.error().peer == last, "%s: rank %d: %s", name_of(when), comm.rank(),
        text.c_str());
  check(now_s() - begin < 12, "%s: %.1f s", name_of(when), now_s() - begin);
  if (comm.rank() == 0) {
    std::printf("%s: %.2f s: %s\n", name_of(when), now_s() - begin, text.c_str());
  }
}

/// The life of a rank's process.
template <class Algo, class Proto>
[[noreturn]] void live(Leaves when) {
  ::alarm(60);
  // Never destroyed: the exit finds it alive.
  auto& comm = *new Communicator{must(Communicator::from_env())};
  MUST_CUDA(cudaSetDevice(comm.device()));
  cudaStream_t stream;
  MUST_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  auto& in = *new Buffer<float>{count, 0};
  auto& out = *new Buffer<float>{count, 0};
  in.fill([&](Index i) { return value(comm.rank(), i); }, stream);
  using Op = Collective<AllReduce, Algo, Proto, DefaultTransport>;
  const auto& op = *new Op{must(Op::create(comm))};
  const auto call = [&] { return op(in.get(), out.get(), count, Sum{}, stream); };
  for (int i = 0; i < 10; ++i) must(call());
  drain(stream, 20);
  must(comm.barrier());
  if (comm.rank() == comm.ranks() - 1) {
    if (when == Leaves::with_a_call) must(call());
  } else {
    stays(comm, when, call, out, stream);
  }
  std::fflush(stdout);
  std::exit(0);
}

template <class Algo, class Proto>
void leave(int ranks, Leaves when) {
  const auto children =
      start_processes(ranks, rendezvous_port(1), [&](int) { live<Algo, Proto>(when); });
  for (std::size_t r = 0; r < children.size(); ++r) {
    int status = 0;
    ::waitpid(children[r], &status, 0);
    check(ended_well(status), "%s: rank %d's process ended with %d", name_of(when), int(r), status);
  }
}

}  // namespace

int main() {
  const Ranks ranks = find_ranks();
  if (ranks.gpus == 0) return skipped();
  ::setenv("CCL_TIMEOUT", "0", 1);
  ::setenv("CCL_DEBUG", "NONE", 0);
  if (!asked_for("processes")) return 0;
  for (const auto when : {Leaves::after_calls, Leaves::before_a_call, Leaves::with_a_call}) {
    leave<Ring, LL128>(ranks.count, when);
    leave<Ring, Simple>(ranks.count, when);
    leave<OneShot, LL128>(ranks.count, when);
    leave<Direct, Simple>(ranks.count, when);
  }
  return result("Departure", ranks.gpus);
}
