// Every collective through the public interface on GPUs: threads and processes, eager and in
// graphs.
#include <cmath>

#include "communicator.cuh"

using namespace ccl;
using namespace ccl::test;

namespace {

struct Suite : Rank {
  template <class Algo, class Proto>
  void reductions(const std::vector<Index>& counts) const {
    const auto all_reduce =
        must(Collective<AllReduce, Algo, Proto, DefaultTransport>::create(comm));
    const auto reduce = must(Collective<Reduce, Algo, Proto, DefaultTransport>::create(comm));
    const auto broadcast = must(Collective<Broadcast, Algo, Proto, DefaultTransport>::create(comm));
    const auto sum = [&](Index i) {
      double s = 0;
      for (int r = 0; r < ranks; ++r) s += value(r, i);
      return s;
    };
    for (const Index n : counts) {
      const Index offset = n % 3 == 1 ? 1 : 0;
      Buffer<float> in{n, offset}, out{n, offset};
      in.fill([&](Index i) { return value(rank, i); }, stream);
      go([&] { return all_reduce(in.get(), out.get(), n, Sum{}, stream); });
      check(out.wrong(n, sum, stream) == 0, "%s count %ld rank %d", all_reduce.name().c_str(),
            long(n), rank);
      const int root = int(n % ranks);
      Buffer<float> there{n, offset};
      go([&] { return reduce(in.get(), there.get(), n, Sum{}, root, stream); });
      if (rank == root) {
        check(there.wrong(n, sum, stream) == 0, "%s count %ld root %d", reduce.name().c_str(),
              long(n), root);
      }
      Buffer<float> copy{n, offset};
      go([&] { return broadcast(in.get(), copy.get(), n, root, stream); });
      check(copy.wrong(
                n, [&](Index i) { return value(root, i); }, stream) == 0,
            "%s count %ld root %d rank %d", broadcast.name().c_str(), long(n), root, rank);
      if (!graph) {
        must(all_reduce(in.get(), in.get(), n, Sum{}, stream));
        check(in.wrong(n, sum, stream) == 0, "%s in place, count %ld rank %d",
              all_reduce.name().c_str(), long(n), rank);
      }
    }
  }

  template <class Proto>
  void shares(const std::vector<Index>& counts) const {
    const auto all_gather =
        must(Collective<AllGather, Ring, Proto, DefaultTransport>::create(comm));
    const auto reduce_scatter =
        must(Collective<ReduceScatter, Ring, Proto, DefaultTransport>::create(comm));
    for (const Index n : counts) {
      Buffer<float> one{n, 0}, all{n * ranks, 0}, sum{n, 0};
      one.fill([&](Index i) { return value(rank, i); }, stream);
      go([&] { return all_gather(one.get(), all.get(), n, stream); });
      check(all.wrong(
                n * ranks, [&](Index i) { return value(int(i / n), i % n); }, stream) == 0,
            "%s count %ld rank %d", all_gather.name().c_str(), long(n), rank);
      Buffer<float> mine{n * ranks, 0};
      mine.fill([&](Index i) { return value(rank, i); }, stream);
      go([&] { return reduce_scatter(mine.get(), sum.get(), n, Sum{}, stream); });
      check(sum.wrong(
                n,
                [&](Index i) {
                  double s = 0;
                  for (int r = 0; r < ranks; ++r) s += value(r, rank * n + i);
                  return s;
                },
                stream) == 0,
            "%s count %ld rank %d", reduce_scatter.name().c_str(), long(n), rank);
    }
  }

  /// More messages than fit into a launch, each way around the ring.
  template <class Proto>
  void many_messages() const {
    constexpr Index count = 250, n = 333;
    const auto send_recv =
        must(Collective<SendRecv, Pairwise, Proto, DefaultTransport>::create(comm));
    Buffer<float> in{count * n, 0}, out{count * n, 0}, back{count * n, 0};
    in.fill([&](Index i) { return value(rank, i); }, stream);
    const int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
    go([&] {
      std::vector<decltype(send_recv.send_message(in.get(), n, next))> all;
      for (Index m = 0; m < count; ++m) {
        const Index length = n - m;
        all.push_back(send_recv.send_message(in.get() + m * n, length, next));
        all.push_back(send_recv.send_message(in.get() + m * n, length, before));
        all.push_back(send_recv.recv_message(out.get() + m * n, length, before));
        all.push_back(send_recv.recv_message(back.get() + m * n, length, next));
      }
      return send_recv.group(std::span<const typename decltype(all)::value_type>{all}, stream);
    });
    for (Index m = 0; m < count; ++m) {
      for (const auto& [got, from] : {std::pair{&out, before}, std::pair{&back, next}}) {
        const auto want = [&, from = from](Index i) { return value(from, m * n + i); };
        check(got->wrong(n - m, want, stream, m * n) == 0, "%s message %ld from %d to %d",
              send_recv.name().c_str(), long(m), from, rank);
      }
    }
  }

  template <class Proto>
  void messages(const std::vector<Index>& counts) const {
    const auto all_to_all =
        must(Collective<AllToAll, Pairwise, Proto, DefaultTransport>::create(comm));
    const auto gather = must(Collective<Gather, Pairwise, Proto, DefaultTransport>::create(comm));
    const auto scatter = must(Collective<Scatter, Pairwise, Proto, DefaultTransport>::create(comm));
    const auto send_recv =
        must(Collective<SendRecv, Pairwise, Proto, DefaultTransport>::create(comm));
    const auto all_to_all_v =
        must(Collective<AllToAllV, Pairwise, Proto, DefaultTransport>::create(comm));
    for (const Index n : counts) {
      Buffer<float> in{n * ranks, 0}, out{n * ranks, 0};
      in.fill([&](Index i) { return value(rank * 3 + int(i / std::max<Index>(n, 1)), i); }, stream);
      go([&] { return all_to_all(in.get(), out.get(), n, stream); });
      check(out.wrong(
                n * ranks,
                [&](Index i) { return value(int(i / n) * 3 + rank, Index{rank} * n + i % n); },
                stream) == 0,
            "%s count %ld rank %d", all_to_all.name().c_str(), long(n), rank);
      // Sizes that let each rank have another largest message.
      const auto size = [&](int from, int to) {
        return from == to ? n >> 2 * (from % 4) : n >> 6 + (from + to) % 2;
      };
      std::vector<Index> out_sizes, in_sizes, offsets;
      for (int p = 0; p < ranks; ++p) {
        out_sizes.push_back(size(rank, p));
        in_sizes.push_back(size(p, rank));
        offsets.push_back(n * p);
      }
      Buffer<float> uneven{n * ranks, 0};
      go([&] {
        return all_to_all_v(in.get(), out_sizes, offsets, uneven.get(), in_sizes, offsets, stream);
      });
      for (int p = 0; p < ranks; ++p) {
        const auto at = [&](Index i) { return value(p * 3 + rank, Index{rank} * n + i); };
        check(uneven.wrong(size(p, rank), at, stream, n * p) == 0, "%s count %ld from %d to %d",
              all_to_all_v.name().c_str(), long(n), p, rank);
      }
      const int root = int(n % ranks);
      Buffer<float> all{n * ranks, 0}, one{n, 0};
      go([&] { return gather(in.get(), all.get(), n, root, stream); });
      if (rank == root) {
        check(all.wrong(
                  n * ranks, [&](Index i) { return value(int(i / n) * 3, i % n); }, stream) == 0,
              "%s count %ld", gather.name().c_str(), long(n));
      }
      go([&] { return scatter(in.get(), one.get(), n, root, stream); });
      check(
          one.wrong(
              n, [&](Index i) { return value(root * 3 + rank, Index{rank} * n + i); }, stream) == 0,
          "%s count %ld rank %d", scatter.name().c_str(), long(n), rank);
      const int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
      Buffer<float> got{n, 0};
      go([&] { return send_recv(in.get(), n, next, got.get(), n, before, stream); });
      check(got.wrong(
                n, [&](Index i) { return value(before * 3, i); }, stream) == 0,
            "%s count %ld rank %d", send_recv.name().c_str(), long(n), rank);
    }
  }
};

template <class Proto>
void protocol(const Suite& rank, const std::vector<Index>& counts) {
  rank.reductions<Ring, Proto>(counts);
  rank.reductions<Tree, Proto>(counts);
  rank.shares<Proto>(counts);
  rank.messages<Proto>(counts);
  if (rank.ranks > 1) rank.many_messages<Proto>();
}

/// LL128 must fail with the reason and the remedy on all ranks, and leave them usable.
void refuses_ll128(const Communicator& comm) {
  const auto made = Collective<AllReduce, Ring, LL128, DefaultTransport>::create(comm);
  const std::string text = made ? "nothing" : made.error().message();
  check(!made && made.error().code == Errc::not_supported && made.error().transport == "shm" &&
            made.error().peer == (comm.rank() == 0 ? 1 : comm.rank() - 1) &&
            text.find("use Simple or LL") != std::string::npos,
        "LL128 over shm on rank %d: %s", comm.rank(), text.c_str());
}

void suite(const Communicator& comm, const std::vector<Index>& counts, bool lines) {
  cudaStream_t stream;
  MUST_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  for (const bool graph : {false, true}) {
    Suite rank{{comm, stream}};
    rank.graph = graph;
    protocol<LL>(rank, counts);
    protocol<Simple>(rank, counts);
    if (lines) protocol<LL128>(rank, counts);
  }
  if (!lines) refuses_ll128(comm);
  MUST_CUDA(cudaStreamDestroy(stream));
  if (comm.rank() == 0) {
    std::printf("memory used: %ld of %ld bytes\n", long(comm.memory_used()),
                long(comm.memory_budget()));
  }
}

}  // namespace

/// Without arguments all of them: threads, processes, alone, and, of processes, shm and network.
int main(int argc, char** argv) {
  const auto wanted = [&](const char* name) {
    bool listed = argc < 2;
    for (int a = 1; a < argc; ++a) listed = listed || std::strcmp(argv[a], name) == 0;
    return listed;
  };
  const Ranks ranks = find_ranks();
  if (ranks.gpus == 0) return skipped();
  ::setenv("CCL_TIMEOUT", "5", 0);
  Config config;
  config.memory_budget_bytes = Index{2} << 30;
  const std::vector<Index> counts{0, 1, 1023, 65536, 300001};
  const auto direct = [&](const Communicator& comm) { suite(comm, counts, true); };
  if (wanted("threads") && !ranks.share()) as_threads(ranks.count, config, direct);
  if (wanted("processes")) as_processes(ranks.count, config, direct);
  if (wanted("alone")) as_threads(1, config, direct);
  // Wires through host memory are few and small, so the largest message passes them many times.
  const std::vector<Index> far{0, 1, 1023, 65536, 3000001};
  if (wanted("network")) {
    as_processes(
        ranks.count, config, [&](const Communicator& comm) { suite(comm, far, true); }, 2);
  }
  ::setenv("CCL_P2P_DISABLE", "1", 1);
  const auto through_host = [&](const Communicator& comm) { suite(comm, far, false); };
  if (wanted("shm")) {
    both_ways(ranks, config, through_host);
  }
  return result("Communicator", ranks.gpus);
}
