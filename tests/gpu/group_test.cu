// Several calls as one launch, in other orders on other ranks, eager and in graphs.
#include <deque>

#include "communicator.cuh"

using namespace ccl;
using namespace ccl::test;

namespace {
template <class Op, class Algo, class Proto>
using Default = Collective<Op, Algo, Proto, DefaultTransport>;

/// Kernels that a call launches.
template <class Call>
int kernels_of(cudaStream_t stream, Call call) {
  cudaGraph_t graph;
  MUST_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  must(call());
  MUST_CUDA(cudaStreamEndCapture(stream, &graph));
  size_t count = 0;
  MUST_CUDA(cudaGraphGetNodes(graph, nullptr, &count));
  std::vector<cudaGraphNode_t> nodes(count);
  MUST_CUDA(cudaGraphGetNodes(graph, nodes.data(), &count));
  int kernels = 0;
  for (const auto node : nodes) {
    cudaGraphNodeType type;
    MUST_CUDA(cudaGraphNodeGetType(node, &type));
    kernels += type == cudaGraphNodeTypeKernel;
  }
  MUST_CUDA(cudaGraphDestroy(graph));
  return kernels;
}

struct Suite : Rank {
  Default<AllReduce, Ring, LL> ring = must(Default<AllReduce, Ring, LL>::create(comm));
  Default<AllReduce, Tree, Simple> tree = must(Default<AllReduce, Tree, Simple>::create(comm));
  Default<AllGather, Ring, Simple> gather = must(Default<AllGather, Ring, Simple>::create(comm));
  Default<Broadcast, Ring, LL> broadcast = must(Default<Broadcast, Ring, LL>::create(comm));
  Default<AllToAll, Pairwise, LL> all_to_all = must(Default<AllToAll, Pairwise, LL>::create(comm));

  Default<AllReduce, OneShot, LL128> one_shot =
      must(Default<AllReduce, OneShot, LL128>::create(comm));
  // Over peer views; a scratch of two slots of the plan.
  Default<AllReduce, OneShot, LL128> other_one_shot =
      must(Default<AllReduce, OneShot, LL128>::create(comm));
  Default<AllReduce, TwoShot, LL128> two_shot =
      must(Default<AllReduce, TwoShot, LL128>::create(comm));
  Default<AllGather, OneShot, LL> viewed_gather =
      must(Default<AllGather, OneShot, LL>::create(comm));
  Default<AllToAll, Direct, Simple> direct = must(Default<AllToAll, Direct, Simple>::create(comm));
  Default<SendRecv, OneShot, LL128> packets = must(Default<SendRecv, OneShot, LL128>::create(comm));
  Default<SendRecv, Direct, Simple> messages =
      must(Default<SendRecv, Direct, Simple>::create(comm));
  Default<SendRecv, OneShot, LL> last_packets = must(Default<SendRecv, OneShot, LL>::create(comm));
  Collective<AllReduce, Ring, LL128, ForGpus<DefaultTransport>> here_only =
      must(Collective<AllReduce, Ring, LL128, ForGpus<DefaultTransport>>::create(comm));
  Default<AllReduce, Auto, Auto> chosen = must(Default<AllReduce, Auto, Auto>::create(comm));

  double sum(Index i) const {
    double s = 0;
    for (int r = 0; r < ranks; ++r) s += value(r, i);
    return s;
  }
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
  /// Beside calls over wires: over peer views, on GPUs only, and what Auto chooses for the size.
  void of_all_kinds(Index n) const {
    Buffer<float> a{n, 0}, b{n * ranks, 0}, b_out{n * ranks, 0};
    Buffer<float> out[] = {{n, 0}, {n, 0}, {n, 0}, {n, 0}};
    a.fill([&](Index i) { return value(rank, i); }, stream);
    b.fill([&](Index i) { return value(rank * 3 + int(i / std::max<Index>(n, 1)), i); }, stream);
    const auto wired = ring.bind(a.get(), out[0].get(), n);
    const auto viewed = one_shot.bind(a.get(), out[1].get(), n);
    const auto gpu_only = here_only.bind(a.get(), out[2].get(), n, Sum{});
    const auto any = chosen.bind(a.get(), out[3].get(), n);
    const auto direct_too = direct.bind(b.get(), b_out.get(), n);
    go([&] {
      return rank % 2 == 0 ? group(stream, wired, viewed, gpu_only, any, direct_too)
                           : group(stream, direct_too, any, wired, gpu_only, viewed);
    });
    for (int k = 0; k < 4; ++k) {
      check(out[k].wrong(
                n, [&](Index i) { return sum(i); }, stream) == 0,
            "all_reduce %d of all kinds, %ld, rank %d", k, long(n), rank);
    }
    check(b_out.wrong(
              n * ranks,
              [&](Index i) { return value(int(i / n) * 3 + rank, Index{rank} * n + i % n); },
              stream) == 0,
          "direct all_to_all beside others, %ld, rank %d", long(n), rank);
  }
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
  /// Several calls of one composition, of other sizes: one after the other, beside those of others.
  void repeated(Index n, Index m) const {
    Buffer<float> a{n, 0}, b{m, m % 2}, c{n * ranks, 0};
    Buffer<float> wired[] = {{n, 0}, {m, m % 2}, {n, 0}}, copied[] = {{n, 0}, {m, m % 2}};
    Buffer<float> viewed[] = {{n, 0}, {m, m % 2}}, got[] = {{n * ranks, 0}, {n * ranks, 0}};
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
      const auto view_0 = one_shot.bind(a.get(), viewed[0].get(), n);
      const auto view_1 = one_shot.bind(b.get(), viewed[1].get(), m, Max{});
      go([&] {
        return rank % 2 == 0 ? group(stream, ring_0, view_0, view_1, ring_1)
                             : group(stream, view_0, ring_0, ring_1, view_1);
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
                          got[1].wrong(n * ranks, mailbox, stream),
                          viewed[0].wrong(n, added, stream),
                          viewed[1].wrong(m, largest, stream)};
    for (int k = 0; k < 9; ++k) {
      check(wrong[k] == 0, "call %d of a group with repeated compositions, %ld and %ld, rank %d", k,
            long(n), long(m), rank);
    }
  }
  /// Calls of one composition, not all of which may fit into its scratch at once, between launches
  /// of it alone: all count alike. The same calls as `Auto` chooses.
  void several(Index n) const {
    const Index sizes[] = {n, 1, 7 * n};
    Buffer<float> in[] = {{n, 0}, {1, 1}, {7 * n, 0}}, out[] = {{n, 0}, {1, 1}, {7 * n, 0}};
    for (int k = 0; k < 3; ++k) {
      in[k].fill([&](Index i) { return value(rank, i + k); }, stream);
    }
    const auto call = [&](int k) { return one_shot.bind(in[k].get(), out[k].get(), sizes[k]); };
    const auto any = [&](int k) { return chosen.bind(in[k].get(), out[k].get(), sizes[k]); };
    for (int turn = 0; turn < 4; ++turn) {
      for (auto& one : out) one.fill([](Index) { return -1; }, stream);
      if (turn % 2 == 0) {
        go([&] { return group(stream, call(0), call(1), call(2)); });
        must(call(1)(stream));
        must(call(0)(stream));
      } else {
        go([&] { return group(stream, any(0), any(1), any(2)); });
      }
      for (int k = 0; k < 3; ++k) {
        const long wrong = out[k].wrong(
            sizes[k], [&](Index i) { return sum(i + k); }, stream);
        check(wrong == 0, "call %d of three of one composition, turn %d, %ld, rank %d: %ld wrong",
              k, turn, long(sizes[k]), rank, wrong);
      }
    }
  }
  /// Run-time numbers of calls: calls of two compositions, more than one kernel takes.
  void listed(Index n) const {
    std::deque<Buffer<float>> in, out;
    std::vector<decltype(one_shot.bind((float*)nullptr, (float*)nullptr, Index{0}))> viewed;
    std::vector<decltype(ring.bind((float*)nullptr, (float*)nullptr, Index{0}))> wired;
    std::vector<decltype(chosen.bind((float*)nullptr, (float*)nullptr, Index{0}))> any;
    std::vector<Index> sizes;
    const int count = 21;
    for (int k = 0; k < count; ++k) {
      const Index size = n + (k % 5 == 0 ? 3 * n : k) - (k == 7 ? n + 7 : 0);
      sizes.push_back(size);
      in.emplace_back(size, k % 2);
      out.emplace_back(size, k % 3 == 0);
      in.back().fill([&](Index i) { return value(rank, i + k); }, stream);
      const auto& over = k % 3 == 1 ? other_one_shot : one_shot;
      viewed.push_back(over.bind(in.back().get(), out.back().get(), size));
      wired.push_back(ring.bind(in.back().get(), out.back().get(), size));
      any.push_back(chosen.bind(in.back().get(), out.back().get(), size));
    }
    for (int turn = 0; turn < 3; ++turn) {
      for (auto& one : out) one.fill([](Index) { return -1; }, stream);
      go([&] {
        return turn == 0   ? group(stream, viewed)
               : turn == 1 ? group(stream, wired)
                           : group(stream, std::span{std::as_const(any)});
      });
      for (int k = 0; k < count; ++k) {
        const long wrong = out[k].wrong(
            sizes[k], [&](Index i) { return sum(i + k); }, stream);
        check(wrong == 0, "call %d of a list, turn %d, %ld, rank %d: %ld wrong", k, turn,
              long(sizes[k]), rank, wrong);
      }
    }
    const auto some = std::span{std::as_const(viewed)}.subspan(1, 4);
    const int kernels = kernels_of(stream, [&] { return group(stream, some); });
    check(n > 10000 || kernels == 1, "a list of four small calls is %d kernels", kernels);
    const std::vector<decltype(viewed)::value_type> none;
    check(group(stream, none).has_value(), "a list without calls is an error");
  }
  /// Calls over wires, or over peer views, are one kernel.
  void count_kernels() const {
    const Index n = 1000, too_long = 40'000'000;
    Buffer<float> a{too_long, 0}, out{too_long, 0}, c_out{n * ranks, 0};
    Buffer<float> outs[] = {{n, 0}, {n, 0}, {n, 0}};
    const auto one = ring.bind(a.get(), outs[0].get(), n);
    const auto two = gather.bind(a.get(), c_out.get(), n);
    const int of_wires = kernels_of(stream, [&] { return group(stream, one, two); });
    static_assert(group_kernels<decltype(one), decltype(two)> == 1);
    check(of_wires == 1, "a group of two calls over wires is %d kernels", of_wires);
    const auto again = ring.bind(a.get(), outs[1].get(), n),
               last = ring.bind(a.get(), out.get(), n);
    const int repeated = kernels_of(stream, [&] { return group(stream, one, again, two, last); });
    check(repeated == 1, "a group with two calls more of a composition is %d kernels", repeated);
    const auto first = one_shot.bind(a.get(), outs[0].get(), n),
               second = one_shot.bind(a.get(), outs[1].get(), n),
               third = one_shot.bind(a.get(), outs[2].get(), n);
    const int viewed = kernels_of(stream, [&] { return group(stream, first, second, third); });
    check(viewed == 1, "a group of calls of one composition over a peer view is %d kernels",
          viewed);
    const auto any = chosen.bind(a.get(), outs[0].get(), n),
               more = chosen.bind(a.get(), outs[1].get(), n);
    static_assert(group_kernels<decltype(any), decltype(more)> == 1);
    const int of_auto = kernels_of(stream, [&] { return group(stream, any, more, one); });
    check(of_auto == 1, "a group with two small calls that Auto chooses is %d kernels", of_auto);
    const auto large = chosen.bind(a.get(), out.get(), too_long);
    const int large_one = kernels_of(stream, [&] { return large(stream); });
    const int with_large = kernels_of(stream, [&] { return group(stream, any, large, more); });
    check(with_large == 1 + large_one, "a group with a large call that Auto chooses is %d kernels",
          with_large);
    const auto three = one_shot.bind(a.get(), outs[1].get(), n);
    const auto four = two_shot.bind(a.get(), outs[2].get(), n);
    const auto five = other_one_shot.bind(a.get(), out.get(), n, Sum{});
    static_assert(group_kernels<decltype(three), decltype(four), decltype(five)> == 1);
    const int of_three = kernels_of(stream, [&] { return group(stream, three, four, five); });
    check(of_three == 1, "a group of calls over peer views is %d kernels", of_three);
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
  cudaStream_t stream;
  MUST_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  {
    Suite rank{{comm, stream}};
    for (const bool graph : {false, true}) {
      rank.graph = graph;
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
      for (const Index n : {1, 1000, 100'000, 3'000'000}) rank.of_all_kinds(n);
      for (const auto& [n, m] : {std::pair<Index, Index>{1, 1},
                                 {1000, 0},
                                 {0, 777},
                                 {20'000, 30'000},
                                 {5, 3'000'001},
                                 {200'000, 100}}) {
        rank.exchanges(n, m);
      }
      for (const Index n : {3, 1000, 300'000}) rank.several(n);
      for (const Index n : {2, 5000, 200'000}) rank.listed(n);
      for (const auto& [n, m] : {std::pair<Index, Index>{1, 5},
                                 {0, 1000},
                                 {30'000, 100},
                                 {64, 200'001},
                                 {1'000'000, 3},
                                 {20'000'000, 1000}}) {
        rank.viewed(n, m);
      }
    }
    rank.count_kernels();
  }
  few_blocks(comm, 2);
  few_blocks(comm, 3);
  MUST_CUDA(cudaStreamDestroy(stream));
}
}  // namespace

int main() {
  const Ranks ranks = find_ranks();
  if (ranks.gpus == 0) return skipped();
  ::setenv("CCL_TIMEOUT", "20", 0);
  Config config;
  config.memory_budget_bytes = Index{1} << 30;  // for many compositions at once
  both_ways(ranks, config, suite);
  return result("Groups", ranks.gpus);
}
