#pragma once

// Ranks on GPUs through the public interface: as threads of one process, or as processes.
#include <ccl/ccl.cuh>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace ccl::test {

/// Counts of all ranks of all processes.
struct Score {
  std::atomic<long> cases, wrong;
};

inline Score& score() {
  static Score* const shared = new (::mmap(nullptr, sizeof(Score), PROT_READ | PROT_WRITE,
                                           MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Score{};
  return *shared;
}

inline void check(bool ok, const char* format, auto... values) {
  ++score().cases;
  if (ok) return;
  if (++score().wrong > 20) return;
  char text[400];
  std::snprintf(text, sizeof text, format, values...);
  std::printf("WRONG: %s\n", text);
  std::fflush(stdout);
}
inline void must_cuda(cudaError_t e, const char* what, int line) {
  if (e == cudaSuccess) return;
  std::printf("line %d: %s: %s\n", line, what, cudaGetErrorString(e));
  std::fflush(stdout);
  std::_Exit(1);
}
#define MUST_CUDA(call) ::ccl::test::must_cuda((call), #call, __LINE__)

/// The value, or the end of this process with the error's text.
template <class T>
T must(Result<T> r, int line = __builtin_LINE()) {
  if (!r) {
    std::printf("line %d: %s\n", line, r.error().message().c_str());
    std::fflush(stdout);
    std::_Exit(1);
  }
  if constexpr (!std::is_void_v<T>) return *std::move(r);
}

/// Returns the number of GPUs, counted in a child: a process that forks ranks must not touch CUDA
/// before.
inline int count_gpus() {
  std::fflush(stdout);
  const pid_t child = ::fork();
  if (child == 0) {
    int n = 0;
    std::_Exit(cudaGetDeviceCount(&n) == cudaSuccess ? n : 0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}

/// Number of ranks of a test: TEST_RANKS, or one for each GPU, or two if there is one GPU. Ranks
/// share GPUs if there are fewer.
struct Ranks {
  int gpus, count;
  bool share() const { return count > gpus; }
};
/// True if ranks run as "threads" or as "processes", by TEST_WAY. Without it both are true.
inline bool asked_for(const char* way) {
  const char* const given = std::getenv("TEST_WAY");
  return given == nullptr || std::strcmp(given, way) == 0;
}
/// Returns the ranks of a test. It must be called first.
inline Ranks find_ranks() {
  score();
  const int gpus = count_gpus();
  const char* const given = std::getenv("TEST_RANKS");
  const int count = given != nullptr ? std::atoi(given) : gpus == 1 ? 2 : gpus;
  if (gpus == 0 || count <= gpus) return {gpus, gpus == 0 ? 0 : count};
  ::setenv("CCL_MULTI_RANK_GPU_ENABLE", "1", 1);
  // Threads that share a GPU need these settings; see docs/guide/gpus.md.
  ::setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
  return {gpus, count};
}
/// Returns the exit status of a test on a machine without a GPU.
inline int skipped() {
  std::printf("SKIP: no GPU\n");
  return 77;
}

using RankBody = std::function<void(Communicator)>;

/// One thread for each rank.
inline void as_threads(int ranks, const Config& config, const RankBody& body) {
  if (!asked_for("threads")) return;
  const pid_t child = ::fork();  // so that processes can be forked after it
  if (child != 0) {
    int status = 0;
    ::waitpid(child, &status, 0);
    check(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the process of all ranks ended with %d",
          status);
    return;
  }
  auto comms = must(Communicator::create_all(ranks, config));
  std::vector<std::thread> threads;
  for (auto& comm : comms) {
    threads.emplace_back([&comm, &body] {
      MUST_CUDA(cudaSetDevice(comm.device()));
      body(comm);
    });
  }
  for (auto& thread : threads) thread.join();
  comms.clear();
  std::fflush(stdout);
  std::_Exit(0);
}

/// Returns the rendezvous port of this process, below those that connections take. `use` tells
/// two rendezvous of a process apart: 0 or 1.
inline std::string rendezvous_port(int use = 0) {
  return std::to_string(20000 + (::getpid() * 2 + use) % 12000);
}

/// Starts a process for each rank, which runs `body(rank)` with the variables of a launcher, and
/// ends by `_Exit`. They take each other to be on `hosts` hosts.
inline std::vector<pid_t> start_processes(int ranks, const std::string& port,
                                          const std::function<void(int)>& body, int hosts = 1) {
  std::vector<pid_t> children;
  for (int r = 0; r < ranks; ++r) {
    const pid_t child = ::fork();
    if (child != 0) {
      children.push_back(child);
      continue;
    }
    ::setenv("RANK", std::to_string(r).c_str(), 1);
    ::setenv("LOCAL_RANK", std::to_string(r).c_str(), 1);
    ::setenv("WORLD_SIZE", std::to_string(ranks).c_str(), 1);
    if (hosts > 1) {
      ::setenv("CCL_HOSTID", ("host" + std::to_string(r * hosts / ranks)).c_str(), 1);
    }
    ::setenv("MASTER_ADDR", "127.0.0.1", 1);
    ::setenv("MASTER_PORT", port.c_str(), 1);
    body(r);
    std::fflush(stdout);
    std::_Exit(0);
  }
  return children;
}
inline bool ended_well(int status) {
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/// One process for each rank; they take each other to be on `hosts` hosts.
inline void as_processes(int ranks, const Config& config, const RankBody& body, int hosts = 1) {
  if (!asked_for("processes")) return;
  const auto children = start_processes(
      ranks, rendezvous_port(),
      [&](int) {
        Communicator comm = must(Communicator::from_env(config));
        MUST_CUDA(cudaSetDevice(comm.device()));
        body(comm);
        must(comm.finalize());
      },
      hosts);
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    check(ended_well(status), "a rank's process ended with %d", status);
  }
}

/// Runs the ranks as threads and as processes, each with so many streams and branches of graphs at
/// a time. Ranks that share a GPU are processes only if threads would certainly exceed its queues.
/// In one queue, a kernel of one rank can block another's that it waits for.
inline void both_ways(const Ranks& ranks, const Config& config, const RankBody& body,
                      int streams = 1) {
  if (!ranks.share() || ranks.count * streams <= 16) as_threads(ranks.count, config, body);
  as_processes(ranks.count, config, body);
}

/// Memory that CUDA gave to this process once, by its size rounded up to a power of two. Threads
/// that share a GPU must not free any: a free waits for the kernels of all threads, and blocks
/// their launches meanwhile.
class Kept {
 public:
  explicit Kept(cudaError_t (*make)(void**, std::size_t)) : make_{make} {}
  void* take(std::size_t bytes) {
    std::size_t size = 4096;
    while (size < bytes) size *= 2;
    int device = 0;
    MUST_CUDA(cudaGetDevice(&device));
    const std::lock_guard lock{mutex_};
    auto& free = free_[{device, size}];
    void* at = nullptr;
    if (free.empty()) {
      MUST_CUDA(make_(&at, size));
    } else {
      at = free.back();
      free.pop_back();
    }
    taken_[at] = {device, size};
    return at;
  }
  void give_back(void* at) {
    const std::lock_guard lock{mutex_};
    free_[taken_.at(at)].push_back(at);
  }

  static Kept& on_gpu() {
    static auto* const kept = new Kept{[](void** at, std::size_t n) { return cudaMalloc(at, n); }};
    return *kept;
  }
  /// Pinned: where one copy of other memory waits for a kernel, the next one waits for it, in
  /// whatever thread, and its thread with it.
  static Kept& on_host() {
    static auto* const kept =
        new Kept{[](void** at, std::size_t n) { return cudaHostAlloc(at, n, 0); }};
    return *kept;
  }

 private:
  using Key = std::pair<int, std::size_t>;
  cudaError_t (*make_)(void**, std::size_t);
  std::mutex mutex_;
  std::map<Key, std::vector<void*>> free_;
  std::map<void*, Key> taken_;
};
/// `count` elements of pinned host memory.
template <class T>
class Pinned {
 public:
  explicit Pinned(Index count)
      : at_{static_cast<T*>(Kept::on_host().take(size_t(count) * sizeof(T)))} {}
  ~Pinned() { Kept::on_host().give_back(at_); }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  T* get() const { return at_; }
  T& operator[](size_t i) const { return at_[i]; }

 private:
  T* at_;
};

/// Device memory for `count` elements behind `offset` more.
template <class T>
class Buffer {
 public:
  Buffer(Index count, Index offset)
      : base_{static_cast<T*>(Kept::on_gpu().take(size_t(count + offset + 16) * sizeof(T)))},
        count_{count},
        offset_{offset} {
    MUST_CUDA(cudaMemset(base_, 0xa5, size_t(count + offset + 16) * sizeof(T)));
    MUST_CUDA(cudaStreamSynchronize(nullptr));  // streams that do not wait for this one follow
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { Kept::on_gpu().give_back(base_); }
  T* get() const { return base_ + offset_; }
  template <class F>
  void fill(F value, cudaStream_t stream) {
    const Pinned<T> host{count_ + 1};
    for (Index i = 0; i < count_; ++i) host[size_t(i)] = T(value(i));
    MUST_CUDA(cudaMemcpyAsync(get(), host.get(), size_t(count_) * sizeof(T), cudaMemcpyHostToDevice,
                              stream));
    MUST_CUDA(cudaStreamSynchronize(stream));
  }
  /// Returns the number of elements from `first` on that differ from `want`.
  template <class F>
  long wrong(Index count, F want, cudaStream_t stream, Index first = 0) const {
    const Pinned<T> host{count + 1};
    MUST_CUDA(cudaMemcpyAsync(host.get(), get() + first, size_t(count) * sizeof(T),
                              cudaMemcpyDeviceToHost, stream));
    MUST_CUDA(cudaStreamSynchronize(stream));
    long n = 0;
    for (Index i = 0; i < count; ++i) n += double(host[size_t(i)]) != double(T(want(i)));
    return n;
  }

 private:
  T* base_;
  Index count_, offset_;
};

inline double value(int rank, Index i) {
  return double((i * 7 + rank * 13) % 5);
}
/// Sum of the values of all ranks.
inline double sum_of(int ranks, Index i) {
  double all = 0;
  for (int r = 0; r < ranks; ++r) all += value(r, i);
  return all;
}

/// One rank and its stream.
struct Rank {
  Communicator comm;
  cudaStream_t stream;
  bool graph = false;
  int rank = comm.rank(), ranks = comm.ranks();

  /// Runs `call` eagerly, or as a graph that is replayed twice.
  template <class F>
  void go(F call) const {
    if (!graph) {
      must(call());
      return;
    }
    cudaGraph_t captured;
    cudaGraphExec_t ready;
    MUST_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    must(call());
    MUST_CUDA(cudaStreamEndCapture(stream, &captured));
    MUST_CUDA(cudaGraphInstantiate(&ready, captured, 0));
    MUST_CUDA(cudaGraphLaunch(ready, stream));
    MUST_CUDA(cudaGraphLaunch(ready, stream));
    MUST_CUDA(cudaStreamSynchronize(stream));
    MUST_CUDA(cudaGraphExecDestroy(ready));
    MUST_CUDA(cudaGraphDestroy(captured));
  }
};

/// play(rank) with the composition's own plan and with two slots of `slot_bytes`, eager and in
/// graphs.
template <class Suite, class F>
void play_each_way(const Communicator& comm, Index slot_bytes, F play) {
  cudaStream_t stream;
  MUST_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  for (const bool graph : {false, true}) {
    Suite rank{{comm, stream, graph}};
    play(rank);
    rank.plan.emplace();
    rank.plan->slot_count = 2;
    rank.plan->slot_bytes = slot_bytes;
    play(rank);
  }
  MUST_CUDA(cudaStreamDestroy(stream));
}

inline int result(const char* name, int gpus) {
  std::printf("%s: %ld cases on %d GPUs, %ld wrong\n", name, score().cases.load(), gpus,
              score().wrong.load());
  return score().wrong == 0 && score().cases > 0 ? 0 : 1;
}

}  // namespace ccl::test
