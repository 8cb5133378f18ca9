// Several communicators on the same GPUs: their launches end, whether they fit side by side or wait
// for each other, beside graphs and a kernel that holds multiprocessors.
//
// SOAK_S: seconds of random calls for each number of communicators (1 by default); SOAK_SEED: its
// seed. TEST_CALLS: calls queued on each communicator in opposite orders (1, 2 and 6 without it).
#include <algorithm>
#include <chrono>
#include <memory>
#include <random>

#include "late.cuh"

using namespace ccl;
using namespace ccl::test;

namespace {

double seconds = 1;
unsigned seed = 1;
int ranks_on_gpu = 1;

using SumRing = Collective<AllReduce, Ring, Simple, DefaultTransport>;

/// Holds multiprocessors for a time, or starts later work of its stream late.
__global__ void hold(long long ns) {
  extern __shared__ char whole[];
  long long now, begin;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  do {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - begin < ns);
  if (now < 0) whole[0] = 0;
}
constexpr int held_bytes = 48 << 10;

int multiprocessors() {
  int device = 0, count = 0;
  MUST_CUDA(cudaGetDevice(&device));
  MUST_CUDA(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
  return count;
}

/// A communicator of all ranks, with buffers and a stream.
struct Member {
  static constexpr Index most = 1 << 20;
  Communicator comm;
  SumRing sum = must(SumRing::create(comm));
  Buffer<float> in{most, 0}, out{most, 0};
  cudaStream_t stream = nullptr;
  cudaGraphExec_t ready = nullptr;

  /// `blocks`: maximum of a launch; 0: the default.
  Member(const Communicator& whole, int blocks, bool in_order)
      : comm{must(whole.split(0, whole.rank(), config(whole, blocks, in_order))).value()} {
    MUST_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    in.fill([&](Index i) { return value(comm.rank(), i); }, stream);
  }
  ~Member() {
    if (ready != nullptr) MUST_CUDA(cudaGraphExecDestroy(ready));
    must(comm.finalize());
    MUST_CUDA(cudaStreamDestroy(stream));
  }
  Member(const Member&) = delete;
  static Config config(const Communicator& whole, int blocks, bool in_order) {
    Config config;
    config.device = whole.device();
    config.implicit_launch_order = in_order;
    if (blocks > 0) config.max_channels = blocks;
    config.memory_budget_bytes = Index{256} << 20;
    return config;
  }
  void call(cudaStream_t on, Index count = most) {
    must(sum(in.get(), out.get(), count, Sum{}, on));
  }
  void capture(cudaStream_t on, int calls) {
    cudaGraph_t graph = nullptr;
    MUST_CUDA(cudaStreamBeginCapture(on, cudaStreamCaptureModeThreadLocal));
    for (int n = 0; n < calls; ++n) call(on);
    MUST_CUDA(cudaStreamEndCapture(on, &graph));
    MUST_CUDA(cudaGraphInstantiate(&ready, graph, 0));
    MUST_CUDA(cudaGraphDestroy(graph));
  }
  /// Waits for `on`, and checks the last result.
  void finish(cudaStream_t on, const char* scene, Index count = most) {
    drain(on, 60);
    const int ranks = comm.ranks();
    const auto want = [ranks](Index i) {
      double sum = 0;
      for (int r = 0; r < ranks; ++r) sum += value(r, i);
      return sum;
    };
    const long wrong = out.wrong(count, want, stream);
    const auto status = comm.status();
    check(wrong == 0 && status.has_value(), "%s: rank %d: %ld wrong%s%s", scene, comm.rank(), wrong,
          status ? "" : ": ", status ? "" : status.error().message().c_str());
    if (status) return;
    std::fflush(stdout);
    std::_Exit(2);
  }
};
using Members = std::vector<std::unique_ptr<Member>>;

Members make(const Communicator& whole, int count, int blocks, bool in_order) {
  Members all;
  for (int n = 0; n < count; ++n) {
    all.push_back(std::make_unique<Member>(whole, blocks, in_order));
  }
  return all;
}

/// Two communicators that fit, called by half of the ranks in the other order.
void opposite(const Communicator& whole, int calls) {
  const int blocks = multiprocessors() / ranks_on_gpu / 2;
  const Members all = make(whole, 2, blocks, false);
  must(whole.barrier());
  for (int i = 0; i < 2; ++i) {
    Member& member = *all[std::size_t(i ^ (whole.rank() % 2))];
    for (int n = 0; n < calls; ++n) member.call(member.stream);
    std::this_thread::sleep_for(std::chrono::milliseconds{50});
  }
  for (const auto& member : all) member->finish(member->stream, "opposite orders");
}

/// The first communicator has launches in flight when the second is created.
void created_later(const Communicator& whole) {
  Member first{whole, 0, false};
  must(whole.barrier());
  const bool begins = whole.rank() % 2 == 0;
  if (begins) {
    for (int n = 0; n < 10; ++n) first.call(first.stream);
  }
  Member second{whole, 0, false};
  if (begins) second.call(second.stream);
  if (!begins) {
    second.call(first.stream);  // before the calls of the first communicator, on their stream
    for (int n = 0; n < 10; ++n) first.call(first.stream);
  }
  first.finish(first.stream, "created later");
  second.finish(begins ? second.stream : first.stream, "created later");
}

/// Two communicators that do not fit, called in one order by all ranks. Kernels on the streams
/// start the launches in another order.
void in_order(const Communicator& whole, bool graphs) {
  const Members all = make(whole, 2, multiprocessors() / ranks_on_gpu, true);
  if (graphs) {
    for (const auto& member : all) member->capture(member->stream, 3);
  }
  must(whole.barrier());
  for (int round = 0; round < 4; ++round) {
    Member& late = *all[std::size_t((whole.rank() + round) % 2)];
    hold<<<1, 32, held_bytes, late.stream>>>(20'000'000);
    for (const auto& member : all) {
      if (graphs && round % 2 == 0) {
        MUST_CUDA(cudaGraphLaunch(member->ready, member->stream));
      } else {
        member->call(member->stream);
        member->call(member->stream);
      }
    }
  }
  for (const auto& member : all) {
    member->finish(member->stream, graphs ? "graphs in order" : "in order");
  }
}

/// Launches of two communicators that do not fit, in one graph on two branches.
void one_graph(const Communicator& whole) {
  const Members all = make(whole, 2, multiprocessors() / ranks_on_gpu, true);
  Member &first = *all[0], &second = *all[1];
  cudaEvent_t fork, join;
  for (cudaEvent_t* event : {&fork, &join}) {
    MUST_CUDA(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
  }
  cudaGraph_t graph = nullptr;
  MUST_CUDA(cudaStreamBeginCapture(first.stream, cudaStreamCaptureModeThreadLocal));
  MUST_CUDA(cudaEventRecord(fork, first.stream));
  MUST_CUDA(cudaStreamWaitEvent(second.stream, fork, 0));
  for (int n = 0; n < 3; ++n) {
    for (const auto& member : all) member->call(member->stream);
  }
  MUST_CUDA(cudaEventRecord(join, second.stream));
  MUST_CUDA(cudaStreamWaitEvent(first.stream, join, 0));
  MUST_CUDA(cudaStreamEndCapture(first.stream, &graph));
  MUST_CUDA(cudaGraphInstantiate(&first.ready, graph, 0));
  MUST_CUDA(cudaGraphDestroy(graph));
  must(whole.barrier());
  for (int n = 0; n < 5; ++n) MUST_CUDA(cudaGraphLaunch(first.ready, first.stream));
  for (const auto& member : all) member->finish(first.stream, "one graph");
  for (const cudaEvent_t event : {fork, join}) MUST_CUDA(cudaEventDestroy(event));
}

/// Random calls and replays of `count` communicators of the default size, on random streams, beside
/// a kernel that holds half of the multiprocessors. `mixed`: each rank has an order of its own.
void soak(const Communicator& whole, int count, bool mixed) {
  const int fitting = multiprocessors() / ranks_on_gpu / count;
  const Members all = make(whole, count, mixed ? std::max(1, fitting) : 0, !mixed);
  if (!mixed) {  // replays are in the order of calls, too
    for (int n = 0; n < count; n += 2) all[std::size_t(n)]->capture(all[std::size_t(n)]->stream, 3);
  }
  cudaStream_t beside;
  MUST_CUDA(cudaStreamCreateWithFlags(&beside, cudaStreamNonBlocking));
  std::mt19937 random{seed}, own{seed + unsigned(whole.rank())};
  std::vector<int> turns;
  const Index sizes[] = {1, 5000, 100'000, Member::most};
  // All ranks play equally many rounds: rank 0's clock decides.
  Buffer<int> more{1, 0};
  const auto vote = must(Collective<Broadcast, Ring, LL, DefaultTransport>::create(whole));
  const double begin = now_s();
  for (long round = 0;; ++round) {
    more.fill([&](Index) { return double(now_s() - begin < seconds); }, beside);
    must(vote(more.get(), more.get(), 1, 0, beside));
    if (more.wrong(
            1, [](Index) { return 1.0; }, beside) != 0) {
      break;
    }
    if (random() % 4 == 0) hold<<<multiprocessors() / 2, 1024, held_bytes, beside>>>(2'000'000);
    turns.clear();
    for (int call = 0; call < 20; ++call) turns.push_back(int(random() % unsigned(count)));
    if (mixed) std::shuffle(turns.begin(), turns.end(), own);
    for (const int n : turns) {
      Member& member = *all[std::size_t(n)];
      const auto dice = mixed ? 0 : random();
      const cudaStream_t on = all[mixed ? std::size_t(n) : dice / 8 % all.size()]->stream;
      if (member.ready != nullptr && dice % 4 == 0) {
        MUST_CUDA(cudaGraphLaunch(member.ready, on));
      } else {
        member.call(on, mixed ? sizes[n % 4] : sizes[dice / 128 % 4]);
      }
    }
    for (const auto& member : all) drain(member->stream, 60);
    for (const auto& member : all) member->call(member->stream, 5000);
    for (const auto& member : all) member->finish(member->stream, "soak", 5000);
  }
  drain(beside, 60);
  MUST_CUDA(cudaStreamDestroy(beside));
}

void suite(Communicator whole) {
  cudaFuncAttributes loaded{};  // loading waits for kernels that run
  MUST_CUDA(cudaFuncGetAttributes(&loaded, hold));
  const char* const given = std::getenv("TEST_CALLS");
  for (const int calls : given != nullptr ? std::vector{std::atoi(given)} : std::vector{1, 2, 6}) {
    opposite(whole, calls);
  }
  created_later(whole);
  in_order(whole, false);
  in_order(whole, true);
  one_graph(whole);
  for (const int count : {2, 4, 8}) {
    for (const bool mixed : {false, true}) soak(whole, count, mixed);
  }
}

}  // namespace

int main() {
  const Ranks ranks = find_ranks();
  if (ranks.gpus == 0) return skipped();
  if (const char* s = std::getenv("SOAK_S")) seconds = std::atof(s);
  if (const char* s = std::getenv("SOAK_SEED")) seed = unsigned(std::atoi(s));
  std::printf("seed %u, %.0f s for 2, 4 and 8 communicators, in two orders\n", seed, seconds);
  std::fflush(stdout);
  ranks_on_gpu = (ranks.count + ranks.gpus - 1) / ranks.gpus;
  ::setenv("CCL_TIMEOUT", "20", 0);
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);  // more streams than the 8 of the default
  const Config config;
  both_ways(ranks, config, suite, 12);
  return result("Residency", ranks.gpus);
}
