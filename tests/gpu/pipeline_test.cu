// Pipelines of GPUs, as threads of one host and as processes of several. Eager and in graphs, on
// one stream and on two, with messages that fit into the scratch and with some that need several
// passes.
#include <vector>

#include "communicator.cuh"

using namespace ccl;
using namespace ccl::test;

namespace {
template <class Level, class Op>
using By = On<Level, Op, Ring, Simple>;

struct ToEighths {
  CCL_HD short operator()(float x) const { return short(x * 8); }
};
struct FromEighths {
  float scale = 1;
  CCL_HD float operator()(short e) const { return float(e) / 8 * scale; }
};
using Narrow = Pipeline<By<IntraNode, ReduceScatter>, Map<ToEighths>, By<InterNode, AllReduce>,
                        Map<FromEighths>, By<IntraNode, AllGather>>;
using NarrowFloat =
    Pipeline<By<IntraNode, ReduceScatter>, Map<Convert<bfloat16>>, By<InterNode, AllReduce>,
             Map<Convert<float>>, By<IntraNode, AllGather>>;
using Wide = Pipeline<Map<FromEighths>, By<World, AllReduce>>;
using Gathers = Pipeline<By<IntraNode, AllGather>, By<InterNode, AllGather>>;

struct Suite : Rank {
  float total(Index i) const {
    double s = 0;
    for (int r = 0; r < ranks; ++r) s += value(r, i);
    return float(s);
  }
  template <class P>
  void check_sum(const P& sum, Index count, Index offset, const char* what, float scale) const {
    Buffer<float> in{count, offset}, out{count, offset};
    in.fill([&](Index i) { return value(rank, i); }, stream);
    const auto want = [&](Index i) { return total(i) * scale; };
    go([&] { return sum(in.get(), out.get(), count, Sum{}, stream); });
    const long apart = out.wrong(count, want, stream);
    go([&] { return sum(in.get(), in.get(), count, Sum{}, stream); });
    // A graph replays it twice, in place: the sum of sums then.
    const auto again = [&](Index i) { return graph ? total(i) * float(ranks) : total(i) * scale; };
    const long in_place = graph && scale != 1 ? 0 : in.wrong(count, again, stream);
    check(apart == 0 && in_place == 0, "%s of %ld behind %ld on rank %d%s: %ld and %ld wrong", what,
          long(count), long(offset), rank, graph ? ", graph" : "", apart, in_place);
  }
  void all(Index scratch) const {
    const auto narrow = must(Narrow::create(comm, {}, scratch));
    const auto floats = must(NarrowFloat::create(comm, {}, scratch));
    const auto wide = must(Wide::create(comm, {FromEighths{8}}, scratch));
    const auto gathers = must(Gathers::create(comm, {}, scratch));
    for (const Index count : {1, 2, 5, 1000, 4097, 300'001}) {
      for (const Index offset : {0, 1}) {
        check_sum(narrow, count, offset, "eighths", 1);
        check_sum(narrow.with({ToEighths{}, FromEighths{4}}), count, offset, "eighths by 4", 4);
        check_sum(floats, count, offset, "bfloat16", 1);
        Buffer<short> codes{count, offset};
        Buffer<float> sums{count, offset};
        codes.fill([&](Index i) { return value(rank, i); }, stream);
        go([&] { return wide(codes.get(), sums.get(), count, Sum{}, stream); });
        check(sums.wrong(
                  count, [&](Index i) { return total(i); }, stream) == 0,
              "codes of %ld behind %ld on rank %d", long(count), long(offset), rank);
      }
      Buffer<int> one{count, 0}, each{count * ranks, 0};
      one.fill([&](Index i) { return double(rank * 1000 + i % 1000); }, stream);
      go([&] { return gathers(one.get(), each.get(), count, stream); });
      const auto right = [&](Index i) { return double(i / count * 1000 + i % count % 1000); };
      check(each.wrong(count * ranks, right, stream) == 0, "gathers of %ld on rank %d", long(count),
            rank);
    }
  }
  /// Calls by turns on two streams share the scratch.
  void two_streams() const {
    const auto narrow = must(Narrow::create(comm, {}, 16384));
    constexpr Index count = 50'001;
    cudaStream_t other{};
    MUST_CUDA(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    Buffer<float> in{count, 0}, a{count, 0}, b{count, 0};
    in.fill([&](Index i) { return value(rank, i); }, stream);
    must(comm.barrier());  // earlier steps created a stream and set memory beside others' kernels
    for (int k = 0; k < 20; ++k) {
      must(narrow(in.get(), a.get(), count, Sum{}, stream));
      must(narrow(in.get(), b.get(), count, Sum{}, other));
    }
    const auto want = [&](Index i) { return total(i); };
    const long wrong = a.wrong(count, want, stream) + b.wrong(count, want, other);
    check(wrong == 0, "on two streams, rank %d: %ld wrong", rank, wrong);
    MUST_CUDA(cudaStreamDestroy(other));
  }
  void refusals() const {
    const auto narrow = must(Narrow::create(comm));
    HostStream queue;
    Buffer<float> in{16, 0};
    const auto done = narrow(in.get(), in.get(), 16, Sum{}, queue);
    check(!done && done.error().code == Errc::invalid_argument, "a HostStream on a GPU");
  }
};

void suite(const Communicator& comm) {
  cudaStream_t stream{};
  MUST_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  for (const bool graph : {false, true}) {
    const Suite rank{{comm, stream, graph}};
    rank.all(graph ? 0 : 65536);
  }
  const Suite rank{{comm, stream, false}};
  rank.two_streams();
  rank.refusals();
  MUST_CUDA(cudaStreamDestroy(stream));
}

}  // namespace

int main() {
  const Ranks ranks = find_ranks();
  if (ranks.gpus == 0) return skipped();
  // Ranks that share GPUs wait for each other: no kernel may be loaded when one waits.
  ::setenv("CCL_TIMEOUT", "20", 0);
  ::setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  both_ways(ranks, Config{}, suite, 3);
  ::setenv("CCL_MULTI_RANK_GPU_ENABLE", "1", 1);
  if (ranks.count % 2 == 0) as_processes(ranks.count, Config{}, suite, 2);
  if (ranks.count < 4) as_processes(4, Config{}, suite, 2);
  as_threads(1, Config{}, suite);
  return result("Pipelines", ranks.gpus);
}
