// CopyEngine through the public interface: threads and processes, eager and in graphs. Data is
// staged through scratch of several sizes, or goes directly into windows of SharedMemory or
// cudaMalloc.
#include <ccl/comm/window.hpp>

#include "communicator.cuh"

using namespace ccl;
using namespace ccl::test;

namespace {

struct Suite : Rank {
  std::optional<Plan> plan{};

  template <class Op>
  auto made() const {
    return must(Collective<Op, CopyEngine, Simple, DefaultTransport>::create(comm, plan));
  }
  template <class T>
  void all_reduce(const std::vector<Index>& counts) const {
    const auto op = made<AllReduce>();
    const auto sum = [&](Index i) {
      double s = 0;
      for (int r = 0; r < ranks; ++r) s += value(r, i);
      return s;
    };
    for (const Index n : counts) {
      const Index offset = n % 3 == 1 ? 1 : 0;
      Buffer<T> in{n, offset}, out{n, offset};
      in.fill([&](Index i) { return value(rank, i); }, stream);
      go([&] { return op(in.get(), out.get(), n, Sum{}, stream); });
      check(out.wrong(n, sum, stream) == 0, "%s count %ld rank %d graph %d", op.name().c_str(),
            long(n), rank, int(graph));
      if (graph) continue;
      must(op(in.get(), in.get(), n, Sum{}, stream));
      check(in.wrong(n, sum, stream) == 0, "%s in place, count %ld rank %d", op.name().c_str(),
            long(n), rank);
    }
  }
  void reduce_scatter(const std::vector<Index>& counts) const {
    const auto op = made<ReduceScatter>();
    for (const Index n : counts) {
      Buffer<float> in{n * ranks, 0}, out{n, 0};
      in.fill([&](Index i) { return value(rank, i); }, stream);
      go([&] { return op(in.get(), out.get(), n, Avg{}, stream); });
      const auto mean = [&](Index i) {
        double s = 0;
        for (int r = 0; r < ranks; ++r) s += value(r, rank * n + i);
        return float(s) / float(ranks);
      };
      check(out.wrong(n, mean, stream) == 0, "%s count %ld rank %d", op.name().c_str(), long(n),
            rank);
    }
  }
  /// Send and receive buffers of `n` elements for each rank, perhaps in a window.
  void moves(const std::vector<Index>& counts, int kind) const {
    const auto all_gather = made<ccl::AllGather>();
    const auto all_to_all = made<ccl::AllToAll>();
    const auto send_recv = made<ccl::SendRecv>();
    const char* const kinds[] = {"staged", "window of SharedMemory", "window of cudaMalloc"};
    for (const Index n : counts) {
      const Index room = (n * ranks + 64) * Index{sizeof(float)};
      Buffer<float> one{n, 0}, mine{n * ranks, 0};
      one.fill([&](Index i) { return value(rank, i); }, stream);
      mine.fill([&](Index i) { return value(rank, i); }, stream);
      // Small allocations of CUDA's share pages; see Window.
      Buffer<float> plain{std::max<Index>(n * ranks + 64, 1 << 19), 0};
      std::optional<SharedMemory> shared;
      std::optional<Window> window;
      float* out = plain.get();
      if (kind == 1) {
        shared.emplace(must(SharedMemory::allocate(comm, room)));
        window.emplace(must(Window::create(comm, *shared)));
        out = shared->as<float>() + 16;
      } else if (kind == 2) {
        window.emplace(must(Window::create(comm, plain.get(), room)));
        out = plain.get() + 16;
      }
      const auto wrong = [&](Index count, auto want) {
        std::vector<float> host(std::size_t(count) + 1);
        MUST_CUDA(cudaMemcpyAsync(host.data(), out, size_t(count) * sizeof(float),
                                  cudaMemcpyDeviceToHost, stream));
        MUST_CUDA(cudaStreamSynchronize(stream));
        long bad = 0;
        for (Index i = 0; i < count; ++i) bad += double(host[size_t(i)]) != want(i);
        return bad;
      };
      const auto clear = [&] {
        MUST_CUDA(cudaMemsetAsync(out, 0xa5, size_t(n * ranks) * sizeof(float), stream));
      };
      for (int again = 0; again < 2; ++again) {
        clear();
        go([&] { return all_gather(one.get(), out, n, stream); });
        check(wrong(n * ranks, [&](Index i) { return value(int(i / n), i % n); }) == 0,
              "all_gather %s count %ld rank %d graph %d", kinds[kind], long(n), rank, int(graph));
        clear();
        go([&] { return all_to_all(mine.get(), out, n, stream); });
        check(wrong(n * ranks, [&](Index i) { return value(int(i / n), rank * n + i % n); }) == 0,
              "all_to_all %s count %ld rank %d graph %d", kinds[kind], long(n), rank, int(graph));
        clear();
        const int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
        go([&] { return send_recv(one.get(), n, next, out, n, before, stream); });
        check(wrong(n, [&](Index i) { return value(before, i); }) == 0,
              "send_recv %s count %ld rank %d graph %d", kinds[kind], long(n), rank, int(graph));
      }
      if (window) must(window->close());
    }
  }
  /// Tests the algorithms that need windows, also in place, and the errors.
  template <class Algo>
  void in_windows(Index n) const {
    const auto all_gather =
        must(Collective<ccl::AllGather, Algo, Simple, DefaultTransport>::create(comm));
    const auto all_to_all =
        must(Collective<ccl::AllToAll, Algo, Simple, DefaultTransport>::create(comm));
    const auto send_recv =
        must(Collective<ccl::SendRecv, Algo, Simple, DefaultTransport>::create(comm));
    Buffer<float> one{n, 0}, mine{n * ranks, 0};
    one.fill([&](Index i) { return value(rank, i); }, stream);
    mine.fill([&](Index i) { return value(rank, i); }, stream);
    const auto memory = must(SharedMemory::allocate(comm, n * ranks * Index{sizeof(float)}));
    float* const out = memory.as<float>();
    const auto refused = all_gather(one.get(), mine.get(), n, stream);
    check(!refused && refused.error().code == Errc::invalid_argument, "no window, rank %d", rank);
    const auto window = must(Window::create(comm, memory));
    const auto wrong = [&](Index count, auto want) {
      std::vector<float> host(std::size_t(count) + 1);
      MUST_CUDA(cudaMemcpyAsync(host.data(), out, size_t(count) * sizeof(float),
                                cudaMemcpyDeviceToHost, stream));
      MUST_CUDA(cudaStreamSynchronize(stream));
      long bad = 0;
      for (Index i = 0; i < count; ++i) bad += double(host[size_t(i)]) != want(i);
      return bad;
    };
    const auto gathered = [&](Index i) { return value(int(i / n), i % n); };
    for (int again = 0; again < 3; ++again) {
      MUST_CUDA(cudaMemsetAsync(out, 0xa5, size_t(n * ranks) * sizeof(float), stream));
      go([&] { return all_gather(one.get(), out, n, stream); });
      check(wrong(n * ranks, gathered) == 0, "%s all_gather count %ld rank %d graph %d", Algo::name,
            long(n), rank, int(graph));
      go([&] { return all_gather(out + rank * n, out, n, stream); });
      check(wrong(n * ranks, gathered) == 0, "%s in place, count %ld rank %d graph %d", Algo::name,
            long(n), rank, int(graph));
      go([&] { return all_to_all(mine.get(), out, n, stream); });
      check(wrong(n * ranks, [&](Index i) { return value(int(i / n), rank * n + i % n); }) == 0,
            "%s all_to_all count %ld rank %d graph %d", Algo::name, long(n), rank, int(graph));
      const int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
      go([&] { return send_recv(one.get(), n, next, out, n, before, stream); });
      check(wrong(n, [&](Index i) { return value(before, i); }) == 0,
            "%s send_recv count %ld rank %d graph %d", Algo::name, long(n), rank, int(graph));
    }
    must(window.close());
  }
  /// The default choice takes windows for the largest messages, and only where there is one.
  void chosen() const {
    const auto op = must(Collective<ccl::AllGather>::create(comm));
    const Index large = Index{1} << 30;
    const auto with = op.plan(large, true), without = op.plan(large);
    check(with.composition == "WindowCopies/Simple", "in a window: %s", with.text().c_str());
    check(without.composition != "WindowCopies/Simple", "in none: %s", without.text().c_str());
    const Index n = Index{48} << 20;  // bytes of each rank: enough, on 4 ranks and more
    const auto memory = must(SharedMemory::allocate(comm, n * ranks));
    const auto window = must(Window::create(comm, memory));
    Buffer<char> one{n, 0};
    MUST_CUDA(cudaMemsetAsync(one.get(), rank + 1, size_t(n), stream));
    go([&] { return op(one.get(), memory.as<char>(), n, stream); });
    for (int p = 0; p < ranks; ++p) {
      char seen = 0;
      MUST_CUDA(cudaMemcpyAsync(&seen, memory.as<char>() + (p + 1) * n - 1, 1,
                                cudaMemcpyDeviceToHost, stream));
      MUST_CUDA(cudaStreamSynchronize(stream));
      check(seen == char(p + 1), "Auto in a window: rank %d's at rank %d", p, rank);
    }
    must(window.close());
  }
  /// Calls beside captures with calls of the same composition, and replays between them.
  void beside_captures(Index n) const {
    constexpr int captures = 2;
    const auto op = made<ccl::AllGather>();
    Buffer<float> one{n, 0}, live{n * ranks, 0}, first{n * ranks, 0}, second{n * ranks, 0};
    Buffer<float>* const outs[captures] = {&first, &second};
    cudaStream_t streams[captures];
    cudaGraph_t graphs[captures];
    cudaGraphExec_t ready[captures];
    one.fill([&](Index i) { return value(rank, i); }, stream);
    MUST_CUDA(cudaStreamSynchronize(stream));
    for (int c = 0; c < captures; ++c) {
      MUST_CUDA(cudaStreamCreateWithFlags(&streams[c], cudaStreamNonBlocking));
      MUST_CUDA(cudaStreamBeginCapture(streams[c], cudaStreamCaptureModeThreadLocal));
      must(op(one.get(), outs[c]->get(), n, streams[c]));
    }
    must(op(one.get(), live.get(), n, stream));
    for (int c = 0; c < captures; ++c) MUST_CUDA(cudaStreamEndCapture(streams[c], &graphs[c]));
    for (int c = 0; c < captures; ++c) MUST_CUDA(cudaGraphInstantiate(&ready[c], graphs[c], 0));
    for (int turn = 0; turn < 3; ++turn) {
      MUST_CUDA(cudaGraphLaunch(ready[0], streams[0]));
      must(op(one.get(), live.get(), n, stream));
      MUST_CUDA(cudaGraphLaunch(ready[1], streams[1]));
    }
    for (const auto s : streams) MUST_CUDA(cudaStreamSynchronize(s));
    for (const auto* const buffer : {&live, &first, &second}) {
      check(buffer->wrong(
                n * ranks, [&](Index i) { return value(int(i / n), i % n); }, stream) == 0,
            "beside captures, count %ld rank %d", long(n), rank);
    }
    for (int c = 0; c < captures; ++c) {
      MUST_CUDA(cudaGraphExecDestroy(ready[c]));
      MUST_CUDA(cudaGraphDestroy(graphs[c]));
      MUST_CUDA(cudaStreamDestroy(streams[c]));
    }
  }
  /// Groups in which ranks have different parts, and rooted operations.
  void uneven(Index n) const {
    const auto send_recv = made<ccl::SendRecv>();
    const auto gather = made<ccl::Gather>();
    const auto scatter = made<ccl::Scatter>();
    Buffer<float> one{n, 0}, all{n * ranks, 0}, got{n, 0};
    one.fill([&](Index i) { return value(rank, i); }, stream);
    const int root = ranks - 1;
    go([&] { return gather(one.get(), all.get(), n, root, stream); });
    if (rank == root) {
      check(all.wrong(
                n * ranks, [&](Index i) { return value(int(i / n), i % n); }, stream) == 0,
            "gather count %ld", long(n));
    }
    go([&] { return scatter(all.get(), got.get(), n, root, stream); });
    check(got.wrong(
              n, [&](Index i) { return value(rank, i); }, stream) == 0,
          "scatter count %ld rank %d", long(n), rank);
    // Rank 0 sends twice to rank 1, and rank 1 sends once to all other ranks.
    if (rank == 0) {
      go([&] {
        return send_recv.group(
            {send_recv.send_message(one.get(), n, 1), send_recv.send_message(one.get(), n / 3, 1)},
            stream);
      });
    } else if (rank == 1) {
      std::vector<ccl::Collective<ccl::SendRecv, CopyEngine, Simple, DefaultTransport>::P2pOp>
          p2p_ops{send_recv.recv_message(got.get(), n, 0),
                  send_recv.recv_message(all.get(), n / 3, 0)};
      for (int p = 2; p < ranks; ++p) p2p_ops.push_back(send_recv.send_message(one.get(), n, p));
      go([&] { return send_recv.group(p2p_ops, stream); });
      check(got.wrong(
                n, [&](Index i) { return value(0, i); }, stream) == 0,
            "first of two");
      check(all.wrong(
                n / 3, [&](Index i) { return value(0, i); }, stream) == 0,
            "second of two");
    } else {
      go([&] { return send_recv.recv(got.get(), n, 1, stream); });
      check(got.wrong(
                n, [&](Index i) { return value(1, i); }, stream) == 0,
            "rank 1's, rank %d", rank);
    }
  }
};

void suite(const Communicator& comm) {
  const char* const cumem = std::getenv("CCL_CUMEM_ENABLE");
  if (cumem != nullptr && cumem[0] == '0' && comm.peer(0).pid_hash == comm.peer(1).pid_hash) {
    const auto none = Collective<AllReduce, CopyEngine, Simple, DefaultTransport>::create(comm);
    check(!none && none.error().code == Errc::not_supported, "pulls of cudaMalloc's memory");
    return;
  }
  cudaStream_t stream;
  MUST_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  const std::vector<Index> counts{0, 1, 1023, 300001, 2000003};
  for (const bool graph : {false, true}) {
    Suite rank{{comm, stream, graph}};
    for (const bool small : {false, true}) {
      if (small) {  // many chunks
        rank.plan.emplace();
        rank.plan->slot_count = 2;
        rank.plan->slot_bytes = 128 << 10;
      }
      rank.all_reduce<float>(counts);
      rank.all_reduce<__nv_bfloat16>({1, 77777});
      rank.reduce_scatter({1, 1023, 300001});
      for (const int kind : {0, 1, 2}) rank.moves({1, 1023, 300001}, kind);
      rank.uneven(100001);
      if (!graph) rank.beside_captures(300001);
    }
    for (const Index n : {1, 1023, 300001}) {
      rank.in_windows<WindowCopies>(n);
      rank.in_windows<ZeroSmCopies>(n);
    }
    rank.chosen();
  }
  MUST_CUDA(cudaStreamDestroy(stream));
}

}  // namespace

int main() {
  const Ranks ranks = find_ranks();
  if (ranks.gpus < 2) {
    std::printf("SKIP: %d GPUs, and copies between them want two\n", ranks.gpus);
    return 77;
  }
  ::setenv("CCL_TIMEOUT", "5", 0);
  Config config;
  config.memory_budget_bytes = Index{4} << 30;
  both_ways(ranks, config, suite);
  return result("CopyEngine", ranks.gpus);
}
