// Peer views of more ranks than have kernels of their own: 9 ranks, or TEST_RANKS, which share the
// GPUs. Threads and processes, eager and in graphs, with several launches, and in a window.
#include "communicator.cuh"

using namespace ccl;
using namespace ccl::test;

namespace {

constexpr Plan plan{.channels = 1, .slot_count = 2, .slot_bytes = 512 << 10};

struct Suite : Rank {
  template <class Op, class Algo, class Proto>
  auto make() const {
    return must(Collective<Op, Algo, Proto, DefaultTransport>::create(comm, plan));
  }
  auto sum_from(Index first) const {
    return [n = ranks, first](Index i) {
      double s = 0;
      for (int r = 0; r < n; ++r) s += value(r, first + i);
      return s;
    };
  }
  template <class T, class F>
  void expect(const Buffer<T>& out, Index n, F want, const std::string& name, Index count) const {
    check(out.wrong(n, want, stream) == 0, "%s count %ld rank %d of %d", name.c_str(), long(count),
          rank, ranks);
  }
  /// Offsets: buffers of some calls have no alignment of packets.
  template <class Algo, class Proto, class T>
  void all_reduces(const std::vector<Index>& counts) const {
    const auto op = make<AllReduce, Algo, Proto>();
    for (const Index n : counts) {
      Buffer<T> in{n, n % 2}, out{n, n % 3 == 1};
      in.fill([&](Index i) { return value(rank, i); }, stream);
      go([&] { return op(in.get(), out.get(), n, Sum{}, stream); });
      expect(out, n, sum_from(0), op.name(), n);
    }
  }
  template <class Algo, class Proto>
  void shares(const std::vector<Index>& counts) const {
    const auto gather = make<AllGather, Algo, Proto>();
    const auto scatter = make<ReduceScatter, Algo, Proto>();
    const auto exchange = make<AllToAll, Algo, Proto>();
    for (const Index n : counts) {
      Buffer<float> one{n, 0}, all{n * ranks, 0}, sum{n, 0}, mine{n * ranks, 0}, out{n * ranks, 0};
      one.fill([&](Index i) { return value(rank, i); }, stream);
      mine.fill([&](Index i) { return value(rank, i); }, stream);
      go([&] { return gather(one.get(), all.get(), n, stream); });
      expect(
          all, n * ranks, [&](Index i) { return value(int(i / n), i % n); }, gather.name(), n);
      go([&] { return scatter(mine.get(), sum.get(), n, Sum{}, stream); });
      expect(sum, n, sum_from(rank * n), scatter.name(), n);
      go([&] { return exchange(mine.get(), out.get(), n, stream); });
      expect(
          out, n * ranks, [&](Index i) { return value(int(i / n), rank * n + i % n); },
          exchange.name(), n);
    }
  }
  template <class Reducer, class Sender, class RProto, class SProto>
  void roots(const std::vector<Index>& counts) const {
    const auto reduce = make<Reduce, Reducer, RProto>();
    const auto broadcast = make<Broadcast, Sender, SProto>();
    for (const Index n : counts) {
      const int root = int(n % ranks);
      Buffer<float> in{n, 0}, sum{n, 0}, copy{n, 0};
      in.fill([&](Index i) { return value(rank, i); }, stream);
      go([&] { return reduce(in.get(), sum.get(), n, Sum{}, root, stream); });
      if (rank == root) expect(sum, n, sum_from(0), reduce.name(), n);
      go([&] { return broadcast(in.get(), copy.get(), n, root, stream); });
      expect(
          copy, n, [&](Index i) { return value(root, i); }, broadcast.name(), n);
    }
  }
  template <class Algo, class Proto>
  void messages(const std::vector<Index>& counts) const {
    const auto send_recv = make<SendRecv, Algo, Proto>();
    const auto gather = make<Gather, Algo, Proto>();
    for (const Index n : counts) {
      const int to = (rank + ranks / 2) % ranks, from = (rank + ranks - ranks / 2) % ranks;
      Buffer<float> in{n, n % 2}, out{n, 0}, all{n * ranks, 0};
      in.fill([&](Index i) { return value(rank, i); }, stream);
      go([&] { return send_recv(in.get(), n, to, out.get(), n, from, stream); });
      expect(
          out, n, [&](Index i) { return value(from, i); }, send_recv.name(), n);
      go([&] { return gather(in.get(), all.get(), n, 1, stream); });
      if (rank != 1) continue;
      expect(
          all, n * ranks, [&](Index i) { return value(int(i / n), i % n); }, gather.name(), n);
    }
  }
  /// Rows whose counts only GPU memory holds.
  void counted(Index row) const {
    constexpr int stride = 4;
    const auto op = make<AllToAllV, OneShot, LL128>();
    const Index all = Index{ranks} * stride * row;
    const auto rows_for = [](int from, int to) { return (from * 7 + to * 3) % (stride + 1); };
    Buffer<float> in{all, 0}, out{all, 0};
    Buffer<int> counts{ranks, 0}, got{ranks, 0};
    in.fill([&](Index i) { return value(rank, i); }, stream);
    counts.fill([&](Index p) { return double(rows_for(rank, int(p))); }, stream);
    CountedRows rows;
    rows.row = row;
    rows.send_counts = counts.get();
    rows.recv_counts = got.get();
    rows.send_stride = rows.recv_stride = stride;
    go([&] { return op.counted(in.get(), out.get(), rows, stream); });
    expect(
        got, ranks, [&](Index p) { return double(rows_for(int(p), rank)); }, op.name(), row);
    for (int p = 0; p < ranks; ++p) {
      const Index block = Index{stride} * row;
      check(out.wrong(
                rows_for(p, rank) * row, [&](Index i) { return value(p, rank * block + i); },
                stream, p * block) == 0,
            "%s rows of %ld from %d to %d", op.name().c_str(), long(row), p, rank);
    }
  }
  /// Direct into a window, which peers have mapped.
  void in_window(Index n) const {
    const auto op = make<AllGather, Direct, Simple>();
    const auto memory = must(SharedMemory::allocate(comm, n * ranks * Index{sizeof(float)}));
    const auto window = must(Window::create(comm, memory));
    Buffer<float> in{n, 0};
    in.fill([&](Index i) { return value(rank, i); }, stream);
    auto* const out = reinterpret_cast<float*>(window.at(rank));
    const Pinned<float> host{n * ranks};
    for (int turn = 0; turn < 3; ++turn) {
      MUST_CUDA(cudaMemsetAsync(out, 0xa5, size_t(n * ranks) * sizeof(float), stream));
      MUST_CUDA(cudaStreamSynchronize(stream));
      must(comm.barrier());
      must(op(in.get(), out, n, stream));
      MUST_CUDA(cudaMemcpyAsync(host.get(), out, size_t(n * ranks) * sizeof(float),
                                cudaMemcpyDeviceToHost, stream));
      MUST_CUDA(cudaStreamSynchronize(stream));
      long wrong = 0;
      for (Index i = 0; i < n * ranks; ++i) {
        wrong += double(host[size_t(i)]) != value(int(i / n), i % n);
      }
      check(wrong == 0, "%s in a window, turn %d rank %d", op.name().c_str(), turn, rank);
      ::usleep(400000);  // peers map the window meanwhile
      must(comm.barrier());
    }
    must(window.close());
  }
  void automatic(const std::vector<Index>& counts) const {
    const auto op = must(Collective<AllReduce, Auto>::create(comm));
    for (const Index n : counts) {
      Buffer<float> in{n, 0}, out{n, 0};
      in.fill([&](Index i) { return value(rank, i); }, stream);
      go([&] { return op(in.get(), out.get(), n, Sum{}, stream); });
      expect(out, n, sum_from(0), "Auto", n);
    }
  }
};

void suite(const Communicator& comm) {
  cudaStream_t stream;
  MUST_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  const std::vector<Index> counts{1, 1023, 100001}, short_counts{1, 1023, 20001};
  for (const bool graph : {false, true}) {
    const Suite rank{{comm, stream, graph}};
    rank.all_reduces<OneShot, LL, float>(counts);
    rank.all_reduces<OneShot, LL128, __nv_bfloat16>(counts);
    rank.all_reduces<TwoShot, LL128, float>(counts);
    rank.all_reduces<Direct, Simple, float>(counts);
    rank.shares<OneShot, LL128>(short_counts);
    rank.shares<Direct, Simple>(short_counts);
    rank.roots<OneShot, OneShot, LL128, LL128>(short_counts);
    rank.roots<TwoShot, TwoShot, LL128, LL128>(short_counts);
    rank.roots<TwoShot, Direct, LL128, Simple>(short_counts);
    rank.messages<OneShot, LL128>(short_counts);
    rank.messages<Direct, Simple>(short_counts);
    rank.counted(5);
    rank.counted(640);
    rank.automatic(counts);
    if (!graph) rank.in_window(60000);
  }
  MUST_CUDA(cudaStreamDestroy(stream));
}

}  // namespace

int main() {
  ::setenv("TEST_RANKS", "9", 0);
  const Ranks ranks = find_ranks();
  if (ranks.gpus == 0) return skipped();
  ::setenv("CCL_TIMEOUT", "30", 0);  // many processes take turns on a GPU
  Config config;
  config.memory_budget_bytes = Index{1} << 30;
  both_ways(ranks, config, suite);
  return result("peer views of more ranks than are unrolled", ranks.gpus);
}
