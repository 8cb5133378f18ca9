// Fused all-reduces through the public interface: threads and processes, eager and in graphs. Rows
// fit into the scratch, or need several launches.
#include <cmath>

#include "communicator.cuh"

using namespace ccl;
using namespace ccl::test;

namespace {
float rounded(float x) {
  return Element<bfloat16>::widen(Element<bfloat16>::narrow(x));
}
float widen(bfloat16 x) {
  return Element<bfloat16>::widen(x);
}
float summand(int rank, Index i) {
  return rounded(float((i * 7 + rank * 13) % 97 - 48) * 0.171875f);
}
float residual_of(Index i) {
  return rounded(float(i % 23 - 11) * 0.3f);
}
float weight_of(int column) {
  return 0.5f + float(column % 5) * 0.25f;
}
/// A prologue of a user.
struct Doubled : AsIs<bfloat16> {
  CCL_HD float operator()(float value, Index row, int column) const {
    return 2 * value + float(row % 3) + float(column % 2);
  }
};

template <class T>
std::vector<T> host(const Buffer<T>& from, Index count, cudaStream_t stream) {
  const Pinned<T> all{count};
  MUST_CUDA(cudaMemcpyAsync(all.get(), from.get(), size_t(count) * sizeof(T),
                            cudaMemcpyDeviceToHost, stream));
  MUST_CUDA(cudaStreamSynchronize(stream));
  return {all.get(), all.get() + count};
}

template <class Op>
std::string name_of(const Op& op, Index rows, int length) {
  if constexpr (requires { op.name(rows, length); }) {
    return "chosen " + op.name(rows, length);
  } else {
    return op.name();
  }
}

struct Suite : Rank {
  std::optional<Plan> plan{};

  template <class Before, class Algo, class Proto>
  void norm(Index rows, int length) const {
    using All = Collective<AllReduce, Algo, Proto, DefaultTransport>;
    using Op = Fused<Before, All, AddRmsNorm<bfloat16>>;
    const auto op = must(Op::create(comm, plan));
    const Index count = rows * length;
    Buffer<bfloat16> in{count, 0}, out{count, 0}, residual{count, 0}, sum{count, 0},
        weight{length, 0};
    in.fill([&](Index i) { return summand(rank, i); }, stream);
    residual.fill(residual_of, stream);
    weight.fill([](Index i) { return weight_of(int(i)); }, stream);
    const AddRmsNorm<bfloat16> after{residual.get(), sum.get(), out.get(), weight.get(), 1e-5f};
    go([&] { return op(in.get(), rows, length, after, stream); });
    const auto got = host(out, count, stream), sums = host(sum, count, stream);
    long wrong = 0;
    for (Index row = 0; row < rows; ++row) {
      std::vector<float> h(static_cast<size_t>(length));
      double squares = 0;
      for (int c = 0; c < length; ++c) {
        const Index i = row * length + c;
        float s = 0;
        for (int r = 0; r < ranks; ++r) {
          float own = summand(r, i);
          if constexpr (detail::MapsValues<Before>) own = rounded(Before{}(own, row, c));
          s = r == 0 ? own : s + own;
        }
        h[size_t(c)] = rounded(rounded(s) + residual_of(i));
        squares += double(h[size_t(c)]) * h[size_t(c)];
        wrong += widen(sums[size_t(i)]) != h[size_t(c)];
      }
      const double scale = 1 / std::sqrt(squares / length + 1e-5);
      for (int c = 0; c < length; ++c) {
        const double want = h[size_t(c)] * scale * weight_of(c);
        wrong += !(std::abs(widen(got[size_t(row * length + c)]) - want) <=
                   std::abs(want) * 0x1.02p-8 + 1e-30);
      }
    }
    const std::string what = name_of(op, rows, length);
    check(wrong == 0, "%s %ld rows of %d, rank %d: %ld wrong", what.c_str(), long(rows), length,
          rank, wrong);
    // In place: the residual is also the sum, and the input is the output.
    const AddRmsNorm<bfloat16> in_place{residual.get(), residual.get(), in.get(), weight.get(),
                                        1e-5f};
    must(op(in.get(), rows, length, in_place, stream));
    const auto again = host(in, count, stream), new_sums = host(residual, count, stream);
    check(std::memcmp(again.data(), got.data(), got.size() * 2) == 0 &&
              std::memcmp(new_sums.data(), sums.data(), sums.size() * 2) == 0,
          "%s %ld rows of %d in place differ, rank %d", what.c_str(), long(rows), length, rank);
  }

  void choice() const {
    using Op = Fused<AsIs<bfloat16>, Collective<AllReduce>, StoreRows<bfloat16>>;
    const auto op = must(Op::create(comm, plan));
    const auto contains = [](const std::string& text, const char* part) {
      return text.find(part) != std::string::npos;
    };
    const std::string few = op.name(1, 7168), many = op.name(512, 7168);
    check(contains(few, "OneShot/LL128"), "%s for one row", few.c_str());
    check(contains(many, ranks > 2 ? "TwoShot/LL128" : "OneShot/LL128"), "%s for many",
          many.c_str());
  }

  /// Bounds as proto/fp8_rows.hpp states them; blocks of 472 values.
  template <class Algo>
  void fp8(Index rows, int length) const {
    using All = Collective<AllReduce, Algo, LL128, DefaultTransport>;
    using Op = Fused<QuantizeFp8<bfloat16>, All, StoreRows<float>>;
    const auto op = must(Op::create(comm, plan));
    const Index count = rows * length;
    Buffer<bfloat16> in{count, 0};
    Buffer<float> out{count, 0};
    const auto value = [](int r, Index i) {
      return rounded(std::ldexp(float((i * 37 + r * 29) % 101 - 50), int(i * 5 + r) % 23 - 11));
    };
    in.fill([&](Index i) { return value(rank, i); }, stream);
    go([&] { return op(in.get(), rows, length, {out.get()}, stream); });
    const auto got = host(out, count, stream);
    const auto bound = [](double v, double most) {
      return std::max(std::abs(v) / 16, most / 458752) * (1 + 1e-5);
    };
    long wrong = 0;
    double worst = 0;
    for (Index begin = 0; begin < count;
         begin += begin % length + 472 >= length ? length - begin % length : 472) {
      const Index end = std::min(begin + 472, begin - begin % length + length);
      double max_sum = 0, most[8] = {};
      for (Index i = begin; i < end; ++i) {
        for (int r = 0; r < ranks; ++r) most[r] = std::max(most[r], std::abs(double(value(r, i))));
      }
      std::vector<double> sums, slack;
      for (Index i = begin; i < end; ++i) {
        double s = 0, e = 0;
        for (int r = 0; r < ranks; ++r) s += value(r, i), e += bound(value(r, i), most[r]);
        sums.push_back(s), slack.push_back(e);
        max_sum = std::max(max_sum, std::abs(s) + e);
      }
      for (Index i = begin; i < end; ++i) {
        const double s = sums[size_t(i - begin)], e = slack[size_t(i - begin)];
        const double may = e + (Algo::splits ? bound(std::abs(s) + e, max_sum) : 0);
        const double error = std::abs(got[size_t(i)] - s);
        wrong += !(error <= may);
        if (may > 0) worst = std::max(worst, error / may);
      }
    }
    check(wrong == 0 && worst > 0.05, "%s fp8, %ld rows of %d, rank %d: %ld wrong, worst %g",
          op.name().c_str(), long(rows), length, rank, wrong, worst);
  }
};

void suite(const Communicator& comm) {
  if (comm.ranks() > max_unrolled_ranks) return;
  const Index slot_bytes = Index{64 << 10} * std::max(4, comm.ranks());  // for the longest row
  play_each_way<Suite>(comm, slot_bytes, [](const Suite& rank) {
    for (const auto& [rows, length] :
         {std::pair{1, 7168}, {3, 8}, {5, 8192}, {37, 1000}, {131, 2048}, {2, 16384}}) {
      rank.norm<AsIs<bfloat16>, OneShot, LL128>(rows, length);
      rank.norm<AsIs<bfloat16>, TwoShot, LL128>(rows, length);
    }
    rank.norm<Doubled, TwoShot, LL>(5, 2048);
    rank.norm<AsIs<bfloat16>, Auto, Auto>(1, 7168);
    rank.norm<AsIs<bfloat16>, Auto, Auto>(131, 2048);
    rank.choice();
    for (const auto& [rows, length] : {std::pair{1, 7168}, {131, 1000}}) {
      rank.fp8<OneShot>(rows, length);
      rank.fp8<TwoShot>(rows, length);
    }
  });
}

}  // namespace

int main() {
  const Ranks ranks = find_ranks();
  if (ranks.gpus == 0) return skipped();
  ::setenv("CCL_TIMEOUT", "5", 0);
  Config config;
  config.memory_budget_bytes = Index{2} << 30;
  both_ways(ranks, config, suite);
  as_threads(1, config, suite);
  return result("Fused", ranks.gpus);
}
