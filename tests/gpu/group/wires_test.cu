// Calls over wires as one launch, in other orders on other ranks.
#include "gpu/group/group.cuh"

using namespace ccl;
using namespace ccl::test;

namespace {
struct Suite : GroupRank {
  Default<AllReduce, Ring, LL> ring = must(Default<AllReduce, Ring, LL>::create(comm));
  Default<AllReduce, Tree, Simple> tree = must(Default<AllReduce, Tree, Simple>::create(comm));
  Default<AllGather, Ring, Simple> gather = must(Default<AllGather, Ring, Simple>::create(comm));
  Default<Broadcast, Ring, LL> broadcast = must(Default<Broadcast, Ring, LL>::create(comm));
  Default<AllToAll, Pairwise, LL> all_to_all = must(Default<AllToAll, Pairwise, LL>::create(comm));

  void wired(Index n, Index m) const {
    Buffer<float> a{n, n % 2}, a_out{n, n % 2}, c{m, 0}, c_out{m * ranks, 0}, d{n, 0};
    Buffer<int> b{m, 0}, b_out{m, 0};
    a.fill([&](Index i) { return value(rank, i); }, stream);
    b.fill([&](Index i) { return value(rank, i); }, stream);
    c.fill([&](Index i) { return value(rank, i); }, stream);
    const int root = int((n + m) % ranks);
    const auto one = ring.bind(a.get(), a_out.get(), n);
    const auto two = tree.bind(b.get(), b_out.get(), m, Sum{});
    const auto three = gather.bind(c.get(), c_out.get(), m);
    const auto four = broadcast.bind(a.get(), d.get(), n, root);
    go([&] {
      return rank % 2 == 0 ? group(stream, one, two, three, four)
                           : group(stream, four, two, one, three);
    });
    check(a_out.wrong(
              n, [&](Index i) { return sum(i); }, stream) == 0,
          "all_reduce over a ring, %ld and %ld, rank %d", long(n), long(m), rank);
    check(b_out.wrong(
              m, [&](Index i) { return sum(i); }, stream) == 0,
          "all_reduce over trees, %ld and %ld, rank %d", long(n), long(m), rank);
    check(c_out.wrong(
              m * ranks, [&](Index i) { return value(int(i / m), i % m); }, stream) == 0,
          "all_gather, %ld and %ld, rank %d", long(n), long(m), rank);
    check(d.wrong(
              n, [&](Index i) { return value(root, i); }, stream) == 0,
          "broadcast, %ld and %ld, rank %d", long(n), long(m), rank);
  }
  void mixed(Index n) const {
    Buffer<float> a{n, 0}, a_out{n, 0}, b{n * ranks, 0}, b_out{n * ranks, 0};
    a.fill([&](Index i) { return value(rank, i); }, stream);
    b.fill([&](Index i) { return value(rank * 3 + int(i / std::max<Index>(n, 1)), i); }, stream);
    go([&] {
      return group(stream, all_to_all.bind(b.get(), b_out.get(), n),
                   ring.bind(a.get(), a_out.get(), n, Max{}));
    });
    const auto largest = [&](Index i) {
      double most = 0;
      for (int r = 0; r < ranks; ++r) most = std::max(most, value(r, i));
      return most;
    };
    check(a_out.wrong(n, largest, stream) == 0, "all_reduce beside all_to_all, %ld, rank %d",
          long(n), rank);
    check(b_out.wrong(
              n * ranks,
              [&](Index i) { return value(int(i / n) * 3 + rank, Index{rank} * n + i % n); },
              stream) == 0,
          "all_to_all beside all_reduce, %ld, rank %d", long(n), rank);
  }
  /// Several calls of one composition, of other sizes: one after the other, beside those of others.
  void repeated(Index n, Index m) const {
    Buffer<float> a{n, 0}, b{m, m % 2}, c{n * ranks, 0};
    Buffer<float> wired[] = {{n, 0}, {m, m % 2}, {n, 0}}, copied[] = {{n, 0}, {m, m % 2}};
    Buffer<float> got[] = {{n * ranks, 0}, {n * ranks, 0}};
    a.fill([&](Index i) { return value(rank, i); }, stream);
    b.fill([&](Index i) { return value(rank, i) + 1; }, stream);
    c.fill([&](Index i) { return value(rank * 3 + int(i / std::max<Index>(n, 1)), i); }, stream);
    const auto ring_0 = ring.bind(a.get(), wired[0].get(), n);
    const auto ring_1 = ring.bind(b.get(), wired[1].get(), m, Max{});
    const auto ring_2 = ring.bind(a.get(), wired[2].get(), n, Sum{});
    const auto copy_0 = broadcast.bind(a.get(), copied[0].get(), n, 0);
    const auto copy_1 = broadcast.bind(b.get(), copied[1].get(), m, ranks - 1);
    const auto all_0 = all_to_all.bind(c.get(), got[0].get(), n);
    const auto all_1 = all_to_all.bind(c.get(), got[1].get(), n);
    const auto largest = [&](Index i) {
      double most = 0;
      for (int r = 0; r < ranks; ++r) most = std::max(most, value(r, i) + 1);
      return most;
    };
    const auto added = [&](Index i) { return sum(i); };
    const auto mailbox = [&](Index i) {
      return value(int(i / n) * 3 + rank, Index{rank} * n + i % n);
    };
    for (int turn = 0; turn < 3; ++turn) {
      go([&] {
        return rank % 2 == 0 ? group(stream, ring_0, ring_1, copy_0, all_0, copy_1, ring_2, all_1)
                             : group(stream, all_0, copy_0, ring_0, copy_1, ring_1, all_1, ring_2);
      });
    }
    const long wrong[] = {wired[0].wrong(n, added, stream),
                          wired[1].wrong(m, largest, stream),
                          wired[2].wrong(n, added, stream),
                          copied[0].wrong(
                              n, [&](Index i) { return value(0, i); }, stream),
                          copied[1].wrong(
                              m, [&](Index i) { return value(ranks - 1, i) + 1; }, stream),
                          got[0].wrong(n * ranks, mailbox, stream),
                          got[1].wrong(n * ranks, mailbox, stream)};
    for (int k = 0; k < 7; ++k) {
      check(wrong[k] == 0, "call %d of a group with repeated compositions, %ld and %ld, rank %d", k,
            long(n), long(m), rank);
    }
  }
  /// Calls over wires are one kernel.
  void count_kernels() const {
    const Index n = 1000;
    Buffer<float> a{n, 0}, c_out{n * ranks, 0};
    Buffer<float> outs[] = {{n, 0}, {n, 0}, {n, 0}};
    const auto one = ring.bind(a.get(), outs[0].get(), n);
    const auto two = gather.bind(a.get(), c_out.get(), n);
    const int of_wires = kernels_of(stream, [&] { return group(stream, one, two); });
    static_assert(group_kernels<decltype(one), decltype(two)> == 1);
    check(of_wires == 1, "a group of two calls over wires is %d kernels", of_wires);
    const auto again = ring.bind(a.get(), outs[1].get(), n),
               last = ring.bind(a.get(), outs[2].get(), n);
    const int repeated = kernels_of(stream, [&] { return group(stream, one, again, two, last); });
    check(repeated == 1, "a group with two calls more of a composition is %d kernels", repeated);
  }
};

void suite(const Communicator& comm) {
  play_group<Suite>(comm, [](const Suite& rank) {
    for (const auto& [n, m] : {std::pair<Index, Index>{1, 1},
                               {1000, 1'000'000},
                               {0, 7},
                               {300'001, 5},
                               {2'000'000, 2'000'000}}) {
      rank.wired(n, m);
    }
    rank.repeated(1000, 300'001);
    rank.repeated(70'000, 5);
    rank.mixed(1000);
    rank.mixed(200'001);
  });
}
}  // namespace

int main() {
  return run_groups("Groups over wires", suite);
}
