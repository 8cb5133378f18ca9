// Exchanges over peer views in one launch with collectives.
#include "gpu/group/group.cuh"

using namespace ccl;
using namespace ccl::test;

namespace {
struct Suite : GroupRank {
  Default<AllReduce, Ring, LL> ring = must(Default<AllReduce, Ring, LL>::create(comm));
  Default<AllToAll, Pairwise, LL> all_to_all = must(Default<AllToAll, Pairwise, LL>::create(comm));
  Default<AllReduce, OneShot, LL128> one_shot =
      must(Default<AllReduce, OneShot, LL128>::create(comm));
  Default<AllToAll, Direct, Simple> direct = must(Default<AllToAll, Direct, Simple>::create(comm));
  Default<SendRecv, OneShot, LL128> packets = must(Default<SendRecv, OneShot, LL128>::create(comm));
  Default<SendRecv, Direct, Simple> messages =
      must(Default<SendRecv, Direct, Simple>::create(comm));
  Default<SendRecv, OneShot, LL> last_packets = must(Default<SendRecv, OneShot, LL>::create(comm));

  /// Exchanges over peer views beside collectives, two of a composition where one must wait. Ranks
  /// send other numbers of elements, so some may share the kernel with a message that is a launch
  /// elsewhere.
  void exchanges(Index n, Index m) const {
    const int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
    const Index mine = m * (1 + 3 * rank), theirs = m * (1 + 3 * before);
    Buffer<float> a{n, 0}, summed[] = {{n, 0}, {n, 0}}, moved[] = {{n, 0}, {n, 1}, {n, 0}};
    Buffer<float> b{n * ranks, 1}, got{n * ranks, 0};
    Buffer<float> message{mine, 0}, came[] = {{theirs, 0}, {theirs, 1}};
    a.fill([&](Index i) { return value(rank, i); }, stream);
    b.fill([&](Index i) { return value(rank * 3 + int(i / std::max<Index>(n, 1)), i); }, stream);
    message.fill([&](Index i) { return value(rank, i) + 2; }, stream);
    const auto wired = ring.bind(a.get(), summed[0].get(), n);
    const auto viewed = one_shot.bind(a.get(), summed[1].get(), n);
    const auto to_all = direct.bind(b.get(), got.get(), n);
    const auto by_packets = packets.bind(a.get(), n, next, moved[0].get(), n, before);
    const auto unaligned = packets.bind(a.get(), n, next, moved[1].get(), n, before);
    const auto last = last_packets.bind(a.get(), n, next, moved[2].get(), n, before);
    const auto first = messages.bind(message.get(), mine, next, came[0].get(), theirs, before);
    const auto second = messages.bind(message.get(), mine, next, came[1].get(), theirs, before);
    for (int turn = 0; turn < 3; ++turn) {
      for (auto& one : moved) one.fill([](Index) { return -1; }, stream);
      for (auto& one : came) one.fill([](Index) { return -1; }, stream);
      got.fill([](Index) { return -1; }, stream);
      go([&] {
        return rank % 2 == 0 ? group(stream, wired, viewed, to_all, first)
                             : group(stream, first, to_all, viewed, wired);
      });
      go([&] {
        return rank % 2 == 0 ? group(stream, second, last, by_packets)
                             : group(stream, by_packets, second, last);
      });
      must(by_packets(stream));
      must(to_all(stream));
      go([&] { return group(stream, viewed, unaligned, first, second, last); });
    }
    for (int k = 0; k < 2; ++k) {
      check(summed[k].wrong(
                n, [&](Index i) { return sum(i); }, stream) == 0,
            "all_reduce %d beside exchanges, %ld and %ld, rank %d", k, long(n), long(m), rank);
      check(came[k].wrong(
                theirs, [&](Index i) { return value(before, i) + 2; }, stream) == 0,
            "message %d in a group, %ld and %ld, rank %d", k, long(n), long(m), rank);
    }
    for (int k = 0; k < 3; ++k) {
      check(moved[k].wrong(
                n, [&](Index i) { return value(before, i); }, stream) == 0,
            "packets %d in a group, %ld and %ld, rank %d", k, long(n), long(m), rank);
    }
    check(got.wrong(
              n * ranks,
              [&](Index i) { return value(int(i / n) * 3 + rank, Index{rank} * n + i % n); },
              stream) == 0,
          "all_to_all in a group, %ld and %ld, rank %d", long(n), long(m), rank);
  }
  /// An exchange shares the kernel, except one that must wait for another.
  void count_kernels() const {
    const Index n = 1000;
    Buffer<float> a{n, 0}, c_out{n * ranks, 0};
    Buffer<float> outs[] = {{n, 0}, {n, 0}, {n, 0}};
    const auto one = ring.bind(a.get(), outs[0].get(), n);
    const auto three = one_shot.bind(a.get(), outs[1].get(), n);
    Buffer<float> mailbox{n * ranks, 0}, got{n * ranks, 0};
    const int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
    const auto six = direct.bind(mailbox.get(), got.get(), n);
    const auto seven = packets.bind(a.get(), n, next, outs[2].get(), n, before);
    static_assert(group_kernels<decltype(one), decltype(three), decltype(six), decltype(seven)> ==
                  1);
    const int with_exchanges =
        kernels_of(stream, [&] { return group(stream, one, three, six, seven); });
    check(with_exchanges == 1, "a group with two exchanges is %d kernels", with_exchanges);
    const int again_too = kernels_of(stream, [&] { return group(stream, six, three, six, seven); });
    check(again_too == 3, "a group with three exchanges, two of one composition, is %d kernels",
          again_too);
    const auto by_wires = all_to_all.bind(mailbox.get(), c_out.get(), n);
    const int behind = kernels_of(stream, [&] { return group(stream, six, by_wires, one); });
    check(behind == 3, "a group whose exchange must wait for another is %d kernels", behind);
  }
};

void suite(const Communicator& comm) {
  play_group<Suite>(comm, [](const Suite& rank) {
    for (const auto& [n, m] : {std::pair<Index, Index>{1, 1},
                               {1000, 0},
                               {0, 777},
                               {20'000, 30'000},
                               {5, 3'000'001},
                               {200'000, 100}}) {
      rank.exchanges(n, m);
    }
  });
}
}  // namespace

int main() {
  return run_groups("Groups with exchanges", suite);
}
