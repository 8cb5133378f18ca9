// Calls of all kinds as one launch, what Auto chooses among them, and lists of calls.
#include <deque>

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
  Default<AllToAll, Direct, Simple> direct = must(Default<AllToAll, Direct, Simple>::create(comm));
  Collective<AllReduce, Ring, LL128, ForGpus<DefaultTransport>> here_only =
      must(Collective<AllReduce, Ring, LL128, ForGpus<DefaultTransport>>::create(comm));
  Default<AllReduce, Auto, Auto> chosen = must(Default<AllReduce, Auto, Auto>::create(comm));

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
  /// Small calls of Auto are one kernel with others.
  void count_kernels() const {
    const Index n = 1000, too_long = 40'000'000;
    Buffer<float> a{too_long, 0}, out{too_long, 0};
    Buffer<float> outs[] = {{n, 0}, {n, 0}, {n, 0}};
    const auto one = ring.bind(a.get(), outs[2].get(), n);
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
  }
};

void suite(const Communicator& comm) {
  play_group<Suite>(comm, [](const Suite& rank) {
    for (const Index n : {1, 1000, 100'000, 3'000'000}) rank.of_all_kinds(n);
    for (const Index n : {3, 1000, 300'000}) rank.several(n);
    for (const Index n : {2, 5000, 200'000}) rank.listed(n);
  });
}
}  // namespace

int main() {
  return run_groups("Groups with Auto", suite);
}
