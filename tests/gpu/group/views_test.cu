// Calls over peer views as one launch, with and without calls over wires.
#include "gpu/group/group.cuh"

using namespace ccl;
using namespace ccl::test;

namespace {
struct Suite : GroupRank {
  Default<AllReduce, Ring, LL> ring = must(Default<AllReduce, Ring, LL>::create(comm));
  Default<AllReduce, OneShot, LL128> one_shot =
      must(Default<AllReduce, OneShot, LL128>::create(comm));
  // Over peer views; a scratch of two slots of the plan.
  Default<AllReduce, OneShot, LL128> other_one_shot =
      must(Default<AllReduce, OneShot, LL128>::create(comm));
  Default<AllReduce, TwoShot, LL128> two_shot =
      must(Default<AllReduce, TwoShot, LL128>::create(comm));
  Default<AllGather, OneShot, LL> viewed_gather =
      must(Default<AllGather, OneShot, LL>::create(comm));

  /// Calls over peer views of other sizes, two of one type among them, with and without a call over
  /// wires. `n` may be too long for one launch over a peer view.
  void viewed(Index n, Index m) const {
    Buffer<float> a{n, 0}, b{m, m % 2};
    Buffer<float> first{n, 0}, second{m, m % 2}, third{n, 0}, fourth{m, 0}, all{m * ranks, 0};
    a.fill([&](Index i) { return value(rank, i); }, stream);
    b.fill([&](Index i) { return value(rank, i) + 1; }, stream);
    const auto one = one_shot.bind(a.get(), first.get(), n);
    const auto two = other_one_shot.bind(b.get(), second.get(), m, Max{});
    const auto three = two_shot.bind(a.get(), third.get(), n, Sum{});
    const auto four = ring.bind(b.get(), fourth.get(), m);
    const auto five = viewed_gather.bind(b.get(), all.get(), m);
    for (int turn = 0; turn < 3; ++turn) {  // both halves of the scratch, and the first again
      go([&] { return group(stream, one, two, three, four, five); });
      // The same compositions alone, between groups: their launches are counted alike.
      must(one(stream));
      go([&] { return rank % 2 == 0 ? group(stream, two, five) : group(stream, five, two); });
    }
    const auto largest = [&](Index i) {
      double most = 0;
      for (int r = 0; r < ranks; ++r) most = std::max(most, value(r, i) + 1);
      return most;
    };
    const auto plus = [&](Index i) { return sum(i) + ranks; };
    const auto gathered = [&](Index i) { return value(int(i / m), i % m) + 1; };
    const long wrong[] = {first.wrong(
                              n, [&](Index i) { return sum(i); }, stream),
                          second.wrong(m, largest, stream),
                          third.wrong(
                              n, [&](Index i) { return sum(i); }, stream),
                          fourth.wrong(m, plus, stream), all.wrong(m * ranks, gathered, stream)};
    for (int k = 0; k < 5; ++k) {
      check(wrong[k] == 0, "call %d of a group over peer views, %ld and %ld, rank %d: %ld wrong", k,
            long(n), long(m), rank, wrong[k]);
    }
  }
  /// Several calls of compositions over wires and over a peer view, of other sizes.
  void repeated(Index n, Index m) const {
    Buffer<float> a{n, 0}, b{m, m % 2};
    Buffer<float> wired[] = {{n, 0}, {m, m % 2}}, viewed[] = {{n, 0}, {m, m % 2}};
    a.fill([&](Index i) { return value(rank, i); }, stream);
    b.fill([&](Index i) { return value(rank, i) + 1; }, stream);
    const auto ring_0 = ring.bind(a.get(), wired[0].get(), n);
    const auto ring_1 = ring.bind(b.get(), wired[1].get(), m, Max{});
    const auto view_0 = one_shot.bind(a.get(), viewed[0].get(), n);
    const auto view_1 = one_shot.bind(b.get(), viewed[1].get(), m, Max{});
    for (int turn = 0; turn < 3; ++turn) {
      go([&] {
        return rank % 2 == 0 ? group(stream, ring_0, view_0, view_1, ring_1)
                             : group(stream, view_0, ring_0, ring_1, view_1);
      });
      // The wires alone, between groups: their launches are counted alike.
      must(ring_1(stream));
      must(ring_0(stream));
    }
    const auto largest = [&](Index i) {
      double most = 0;
      for (int r = 0; r < ranks; ++r) most = std::max(most, value(r, i) + 1);
      return most;
    };
    const auto added = [&](Index i) { return sum(i); };
    const long wrong[] = {wired[0].wrong(n, added, stream), wired[1].wrong(m, largest, stream),
                          viewed[0].wrong(n, added, stream), viewed[1].wrong(m, largest, stream)};
    for (int k = 0; k < 4; ++k) {
      check(wrong[k] == 0, "call %d of a group with repeated compositions, %ld and %ld, rank %d", k,
            long(n), long(m), rank);
    }
  }
  /// Calls over peer views are one kernel, except a message that is too long for one launch.
  void count_kernels() const {
    const Index n = 1000, too_long = 40'000'000;
    Buffer<float> a{too_long, 0}, out{too_long, 0};
    Buffer<float> outs[] = {{n, 0}, {n, 0}, {n, 0}};
    const auto first = one_shot.bind(a.get(), outs[0].get(), n),
               second = one_shot.bind(a.get(), outs[1].get(), n),
               third = one_shot.bind(a.get(), outs[2].get(), n);
    const int viewed = kernels_of(stream, [&] { return group(stream, first, second, third); });
    check(viewed == 1, "a group of calls of one composition over a peer view is %d kernels",
          viewed);
    const auto three = one_shot.bind(a.get(), outs[1].get(), n);
    const auto four = two_shot.bind(a.get(), outs[2].get(), n);
    const auto five = other_one_shot.bind(a.get(), out.get(), n, Sum{});
    static_assert(group_kernels<decltype(three), decltype(four), decltype(five)> == 1);
    const int of_three = kernels_of(stream, [&] { return group(stream, three, four, five); });
    check(of_three == 1, "a group of calls over peer views is %d kernels", of_three);
    const auto longer = other_one_shot.bind(a.get(), out.get(), too_long, Sum{});
    const int alone = kernels_of(stream, [&] { return longer(stream); });
    check(alone > 1, "%ld elements fit into one launch, so the test is none", long(too_long));
    const int beside = kernels_of(stream, [&] { return group(stream, three, four, longer); });
    check(beside == alone + 1, "a group with a long message is %d kernels, the message %d", beside,
          alone);
  }
};

/// A launch can have fewer blocks than the group has calls: the remaining calls run one by one.
void few_blocks(const Communicator& whole, int most) {
  Config config;
  config.device = whole.device();
  config.max_channels = most;
  config.memory_budget_bytes = Index{1} << 28;
  const auto comm = must(whole.split(0, whole.rank(), config)).value();
  cudaStream_t stream;
  MUST_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  {
    const Index n = 5000;
    const auto one = must(Default<AllReduce, OneShot, LL128>::create(comm)),
               two = must(Default<AllReduce, OneShot, LL128>::create(comm));
    const auto three = must(Default<AllReduce, TwoShot, LL128>::create(comm));
    Buffer<float> in{n, 0};
    Buffer<float> out[] = {{n, 0}, {n, 0}, {n, 0}};
    in.fill([&](Index i) { return value(comm.rank(), i); }, stream);
    const auto call = [&] {
      return group(stream, one.bind(in.get(), out[0].get(), n),
                   three.bind(in.get(), out[1].get(), n), two.bind(in.get(), out[2].get(), n));
    };
    for (int turn = 0; turn < 3; ++turn) must(call());
    const auto sum = [&](Index i) {
      double s = 0;
      for (int r = 0; r < comm.ranks(); ++r) s += value(r, i);
      return s;
    };
    for (int k = 0; k < 3; ++k) {
      check(out[k].wrong(n, sum, stream) == 0, "call %d of a group in %d blocks, rank %d", k, most,
            comm.rank());
    }
    const int kernels = kernels_of(stream, call);
    check(kernels == (most < 3 ? 2 : 1), "a group of three in %d blocks is %d kernels", most,
          kernels);
  }
  MUST_CUDA(cudaStreamDestroy(stream));
}

void suite(const Communicator& comm) {
  play_group<Suite>(comm, [](const Suite& rank) {
    for (const auto& [n, m] : {std::pair<Index, Index>{1, 5},
                               {0, 1000},
                               {30'000, 100},
                               {64, 200'001},
                               {1'000'000, 3},
                               {20'000'000, 1000}}) {
      rank.viewed(n, m);
    }
    rank.repeated(1000, 300'001);
    rank.repeated(70'000, 5);
  });
  few_blocks(comm, 2);
  few_blocks(comm, 3);
}
}  // namespace

int main() {
  return run_groups("Groups over peer views", suite);
}
