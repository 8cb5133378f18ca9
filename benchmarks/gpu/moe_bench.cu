// Tokens of a mixture of experts to the ranks of their experts and back (examples/moe/moe.cuh), on
// all GPUs of this machine as threads. Prints one line of JSON per case. Times are from CUDA
// graphs, and results are checked before and after.
//   moe_bench [tokens...]
#include <algorithm>
#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>

#include "../../examples/moe/moe_stand_in.cuh"
#include "machine.cuh"

using namespace ccl;
using ccl::bench::must;

namespace {

template <class T>
T good(Result<T> r) {
  if (!r) {
    std::printf("%s\n", r.error().message().c_str());
    std::fflush(stdout);
    std::_Exit(1);
  }
  if constexpr (!std::is_void_v<T>) return *std::move(r);
}

constexpr int calls = 20;  // calls of a graph
constexpr int clocks = 15;

struct Times {
  double dispatch, combine, both;
  long wrong, rows;
};

class Rank {
 public:
  Rank(const Communicator& comm, moe::Shape shape, std::barrier<>& all)
      : comm_{comm}, shape_{shape}, all_{all}, layer_{good(moe::Layer::create(comm, shape))} {
    MUST(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    const std::size_t bytes =
        std::size_t(shape.tokens) * std::size_t(shape.hidden) * sizeof(moe::Token);
    MUST(cudaMalloc(&tokens_, bytes));
    MUST(cudaMalloc(&out_, bytes));
    MUST(cudaMalloc(&results_, bytes * std::size_t(comm.ranks())));
    MUST(cudaMalloc(&picks_, std::size_t(shape.tokens * shape.top) * sizeof(moe::Pick)));
  }

  Times run() {
    Times times{};
    times.wrong = check(0) + check(1);
    const auto dispatch = [&] { good(layer_.dispatch(tokens_, picks_, stream_)); };
    const auto combine = [&] { good(layer_.combine(results_, out_, stream_)); };
    times.dispatch = time(dispatch);
    times.combine = time(combine);
    times.both = time([&] { dispatch(), combine(); });
    times.wrong += check(2);
    std::vector<int> counts(std::size_t(comm_.ranks()));
    MUST(cudaMemcpy(counts.data(), layer_.arrived().counts, counts.size() * sizeof(int),
                    cudaMemcpyDeviceToHost));
    for (const int n : counts) times.rows += n;
    return times;
  }

 private:
  /// Runs one pass with tokens and choices of its own. Returns the number of wrong elements.
  long check(int turn) {
    const auto x = moe::tokens_of(shape_, comm_.rank(), turn);
    const auto chosen = moe::picks_of(shape_, comm_.rank(), turn);
    auto y = x;
    MUST(cudaMemcpy(tokens_, x.data(), x.size() * sizeof(moe::Token), cudaMemcpyHostToDevice));
    MUST(cudaMemcpy(picks_, chosen.data(), chosen.size() * sizeof(moe::Pick),
                    cudaMemcpyHostToDevice));
    good(layer_.dispatch(tokens_, picks_, stream_));
    moe::run_experts<<<unsigned(comm_.ranks() * shape_.tokens), 256, 0, stream_>>>(
        shape_, layer_.arrived(), results_);
    good(layer_.combine(results_, out_, stream_));
    MUST(cudaStreamSynchronize(stream_));
    MUST(cudaMemcpy(y.data(), out_, y.size() * sizeof(moe::Token), cudaMemcpyDeviceToHost));
    return moe::wrong(shape_, comm_.rank(), turn, y);
  }
  /// Returns the microseconds of one call: the second of two consecutive replays, when all GPUs are
  /// in step.
  double time(const std::function<void()>& call) {
    cudaGraph_t captured;
    cudaGraphExec_t graph;
    cudaEvent_t begin, end;
    MUST(cudaEventCreate(&begin));
    MUST(cudaEventCreate(&end));
    MUST(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < calls; ++i) call();
    MUST(cudaStreamEndCapture(stream_, &captured));
    MUST(cudaGraphInstantiate(&graph, captured, 0));
    std::vector<float> us;
    for (int i = 0; i < clocks; ++i) {
      all_.arrive_and_wait();
      MUST(cudaGraphLaunch(graph, stream_));
      MUST(cudaEventRecord(begin, stream_));
      MUST(cudaGraphLaunch(graph, stream_));
      MUST(cudaEventRecord(end, stream_));
      MUST(cudaStreamSynchronize(stream_));
      float ms = 0;
      MUST(cudaEventElapsedTime(&ms, begin, end));
      us.push_back(ms * 1000 / calls);
    }
    MUST(cudaGraphExecDestroy(graph));
    MUST(cudaGraphDestroy(captured));
    std::sort(us.begin(), us.end());
    return us[us.size() / 2];
  }

  Communicator comm_;
  moe::Shape shape_;
  std::barrier<>& all_;
  moe::Layer layer_;
  cudaStream_t stream_;
  moe::Token *tokens_, *out_, *results_;
  moe::Pick* picks_;
};

bool run(int gpus, moe::Shape shape) {
  Config config;
  config.memory_budget_bytes = Index{1} << 30;
  const auto comms = good(Communicator::create_all(gpus, config));
  std::vector<Times> times{std::size_t(gpus)};
  std::barrier all{gpus};
  std::vector<std::thread> threads;
  for (int r = 0; r < gpus; ++r) {
    threads.emplace_back([&, r] {
      MUST(cudaSetDevice(comms[std::size_t(r)].device()));
      times[std::size_t(r)] = Rank{comms[std::size_t(r)], shape, all}.run();
    });
  }
  for (auto& thread : threads) thread.join();
  Times worst{};
  for (const Times& t : times) {
    worst.dispatch = std::max(worst.dispatch, t.dispatch);
    worst.combine = std::max(worst.combine, t.combine);
    worst.both = std::max(worst.both, t.both);
    worst.rows = std::max(worst.rows, t.rows);
    worst.wrong += t.wrong;
  }
  const double mib = double(worst.rows) * shape.hidden * sizeof(moe::Token) / (1 << 20);
  std::printf(
      "{\"bench\":\"moe\",\"gpus\":%d,\"tokens\":%d,\"hidden\":%d,\"top\":%d,"
      "\"experts\":%d,\"dispatch_us\":%.2f,\"combine_us\":%.2f,\"both_us\":%.2f,"
      "\"arrived_mib\":%.2f,\"wrong\":%ld}\n",
      gpus, shape.tokens, shape.hidden, shape.top, shape.experts, worst.dispatch, worst.combine,
      worst.both, mib, worst.wrong);
  std::fflush(stdout);
  return worst.wrong == 0;
}

}  // namespace

int main(int argc, char** argv) {
  ::setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  ::setenv("CCL_TIMEOUT", "5", 0);
  int gpus = 0;
  if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus < 1) {
    std::printf("SKIP: no GPU\n");
    return 77;
  }
  std::vector<int> tokens;
  for (int a = 1; a < argc; ++a) tokens.push_back(std::atoi(argv[a]));
  if (tokens.empty()) tokens = {1, 16, 64, 128};
  bool right = true;
  for (const int ranks : {2, 4, 8}) {
    for (const int n : tokens) {
      moe::Shape shape;
      shape.tokens = n;
      if (ranks <= gpus) right = run(ranks, shape) && right;
    }
  }
  return right ? 0 : 1;
}
