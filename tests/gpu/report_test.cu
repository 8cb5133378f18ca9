// One rank does not call: the errors of all other ranks name it, the operation and the step.
#include <chrono>
#include <csignal>

#include "communicator.cuh"

using namespace ccl;
using namespace ccl::test;

namespace {
using Sums = Collective<AllReduce, Ring, LL, DefaultTransport>;
constexpr Index count = 5000;

/// Runs three all-reduces, then waits until this communicator has failed. `miss` is called before
/// the last and returns true to skip it.
template <class Miss>
Result<void> play(const Communicator& comm, Miss&& miss) {
  CCL_TRY(auto sums, Sums::create(comm));
  cudaStream_t stream;
  MUST_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  float* data = nullptr;
  MUST_CUDA(cudaMalloc(&data, count * sizeof(float)));
  MUST_CUDA(cudaMemset(data, 0, count * sizeof(float)));
  for (int i = 0; i < 3; ++i) {
    if (i == 2 && miss()) break;
    CCL_CHECK(sums(data, data, count, Sum{}, stream));
    if (i == 1) MUST_CUDA(cudaStreamSynchronize(stream));
  }
  MUST_CUDA(cudaStreamSynchronize(stream));
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (comm.status() && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  MUST_CUDA(cudaFree(data));
  MUST_CUDA(cudaStreamDestroy(stream));
  return comm.status();
}

void check_error(const char* what, int rank, const Result<void>& end, int victim,
                 const std::string& part) {
  const std::string text = end ? "no error" : end.error().message();
  check(!end && end.error().peer == victim && text.find(part) != text.npos &&
            text.find("all_reduce/Ring/LL/any, 5000 float, sum") != text.npos &&
            text.find("waits for it at step") != text.npos,
        "%s: rank %d says: %s", what, rank, text.c_str());
}
}  // namespace

int main() {
  const Ranks ranks = find_ranks();
  if (ranks.gpus == 0) return skipped();
  const int victim = ranks.count - 1;
  Config config;
  config.timeout_s = 1;
  as_threads(ranks.count, config, [&](Communicator comm) {
    const auto end = play(comm, [&] { return comm.rank() == victim; });
    check_error("skips", comm.rank(), end, victim, "has not called operation 3");
  });

  // Ranks are processes, and one is stopped.
  const auto id = must(create_unique_id());
  std::vector<pid_t> children;
  for (int r = 0; r < ranks.count; ++r) {
    const pid_t child = ::fork();
    if (child != 0) {
      children.push_back(child);
      continue;
    }
    Config mine = config;
    mine.device = ranks.gpus == 1 ? 0 : r;
    const Communicator comm = must(Communicator::create(id, r, ranks.count, mine));
    MUST_CUDA(cudaSetDevice(comm.device()));
    const auto end = play(comm, [&] {
      if (r == victim) ::raise(SIGSTOP);
      return false;
    });
    check_error("is stopped", r, end, victim,
                "does not answer (stopped, or cut off) in operation 3");
    std::fflush(stdout);
    std::_Exit(0);
  }
  for (int r = 0; r < victim; ++r) ::waitpid(children[size_t(r)], nullptr, 0);
  ::kill(children[size_t(victim)], SIGKILL);
  ::waitpid(children[size_t(victim)], nullptr, 0);
  check(score().cases >= 2 * ranks.count, "only %ld ranks have checked", score().cases.load());
  return result("Report", ranks.gpus);
}
