// Messages between any two ranks through the public interface, by Direct and OneShot. Threads and
// processes, eager and in graphs, into buffers that peers map later and through scratch.
#include "communicator.cuh"

using namespace ccl;
using namespace ccl::test;

namespace {

/// Elements for rank `to` of what `from` sends.
Index share(Index n, int from, int to, int ranks) {
  return (from + 2 * to) % 3 == 2 ? 0 : n / ranks * (1 + (from + to) % ranks);
}

struct Suite : Rank {
  template <class Op, class Algo, class Proto>
  auto make() const {
    return must(Collective<Op, Algo, Proto, DefaultTransport>::create(comm));
  }
  double mark(int from, int to, Index i) const { return value(from, i + 11 * to); }

  template <class Algo, class Proto>
  void rooted(Index n) const {
    const auto gather = make<ccl::Gather, Algo, Proto>();
    const auto scatter = make<ccl::Scatter, Algo, Proto>();
    Buffer<float> one{n, n % 2}, all{n * ranks, 1 - n % 2}, out{n, 0}, back{n * ranks, 0};
    one.fill([&](Index i) { return value(rank, i); }, stream);
    all.fill([&](Index i) { return mark(rank, int(i / n), i % n); }, stream);
    for (int root = 0; root < ranks; root += ranks - 1) {
      go([&] { return gather(one.get(), back.get(), n, root, stream); });
      if (rank == root) {
        check(back.wrong(
                  n * ranks, [&](Index i) { return value(int(i / n), i % n); }, stream) == 0,
              "%s count %ld root %d", gather.name().c_str(), long(n), root);
      }
      go([&] { return scatter(all.get(), out.get(), n, root, stream); });
      check(out.wrong(
                n, [&](Index i) { return mark(root, rank, i); }, stream) == 0,
            "%s count %ld root %d rank %d", scatter.name().c_str(), long(n), root, rank);
    }
  }
  template <class Algo, class Proto>
  void pairs(Index n) const {
    const auto all_to_all_v = make<ccl::AllToAllV, Algo, Proto>();
    std::vector<Index> counts[2], offsets[2];
    Index total[2] = {0, 0};
    for (int p = 0; p < ranks; ++p) {
      for (int side = 0; side < 2; ++side) {
        counts[side].push_back(side == 0 ? share(n, rank, p, ranks) : share(n, p, rank, ranks));
        offsets[side].push_back(total[side]);
        total[side] += counts[side].back() + n % 3;
      }
    }
    Buffer<float> from{total[0] + 1, 0}, to{total[1] + 1, 0};
    std::vector<double> sent(size_t(total[0]) + 1);
    for (int p = 0; p < ranks; ++p) {
      for (Index i = 0; i < counts[0][p]; ++i) sent[size_t(offsets[0][p] + i)] = mark(rank, p, i);
    }
    from.fill([&](Index i) { return sent[size_t(i)]; }, stream);
    go([&] {
      return all_to_all_v(from.get(), counts[0], offsets[0], to.get(), counts[1], offsets[1],
                          stream);
    });
    for (int p = 0; p < ranks; ++p) {
      check(
          to.wrong(
              counts[1][p], [&](Index i) { return mark(p, rank, i); }, stream, offsets[1][p]) == 0,
          "%s count %ld from %d to %d", all_to_all_v.name().c_str(), long(n), p, rank);
    }
    const auto send_recv = make<ccl::SendRecv, Algo, Proto>();
    const int next = (rank + 1) % ranks, prev = (rank + ranks - 1) % ranks;
    Buffer<float> mine{n, 0}, theirs{n, n % 2}, more{2 * n, 0};
    mine.fill([&](Index i) { return value(rank, i); }, stream);
    for (int turn = 0; turn < 4; ++turn) {
      go([&] { return send_recv(mine.get(), n, next, theirs.get(), n, prev, stream); });
      check(theirs.wrong(
                n, [&](Index i) { return value(prev, i); }, stream) == 0,
            "%s count %ld rank %d", send_recv.name().c_str(), long(n), rank);
    }
    // Several messages between two ranks, and a rank that has none.
    if (ranks > 1 && rank < 2) {
      go([&] {
        if (rank == 0) {
          return send_recv.group({send_recv.send_message(mine.get(), n, 1),
                                  send_recv.send_message(mine.get(), n / 2, 1)},
                                 stream);
        }
        return send_recv.group({send_recv.recv_message(more.get(), n, 0),
                                send_recv.recv_message(more.get() + n, n / 2, 0)},
                               stream);
      });
      if (rank == 1) {
        const auto want = [&](Index i) { return value(0, i < n ? i : i - n); };
        check(more.wrong(n + n / 2, want, stream) == 0, "%s group count %ld",
              send_recv.name().c_str(), long(n));
      }
    }
  }
  template <class Algo, class Proto>
  void shares(Index n) const {
    const auto all_gather = make<ccl::AllGather, Algo, Proto>();
    const auto all_to_all = make<ccl::AllToAll, Algo, Proto>();
    Buffer<float> one{n, 0}, all{n * ranks, 0}, mine{n * ranks, 0}, out{n * ranks, 0};
    one.fill([&](Index i) { return value(rank, i); }, stream);
    mine.fill([&](Index i) { return value(rank, i); }, stream);
    // Peers can have mapped the buffers in later rounds.
    for (int turn = 0; turn < 4; ++turn) {
      go([&] { return all_gather(one.get(), all.get(), n, stream); });
      check(all.wrong(
                n * ranks, [&](Index i) { return value(int(i / n), i % n); }, stream) == 0,
            "%s count %ld rank %d turn %d", all_gather.name().c_str(), long(n), rank, turn);
      go([&] { return all_to_all(mine.get(), out.get(), n, stream); });
      const auto moved = [&](Index i) { return value(int(i / n), rank * n + i % n); };
      check(out.wrong(n * ranks, moved, stream) == 0, "%s count %ld rank %d turn %d",
            all_to_all.name().c_str(), long(n), rank, turn);
    }
  }
  template <class Algo, class Proto>
  void reduce(Index n) const {
    const auto reduce = make<ccl::Reduce, Algo, Proto>();
    Buffer<float> in{n, 0}, out{n, 0};
    in.fill([&](Index i) { return value(rank, i); }, stream);
    for (int root = 0; root < ranks; ++root) {
      for (int turn = 0; turn < 5; ++turn) {
        go([&] { return reduce(in.get(), out.get(), n, Sum{}, root, stream); });
      }
      const auto sum = [&](Index i) {
        double s = 0;
        for (int r = 0; r < ranks; ++r) s += value(r, i);
        return s;
      };
      check(rank != root || out.wrong(n, sum, stream) == 0, "%s count %ld root %d",
            reduce.name().c_str(), long(n), root);
    }
  }
  template <class Algo, class Proto>
  void broadcast(Index n) const {
    const auto broadcast = make<ccl::Broadcast, Algo, Proto>();
    Buffer<float> in{n, 0}, out{n, n % 2};
    in.fill([&](Index i) { return value(rank, i); }, stream);
    for (int root = 0; root < ranks; ++root) {
      for (int turn = 0; turn < 5; ++turn) {  // the root runs ahead
        go([&] { return broadcast(in.get(), out.get(), n, root, stream); });
      }
      check(out.wrong(
                n, [&](Index i) { return value(root, i); }, stream) == 0,
            "%s count %ld root %d rank %d", broadcast.name().c_str(), long(n), root, rank);
    }
  }
};

void suite(const Communicator& comm) {
  cudaStream_t stream;
  MUST_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  for (const bool graph : {false, true}) {
    const Suite rank{{comm, stream, graph}};
    for (const Index n : {1, 1023, 65536, 2000001}) {
      rank.shares<Direct, Simple>(n);
      rank.rooted<Direct, Simple>(n);
      rank.pairs<Direct, Simple>(n);
      if (n > 100000 && graph) continue;
      rank.rooted<OneShot, LL128>(n);
      rank.pairs<OneShot, LL128>(n);
      rank.pairs<OneShot, LL>(n);
      rank.broadcast<OneShot, LL>(n);
      rank.broadcast<OneShot, LL128>(n);
      rank.broadcast<TwoShot, LL128>(n);
      rank.reduce<OneShot, LL128>(n);
      rank.reduce<TwoShot, LL128>(n);
    }
  }
  MUST_CUDA(cudaStreamDestroy(stream));
}

}  // namespace

int main() {
  const Ranks ranks = find_ranks();
  if (ranks.gpus == 0) return skipped();
  ::setenv("CCL_TIMEOUT", "5", 0);
  Config config;
  config.memory_budget_bytes = Index{4} << 30;
  both_ways(ranks, config, suite);
  return result("Direct and OneShot between any two ranks", ranks.gpus);
}
