#include <ccl/detail/numeric/bulk.hpp>

#include <cstring>
#include <vector>

#include "support/catch.hpp"

using namespace ccl;

namespace {
/// `count` elements at an odd address, with a guard byte on both sides.
template <class T>
class Loose {
 public:
  explicit Loose(Index count, int seed = 0)
      : bytes_(size_t(count) * sizeof(T) + 2, 99), count_(count) {
    for (Index i = 0; i < count; ++i) set(i, value(seed, i));
  }
  void set(Index i, T x) {
    std::memcpy(data() + size_t(i) * sizeof(T), static_cast<void*>(&x), sizeof(T));
  }
  T get(Index i) const {
    T x;
    std::memcpy(static_cast<void*>(&x), bytes_.data() + 1 + size_t(i) * sizeof(T), sizeof(T));
    return x;
  }
  char* data() { return bytes_.data() + 1; }
  bool guarded() const { return bytes_.front() == 99 && bytes_.back() == 99; }
  bool same(const Loose& other) const { return bytes_ == other.bytes_; }

 private:
  static T value(int seed, Index i) {
    const int x = int((5 * i + 11 * seed) % 13) - (std::is_unsigned_v<T> ? 0 : 6);
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(x);
    } else {
      return T(static_cast<float>(x) * 0.25f);
    }
  }
  std::vector<char> bytes_;
  Index count_;
};

template <class Op, class T, int Sources, bool Finish>
void check(Op op, Index count) {
  using R = detail::Reduction<Op, T>;
  const R r(op, 3);
  for (const bool has_own : {true, false}) {
    if (!has_own && Sources == 0) continue;
    for (const bool in_place : {true, false}) {
      Loose<T> own(count, 9), out(count);
      std::vector<Loose<T>> inputs;
      for (int s = 0; s < Sources; ++s) inputs.emplace_back(count, s);
      const void* sources[Sources + 1] = {};
      for (int s = 0; s < Sources; ++s) sources[s] = inputs[s].data();

      Loose<T> want(count);
      for (Index i = 0; i < count; ++i) {
        auto acc = has_own ? r.prepare(own.get(i)) : r.widen(inputs[0].get(i));
        for (int s = has_own ? 0 : 1; s < Sources; ++s) {
          acc = r.combine(acc, r.widen(inputs[s].get(i)));
        }
        want.set(i, Finish ? r.finish(acc) : r.narrow(acc));
      }
      Loose<T>& target = in_place && has_own ? own : out;
      detail::reduce_bulk<R, Sources, Finish>(r, target.data(), has_own ? own.data() : nullptr,
                                              sources, count);
      INFO(count << " elements, own " << has_own << ", in place " << in_place);
      CHECK(target.same(want));
      CHECK(target.guarded());
    }
  }
}
template <class T>
void check_all_ops(Index count) {
  check<Sum, T, 1, false>({}, count);
  check<Sum, T, 1, true>({}, count);
  check<Prod, T, 1, false>({}, count);
  check<Min, T, 1, true>({}, count);
  check<Max, T, 1, false>({}, count);
  check<Avg, T, 1, false>({}, count);
  check<Avg, T, 1, true>({}, count);
  check<PreMulSum, T, 1, true>(PreMulSum(3), count);
}
}  // namespace

TEST_CASE("bulk loops give what elements one by one give, for every type and operation") {
  for (int i = 0; i < data_type_count; ++i) {
    INFO(name(DataType(i)));
    with_type(DataType(i), []<class T>(TypeTag<T>) { check_all_ops<T>(2087); });
  }
}

TEST_CASE("bulk loops take any count and number of sources") {
  for (const Index count : {0, 1, 2, 3, 7, 8, 9, 31, 33, 1023, 1024, 1025}) {
    check<Sum, float, 0, false>({}, count);
    check<Sum, float, 1, false>({}, count);
    check<Sum, float, 2, false>({}, count);
    check<Avg, float, 3, true>({}, count);
    check<Sum, bfloat16, 3, true>({}, count);
    check<PreMulSum, float16, 0, true>(PreMulSum(2), count);
  }
}

namespace {
struct Color {
  unsigned char r, g, b;
};
struct Mix {
  Color operator()(Color a, Color b) const {
    return {a.r, b.g, static_cast<unsigned char>(a.b + b.b)};
  }
};
struct Digits {
  static constexpr bool commutative = false;
  int operator()(int a, int b) const { return 10 * a + b; }
};
}  // namespace

TEST_CASE("bulk loops take user types, and keep the order of the sources") {
  Color own[3] = {{1, 2, 3}, {4, 5, 6}, {7, 8, 9}},
        other[3] = {{10, 20, 30}, {40, 50, 60}, {70, 80, 90}};
  const void* colors[] = {other};
  detail::reduce_bulk<detail::Reduction<Mix, Color>, 1, true>({Mix{}, 2}, own, own, colors, 3);
  CHECK(int(own[2].r) == 7);
  CHECK(int(own[2].g) == 80);
  CHECK(int(own[2].b) == 99);

  const int a = 1, b = 2, c = 3, d = 4;
  const void* numbers[] = {&b, &c, &d};
  int out = 0;
  detail::reduce_bulk<detail::Reduction<Digits, int>, 3, true>({Digits{}, 4}, &out, &a, numbers, 1);
  CHECK(out == 1234);
}
