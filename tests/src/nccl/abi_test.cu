// NCCL's C interface in ccl's libnccl, on GPUs. There is a process for each rank and, if each has a
// GPU of its own, one thread with all of them.
#include <algorithm>
#include <chrono>
#include <vector>

#include "gpu/nccl.cuh"

using namespace ccl::test;

namespace {

float value(int rank, ccl::Index i) {
  return float(rank + 1) * float(i % 13);
}

/// Memory and stream of one rank; `ranks * count` elements are read and written.
struct Position {
  int rank, ranks;
  ncclComm_t comm;
  ccl::Index count;
  cudaStream_t stream = nullptr;
  std::vector<float> host;
  Buffer<float> in, out;

  Position(int r, int all, ncclComm_t c, ccl::Index n)
      : rank{r},
        ranks{all},
        comm{c},
        count{n},
        host(size_t(n * all)),
        in{n * all, 0},
        out{n * all, 0} {
    MUST_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    in.fill([r](ccl::Index i) { return value(r, i); }, stream);
  }
  ~Position() { MUST_CUDA(cudaStreamDestroy(stream)); }
  template <class F>
  void expect(const char* what, ccl::Index n, F&& want) {
    const long wrong = out.wrong(n, want, stream);
    check(wrong == 0, "%s of %ld on rank %d of %d: %ld elements", what, long(count), rank, ranks,
          wrong);
  }
};

/// All operations. `each` makes calls of all ranks of this process, as one group.
template <class Each, class Positions>
void run_all(const Each& each, Positions& positions) {
  Position& any = *positions.front();
  const int ranks = any.ranks;
  const auto n = size_t(any.count);
  const auto sum = [ranks](ccl::Index i) { return float(ranks * (ranks + 1) / 2) * value(0, i); };
  const auto all = [&](const char* what, ccl::Index got, auto&& call, auto&& want) {
    each(call);
    for (auto& s : positions) {
      s->expect(what, got, [&](ccl::Index i) { return want(*s, i); });
    }
  };
  all(
      "all_reduce", any.count,
      [n](Position& s) {
        MUST_NCCL(ncclAllReduce(s.in.get(), s.out.get(), n, ncclFloat, ncclSum, s.comm, s.stream));
      },
      [&](Position&, ccl::Index i) { return sum(i); });
  all(
      "max", any.count,
      [n](Position& s) {
        MUST_NCCL(ncclAllReduce(s.in.get(), s.out.get(), n, ncclFloat, ncclMax, s.comm, s.stream));
      },
      [&](Position& s, ccl::Index i) { return value(s.ranks - 1, i); });
  all(
      "reduce_scatter", any.count,
      [n](Position& s) {
        MUST_NCCL(
            ncclReduceScatter(s.in.get(), s.out.get(), n, ncclFloat, ncclSum, s.comm, s.stream));
      },
      [&](Position& s, ccl::Index i) { return sum(s.rank * s.count + i); });
  all(
      "all_gather", any.count * ranks,
      [n](Position& s) {
        MUST_NCCL(ncclAllGather(s.in.get(), s.out.get(), n, ncclFloat, s.comm, s.stream));
      },
      [&](Position& s, ccl::Index i) { return value(int(i / s.count), i % s.count); });
  all(
      "broadcast", any.count,
      [n](Position& s) {
        MUST_NCCL(
            ncclBroadcast(s.in.get(), s.out.get(), n, ncclFloat, s.ranks - 1, s.comm, s.stream));
      },
      [&](Position& s, ccl::Index i) { return value(s.ranks - 1, i); });
  all(
      "all_to_all", any.count * ranks,
      [n](Position& s) {
        MUST_NCCL(ncclAlltoAll(s.in.get(), s.out.get(), n, ncclFloat, s.comm, s.stream));
      },
      [&](Position& s, ccl::Index i) {
        return value(int(i / s.count), s.rank * s.count + i % s.count);
      });
  all(
      "a message to the next", any.count,
      [n](Position& s) {
        MUST_NCCL(ncclGroupStart());
        MUST_NCCL(ncclSend(s.in.get(), n, ncclFloat, (s.rank + 1) % s.ranks, s.comm, s.stream));
        MUST_NCCL(ncclRecv(s.out.get(), n, ncclFloat, (s.rank + s.ranks - 1) % s.ranks, s.comm,
                           s.stream));
        MUST_NCCL(ncclGroupEnd());
      },
      [&](Position& s, ccl::Index i) { return value((s.rank + s.ranks - 1) % s.ranks, i); });
  all(
      "a scalar before the sum", any.count,
      [n](Position& s) {
        float half = 0.5f;
        ncclRedOp_t op;
        MUST_NCCL(ncclRedOpCreatePreMulSum(&op, &half, ncclFloat, ncclScalarHostImmediate, s.comm));
        MUST_NCCL(ncclAllReduce(s.in.get(), s.out.get(), n, ncclFloat, op, s.comm, s.stream));
        MUST_NCCL(ncclRedOpDestroy(op, s.comm));
      },
      [&](Position&, ccl::Index i) { return sum(i) / 2; });
}

/// An all-to-all that replaces what it sends.
void run_in_place(Position& s) {
  const auto all = size_t(s.count * s.ranks);
  MUST_CUDA(cudaMemcpyAsync(s.out.get(), s.in.get(), all * sizeof(float), cudaMemcpyDeviceToDevice,
                            s.stream));
  MUST_NCCL(ncclAlltoAll(s.out.get(), s.out.get(), size_t(s.count), ncclFloat, s.comm, s.stream));
  s.expect("all_to_all in place", s.count * s.ranks,
           [&](ccl::Index i) { return value(int(i / s.count), s.rank * s.count + i % s.count); });
}

/// Puts into the next rank's window, eagerly and by a graph, and waits for those of the last.
void run_one_sided(Position& s) {
  const auto n = size_t(s.count), bytes = (n * sizeof(float) + 4095) / 4096 * 4096;
  const int next = (s.rank + 1) % s.ranks, last = (s.rank + s.ranks - 1) % s.ranks;
  void* memory = nullptr;
  ncclWindow_t window = nullptr;
  MUST_NCCL(ncclMemAlloc(&memory, bytes));
  MUST_NCCL(ncclCommWindowRegister(s.comm, memory, bytes, &window, NCCL_WIN_COLL_SYMMETRIC));
  check(window != nullptr, "no window on rank %d", s.rank);
  const auto round = [&] {
    MUST_NCCL(ncclPutSignal(s.in.get(), n, ncclFloat, next, window, 0, 0, 0, 0, s.comm, s.stream));
    ncclWaitSignalDesc_t from{1, last, 0, 0};
    MUST_NCCL(ncclWaitSignal(1, &from, s.comm, s.stream));
    MUST_CUDA(cudaMemcpyAsync(s.out.get(), memory, n * sizeof(float), cudaMemcpyDeviceToDevice,
                              s.stream));
    // The next put comes when this one has been read.
    MUST_NCCL(ncclSignal(last, 0, 0, 0, s.comm, s.stream));
    from.peer = next;
    MUST_NCCL(ncclWaitSignal(1, &from, s.comm, s.stream));
  };
  const auto want = [&](ccl::Index i) { return value(last, i); };
  for (int i = 0; i < 20; ++i) round();
  s.expect("puts and signals", s.count, want);
  cudaGraph_t graph;
  cudaGraphExec_t ready;
  MUST_CUDA(cudaStreamBeginCapture(s.stream, cudaStreamCaptureModeThreadLocal));
  round();
  MUST_CUDA(cudaStreamEndCapture(s.stream, &graph));
  MUST_CUDA(cudaGraphInstantiate(&ready, graph, 0));
  for (int i = 0; i < 20; ++i) MUST_CUDA(cudaGraphLaunch(ready, s.stream));
  s.expect("a graph of puts and signals", s.count, want);
  MUST_CUDA(cudaGraphExecDestroy(ready));
  MUST_CUDA(cudaGraphDestroy(graph));
  MUST_NCCL(ncclCommWindowDeregister(s.comm, window));
  MUST_NCCL(ncclMemFree(memory));
}

/// Puts bytes of the GPU and of the host, pinned or not, at places of every alignment.
void run_puts_of_bytes(Position& s) {
  constexpr size_t most = (size_t{2} << 20) + 16, all = most + 64;
  const int next = (s.rank + 1) % s.ranks, last = (s.rank + s.ranks - 1) % s.ranks;
  const auto byte = [](int rank, size_t i) { return char(i * 7 + i / 251 + size_t(rank) * 31); };
  std::vector<char> plain(all), got(all);
  for (size_t i = 0; i < all; ++i) plain[i] = byte(s.rank, i);
  char *on_gpu = nullptr, *pinned = nullptr;
  void* memory = nullptr;
  ncclWindow_t window = nullptr;
  MUST_CUDA(cudaMalloc(&on_gpu, all));
  MUST_CUDA(cudaMallocHost(&pinned, all));
  std::copy(plain.begin(), plain.end(), pinned);
  MUST_CUDA(cudaMemcpy(on_gpu, pinned, all, cudaMemcpyHostToDevice));
  MUST_NCCL(ncclMemAlloc(&memory, all));
  MUST_NCCL(ncclCommWindowRegister(s.comm, memory, all, &window, NCCL_WIN_COLL_SYMMETRIC));
  const auto round = [&](const char* from, size_t bytes, size_t at) {
    MUST_NCCL(ncclPutSignal(from, bytes, ncclInt8, next, window, at, 0, 0, 0, s.comm, s.stream));
    ncclWaitSignalDesc_t signal{1, last, 0, 0};
    MUST_NCCL(ncclWaitSignal(1, &signal, s.comm, s.stream));
    MUST_CUDA(cudaMemcpyAsync(got.data(), static_cast<char*>(memory) + at, bytes,
                              cudaMemcpyDeviceToHost, s.stream));
    MUST_NCCL(ncclSignal(last, 0, 0, 0, s.comm, s.stream));
    signal.peer = next;
    MUST_NCCL(ncclWaitSignal(1, &signal, s.comm, s.stream));
    MUST_CUDA(cudaStreamSynchronize(s.stream));
  };
  for (const size_t bytes : {size_t{1}, size_t{3}, size_t{16}, size_t{4100}, size_t{65536},
                             size_t{300000}, most - 16, most}) {
    for (const size_t from : {0, 1, 4, 17}) {
      for (const size_t at : {0, 4, 7, 32}) {
        for (const char* const memory_of : {on_gpu, pinned, plain.data()}) {
          round(memory_of + from, bytes, at);
          size_t wrong = 0;
          for (size_t i = 0; i < bytes; ++i) wrong += got[i] != byte(last, from + i);
          check(wrong == 0, "a put of %zu bytes from %zu to %zu, rank %d: %zu bytes", bytes, from,
                at, s.rank, wrong);
        }
      }
    }
  }
  MUST_NCCL(ncclCommWindowDeregister(s.comm, window));
  MUST_NCCL(ncclMemFree(memory));
  MUST_CUDA(cudaFreeHost(pinned));
  MUST_CUDA(cudaFree(on_gpu));
}

/// With ccl's option of a call, parts have the bits of the whole.
void run_one_order(Position& s) {
  ncclConfigExt_t option{nullptr, {0x63636c, 1}, {1}};
  ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
  config.ext = &option;
  s.in.fill([&](ccl::Index i) { return 1.0f / float((s.rank + 2) * (i % 1013 + 3)); }, s.stream);
  const auto sum = [&](ccl::Index from, ccl::Index count) {
    MUST_NCCL(ncclAllReduceConfig(s.in.get() + from, s.out.get() + from, size_t(count), ncclFloat,
                                  ncclSum, s.comm, s.stream, &config));
  };
  std::vector<float> whole(size_t(s.count)), parts(size_t(s.count));
  const auto read = [&](std::vector<float>& to) {
    MUST_CUDA(cudaMemcpyAsync(to.data(), s.out.get(), to.size() * sizeof(float),
                              cudaMemcpyDeviceToHost, s.stream));
    MUST_CUDA(cudaStreamSynchronize(s.stream));
  };
  sum(0, s.count);
  read(whole);
  for (ccl::Index from = 0, size = 1; from < s.count; from += size, size = size * 3 + 1) {
    sum(from, std::min(size, s.count - from));
  }
  read(parts);
  check(whole == parts, "the bits of parts differ on rank %d of %d, %ld elements", s.rank, s.ranks,
        long(s.count));
  s.in.fill([&s](ccl::Index i) { return value(s.rank, i); }, s.stream);
}

void run_graph(Position& s) {
  cudaGraph_t graph;
  cudaGraphExec_t ready;
  MUST_CUDA(cudaStreamBeginCapture(s.stream, cudaStreamCaptureModeThreadLocal));
  MUST_NCCL(ncclAllReduce(s.in.get(), s.out.get(), size_t(s.count), ncclFloat, ncclSum, s.comm,
                          s.stream));
  MUST_CUDA(cudaStreamEndCapture(s.stream, &graph));
  MUST_CUDA(cudaGraphInstantiate(&ready, graph, 0));
  for (int i = 0; i < 20; ++i) MUST_CUDA(cudaGraphLaunch(ready, s.stream));
  s.expect("a graph", s.count,
           [&](ccl::Index i) { return float(s.ranks * (s.ranks + 1) / 2) * value(0, i); });
  MUST_CUDA(cudaGraphExecDestroy(ready));
  MUST_CUDA(cudaGraphDestroy(graph));
}

/// Two communicators in one group and on one stream. In another order there than on another rank,
/// they would wait for each other for ever; in one that is not the calls', sums would be wrong.
void run_two(Position& s) {
  ncclComm_t other;
  MUST_NCCL(ncclCommSplit(s.comm, 0, s.rank, &other, nullptr));
  const auto n = size_t(s.count);
  for (int i = 0; i < 200; ++i) {
    MUST_NCCL(ncclGroupStart());
    MUST_NCCL(ncclAllReduce(s.in.get(), s.out.get(), n, ncclFloat, ncclSum, s.comm, s.stream));
    MUST_NCCL(ncclAllReduce(s.out.get(), s.out.get(), n, ncclFloat, ncclSum, other, s.stream));
    MUST_NCCL(ncclGroupEnd());
  }
  s.expect("two communicators on a stream", s.count, [&](ccl::Index i) {
    return float(s.ranks * s.ranks * (s.ranks + 1) / 2) * value(0, i);
  });
  MUST_NCCL(ncclCommDestroy(other));
}

void rank_of_its_own(int rank, int ranks, int gpus, const ncclUniqueId& id) {
  MUST_CUDA(cudaSetDevice(rank % gpus));
  ncclComm_t comm;
  MUST_NCCL(ncclCommInitRank(&comm, ranks, id, rank));
  for (const ccl::Index count : {1, 1000, 300000}) {
    std::vector<std::unique_ptr<Position>> positions;
    positions.push_back(std::make_unique<Position>(rank, ranks, comm, count));
    run_all([&](auto&& call) { call(*positions.front()); }, positions);
    run_graph(*positions.front());
    run_two(*positions.front());
    run_in_place(*positions.front());
    run_one_order(*positions.front());
    run_one_sided(*positions.front());
    if (count == 1) run_puts_of_bytes(*positions.front());
  }
  MUST_NCCL(ncclCommDestroy(comm));
}

void all_in_one_thread(int ranks) {
  std::vector<ncclComm_t> comms;
  comms.resize(size_t(ranks));
  MUST_NCCL(ncclCommInitAll(comms.data(), ranks, nullptr));
  for (const ccl::Index count : {1, 1000, 300000}) {
    std::vector<std::unique_ptr<Position>> positions;
    for (int r = 0; r < ranks; ++r) {
      MUST_CUDA(cudaSetDevice(r));
      positions.push_back(std::make_unique<Position>(r, ranks, comms[size_t(r)], count));
    }
    const auto each = [&](auto&& call) {
      MUST_NCCL(ncclGroupStart());
      for (auto& s : positions) call(*s);
      MUST_NCCL(ncclGroupEnd());
    };
    run_all(each, positions);
    if (count != 1000) continue;
    const auto sum_all = [&] {
      each([&](Position& s) {
        MUST_NCCL(
            ncclAllReduce(s.in.get(), s.out.get(), 1000, ncclFloat, ncclSum, s.comm, s.stream));
      });
    };
    constexpr int calls = 2000;
    for (int i = 0; i < 100; ++i) sum_all();
    const auto synchronize = [&] {
      for (auto& s : positions) MUST_CUDA(cudaStreamSynchronize(s->stream));
    };
    synchronize();
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) sum_all();
    const std::chrono::duration<double, std::micro> launched =
        std::chrono::steady_clock::now() - begin;
    synchronize();
    const std::chrono::duration<double, std::micro> done = std::chrono::steady_clock::now() - begin;
    std::printf("a group of %d ranks of one thread: %.2f us to launch, %.2f us in all\n", ranks,
                launched.count() / calls, done.count() / calls);
  }
  for (ncclComm_t comm : comms) MUST_NCCL(ncclCommDestroy(comm));
}

}  // namespace

int main() {
  const Ranks ranks = find_ranks();
  if (ranks.gpus == 0) return skipped();
  ncclUniqueId id;
  MUST_NCCL(ncclGetUniqueId(&id));
  fork_ranks(ranks.count, [&](int r) { rank_of_its_own(r, ranks.count, ranks.gpus, id); });
  if (!ranks.share()) fork_ranks(1, [&](int) { all_in_one_thread(ranks.count); });
  std::printf("libnccl: %ld cases on %d GPUs, %ld wrong\n", score().cases.load(), ranks.gpus,
              score().wrong.load());
  return score().wrong == 0 ? 0 : 1;
}
