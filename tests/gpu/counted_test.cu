// Rows whose counts are only in GPU memory, through the public interface. Threads and processes,
// eager and in graphs whose counts change between replays, and counts that are too large.
#include "communicator.cuh"

using namespace ccl;
using namespace ccl::test;

namespace {

int rows_for(int from, int to, int turn, int stride) {
  const int n = (from * 7 + to * 3 + turn * 5) % (stride + 3);
  return n > stride ? 0 : n;
}

template <class Algo, class Proto>
void exchange(const Rank& rank, Index row, int stride, bool listed, Index offset) {
  const auto all_to_all_v =
      must(Collective<AllToAllV, Algo, Proto, DefaultTransport>::create(rank.comm));
  const int ranks = rank.ranks, me = rank.rank;
  const Index rows = Index{ranks} * stride;
  Buffer<float> from{rows * row, offset}, to{rows * row, offset};
  Buffer<int> counts{ranks, 0}, got{ranks, 0}, list{rows, 0};
  list.fill([&](Index i) { return double(rows - 1 - i); }, rank.stream);
  const auto element = [&](int of, Index i) { return double((i * 5 + of * 17) % 251); };
  from.fill([&](Index i) { return element(me, i); }, rank.stream);
  const int beside = listed ? 5 : 0;  // ints that go with each row
  Buffer<int> side{rows * beside, 0}, sides{rows * beside, 0};
  side.fill([&](Index i) { return double(me * 100000 + i); }, rank.stream);
  CountedRows how;
  how.send_side = side.get();
  how.recv_side = sides.get();
  how.side_bytes = beside * 4;
  how.row = row;
  how.send_counts = counts.get();
  how.send_stride = how.recv_stride = stride;
  how.send_rows = listed ? list.get() : nullptr;
  how.recv_counts = got.get();
  const auto call = [&] { must(all_to_all_v.counted(from.get(), to.get(), how, rank.stream)); };

  cudaGraph_t captured = nullptr;
  cudaGraphExec_t ready = nullptr;
  if (rank.graph) {
    MUST_CUDA(cudaStreamBeginCapture(rank.stream, cudaStreamCaptureModeThreadLocal));
    call();
    call();
    MUST_CUDA(cudaStreamEndCapture(rank.stream, &captured));
    MUST_CUDA(cudaGraphInstantiate(&ready, captured, 0));
  }
  for (int turn = 0; turn < 4; ++turn) {  // one graph, other counts in each
    counts.fill([&](Index p) { return double(rows_for(me, int(p), turn, stride)); }, rank.stream);
    MUST_CUDA(cudaMemsetAsync(to.get(), 0xa5, size_t(rows * row) * sizeof(float), rank.stream));
    if (rank.graph) {
      MUST_CUDA(cudaGraphLaunch(ready, rank.stream));
    } else {
      call();
    }
    check(got.wrong(
              ranks, [&](Index p) { return double(rows_for(int(p), me, turn, stride)); },
              rank.stream) == 0,
          "%s counts, row %ld turn %d rank %d", all_to_all_v.name().c_str(), long(row), turn, me);
    for (int p = 0; p < ranks; ++p) {
      const auto what = [&](Index i) {
        const Index row = rows - 1 - Index{me} * stride - i / beside;  // as listed
        return double(p * 100000 + row * beside + i % beside);
      };
      check(sides.wrong(Index{rows_for(p, me, turn, stride)} * beside, what, rank.stream,
                        Index{p} * stride * beside) == 0,
            "%s what goes with rows, row %ld turn %d rank %d", all_to_all_v.name().c_str(),
            long(row), turn, me);
    }
    float untouched;
    std::memset(&untouched, 0xa5, sizeof untouched);
    const auto want = [&](Index i) {
      const Index p = i / (row * stride), k = i % (row * stride);
      if (k / row >= rows_for(int(p), me, turn, stride)) return double(untouched);
      const Index at = Index{me} * stride + k / row;
      return element(int(p), (listed ? rows - 1 - at : at) * row + k % row);
    };
    check(to.wrong(rows * row, want, rank.stream) == 0, "%s row %ld stride %d turn %d rank %d",
          all_to_all_v.name().c_str(), long(row), stride, turn, me);
  }
  if (rank.graph) {
    MUST_CUDA(cudaGraphExecDestroy(ready));
    MUST_CUDA(cudaGraphDestroy(captured));
  }
}

void suite(const Communicator& comm) {
  cudaStream_t stream;
  MUST_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  for (const bool graph : {false, true}) {
    const Rank rank{comm, stream, graph};
    exchange<OneShot, LL128>(rank, 3, 5, false, 1);
    exchange<OneShot, LL128>(rank, 4, 1000, false, 0);
    exchange<OneShot, LL128>(rank, 3584, 128, true, 0);
    exchange<OneShot, LL128>(rank, 1001, 30, true, 1);
    exchange<OneShot, LL>(rank, 700, 20, true, 0);
    exchange<OneShot, LL128>(rank, 20000, 130, false, 0);  // more than a box holds
  }
  MUST_CUDA(cudaStreamDestroy(stream));
}

/// Rank 0 has more rows for the last rank than fit. The kernels of all ranks must end, and all
/// ranks must get the error.
void too_many(const Communicator& comm) {
  cudaStream_t stream;
  MUST_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  const auto all_to_all_v =
      must(Collective<AllToAllV, OneShot, LL128, DefaultTransport>::create(comm));
  const int ranks = comm.ranks(), stride = 16, last = ranks - 1;
  const Index row = 64;
  Buffer<float> from{ranks * stride * row, 0}, to{ranks * stride * row, 0};
  Buffer<int> counts{ranks, 0}, got{ranks, 0};
  for (const int turn : {0, 1}) {
    counts.fill(
        [&](Index p) { return turn == 1 && comm.rank() == 0 && p == last ? stride + 5 : 2; },
        stream);
    const auto called = all_to_all_v.counted(
        from.get(), to.get(), {row, counts.get(), stride, nullptr, got.get(), stride}, stream);
    check(called.has_value(), "rank %d turn %d: %s", comm.rank(), turn,
          called ? "" : called.error().message().c_str());
    MUST_CUDA(cudaStreamSynchronize(stream));
  }
  float untouched;
  std::memset(&untouched, 0xa5, sizeof untouched);
  check(
      to.wrong((stride - 2) * row, [&](Index) { return double(untouched); }, stream, 2 * row) == 0,
      "rank %d: rows behind what was counted are as they were", comm.rank());
  const auto after = all_to_all_v.counted(
      from.get(), to.get(), {row, counts.get(), stride, nullptr, got.get(), stride}, stream);
  check(!after.has_value(), "rank %d: no error", comm.rank());
  if (after) return;
  if (comm.rank() == 0 || comm.rank() == last) {
    check(after.error().code == Errc::overflow, "rank %d: %s", comm.rank(),
          after.error().message().c_str());
    check(after.error().what.find("rank 0 has 21 rows for rank " + std::to_string(last)) !=
              std::string::npos,
          "rank %d: %s", comm.rank(), after.error().message().c_str());
  }
  MUST_CUDA(cudaStreamDestroy(stream));
}

}  // namespace

int main() {
  const Ranks ranks = find_ranks();
  if (ranks.gpus == 0) return skipped();
  ::setenv("CCL_TIMEOUT", "5", 0);
  Config config;
  config.memory_budget_bytes = Index{1} << 30;
  as_threads(1, config, suite);
  both_ways(ranks, config, suite);
  if (!ranks.share()) as_threads(ranks.count, config, too_many);
  return result("rows whose counts only the GPUs hold", ranks.gpus);
}
