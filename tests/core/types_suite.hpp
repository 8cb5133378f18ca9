#pragma once

// Types, reductions and rank counts, with algorithms, protocols, counts, alignments, transports and
// plans: each pair of levels of two of these occurs in a row of a covering array. Only the
// compositions of the rows are compiled, a part of them in each types_<n>_test.cpp.
#include <ccl/collective.hpp>
#include <ccl/proto/ll.hpp>
#include <ccl/proto/ll128.hpp>
#include <ccl/proto/simple.hpp>

#include <cmath>
#include <tuple>

#include "core/chosen_transport.hpp"
#include "covering.hpp"

namespace ccl::test {

/// A user's element: three numbers that wrap, compared as a whole, in an order of their own.
struct Triple {
  std::uint32_t x = 0, y = 0, z = 0;
  constexpr Triple() = default;
  constexpr Triple(std::uint32_t a, std::uint32_t b, std::uint32_t c) : x{a}, y{b}, z{c} {}
  constexpr Triple(double all)  // NOLINT(google-explicit-constructor): PreMulSum's scalar
      : x{std::uint32_t(std::int64_t(all))}, y{x}, z{x} {}
  friend constexpr Triple operator+(Triple a, Triple b) {
    return {a.x + b.x, a.y + b.y, a.z + b.z};
  }
  friend constexpr Triple operator*(Triple a, Triple b) {
    return {a.x * b.x, a.y * b.y, a.z * b.z};
  }
  friend constexpr Triple operator/(Triple a, int n) {
    return {a.x / unsigned(n), a.y / unsigned(n), a.z / unsigned(n)};
  }
  friend constexpr auto operator<=>(const Triple&, const Triple&) = default;
};

/// A user's functor, with a value: the operand that is nearer to it, else the smaller one.
struct Nearest {
  int target;
  template <class A>
  constexpr A operator()(const A& a, const A& b) const {
    const auto from = distance(a), to = distance(b);
    return from != to ? (from < to ? a : b) : (b < a ? b : a);
  }

 private:
  template <class A>
  constexpr auto distance(const A& a) const {
    if constexpr (std::is_same_v<A, Triple>) {
      return a.y ^ std::uint32_t(target);
    } else if constexpr (detail::Integer<A>) {
      return std::uint64_t(a) ^ std::uint64_t(target);
    } else {
      return std::abs(double(a) - target);
    }
  }
};

// ---- the factors and their levels

using Types = std::tuple<std::int8_t, std::int16_t, std::int32_t, std::int64_t, std::uint8_t,
                         std::uint16_t, std::uint32_t, std::uint64_t, float16, bfloat16, float,
                         double, float8_e4m3, float8_e5m2, Triple>;
using Functors = std::tuple<Sum, Prod, Min, Max, Avg, PreMulSum, Nearest>;
template <class O, class A>
struct Pattern {
  using Op = O;
  using Algo = A;
};
using Patterns =
    std::tuple<Pattern<AllReduce, Ring>, Pattern<AllReduce, Tree>, Pattern<AllReduce, Doubling>,
               Pattern<ReduceScatter, Ring>, Pattern<Reduce, Ring>, Pattern<Reduce, Tree>>;
using Protocols = std::tuple<Simple, LL, LL128>;
constexpr int most_ranks = 8;
constexpr std::array<Index, 7> counts{0, 1, 2, 7, 64, 1023, 4099};
constexpr int plan_count = 3;
inline std::optional<Plan> plan_of(int level) {
  if (level == 0) return std::nullopt;
  Plan plan;
  plan.slot_bytes = 1024;  // wires wrap
  if (level == 1) {
    plan.channels = 2;
    plan.slot_count = 16;
    plan.slice_steps = 2;
    plan.chunk_steps = 4;
  }
  return plan;
}

enum Factor {
  type,
  functor,
  rank_count,
  count,
  pattern,
  transport,
  proto,
  skew,  // of the buffers: 0, one element, one byte
  plan,
  in_place,
  rough,   // data that rounds; its results are within a bound
  memory,  // the scalar of PreMulSum lies there
  factors
};
using Levels = std::array<int, factors>;
constexpr Levels levels{int(std::tuple_size_v<Types>),
                        int(std::tuple_size_v<Functors>),
                        most_ranks,
                        int(counts.size()),
                        int(std::tuple_size_v<Patterns>),
                        3,
                        int(std::tuple_size_v<Protocols>),
                        3,
                        plan_count,
                        2,
                        2,
                        2};
template <int I>
using TypeAt = std::tuple_element_t<size_t(I), Types>;
template <int I>
using FunctorAt = std::tuple_element_t<size_t(I), Functors>;
template <int I>
using PatternAt = std::tuple_element_t<size_t(I), Patterns>;
template <int I>
using ProtocolAt = std::tuple_element_t<size_t(I), Protocols>;

constexpr bool allowed(int f, int a, int g, int b) {
  const auto both = [&](Factor p, int x, Factor q, int y) {
    return (f == p && a == x && g == q && b == y) || (f == q && a == y && g == p && b == x);
  };
  // Doubling has no place for a prologue or an epilogue.
  if (both(functor, 4, pattern, 2) || both(functor, 5, pattern, 2)) return false;
  // Only floats round, and only in arithmetic.
  for (const int t : {0, 1, 2, 3, 4, 5, 6, 7, 14}) {
    if (both(type, t, rough, 1)) return false;
  }
  for (const int t : {2, 3, 6}) {
    if (both(functor, t, rough, 1)) return false;
  }
  return true;
}
inline constexpr auto rows = cover_pairs<factors>(levels, allowed);
static_assert(covers<factors>(rows, levels, allowed));

// ---- data, and what is to come of it, by plain arithmetic

template <class T>
inline constexpr bool is_float = !std::is_integral_v<T> && !std::is_same_v<T, Triple>;
/// Half the distance of two numbers near 1: what one rounding changes at most.
template <class T>
constexpr double roundoff() {
  if constexpr (std::is_same_v<T, double>) return 0x1p-53;
  if constexpr (std::is_same_v<T, float>) return 0x1p-24;
  if constexpr (std::is_same_v<T, float16>) return 0x1p-11;
  if constexpr (std::is_same_v<T, bfloat16>) return 0x1p-8;
  if constexpr (std::is_same_v<T, float8_e4m3>) return 0x1p-4;
  return 0x1p-3;
}
inline std::uint64_t mix(std::uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}
template <class T>
double real(const T& x) {
  if constexpr (std::is_same_v<T, double>) return x;
  return double(float(x));
}
template <class T>
T number(double x) {
  if constexpr (std::is_same_v<T, double>) {
    return x;
  } else {
    return T(float(x));
  }
}

template <class T, class F>
T element(int rank, Index i, bool rough) {
  const std::uint64_t bits = mix(std::uint64_t(rank + 1) << 40 ^ std::uint64_t(i));
  if constexpr (std::is_same_v<T, Triple>) {
    return {std::uint32_t(bits), std::uint32_t(bits >> 32), std::uint32_t(bits >> 16)};
  } else if constexpr (std::is_integral_v<T>) {
    return T(bits);
  } else {
    const double sign = bits % 2 == 0 ? 1 : -1;
    if (rough) return number<T>(sign * (0.75 + double(bits >> 40) * 0x1p-24 * 0.75));
    if (std::is_same_v<F, Prod>) return number<T>(sign * std::ldexp(1, int(bits >> 8) % 3 - 1));
    // Sums of eight of them are exact.
    const int most = int(1 / roundoff<T>() / 8 < 1000 ? 1 / roundoff<T>() / 8 : 1000);
    return number<T>(sign * int((bits >> 8) % unsigned(most + 1)) + 0.0);  // one zero
  }
}

template <class T>
constexpr int scalar() {
  return is_float<T> ? 2 : 3;
}

/// Element i of the reduction over `ranks` ranks: what it is, and how far off it may be.
template <class T>
struct Wanted {
  T value;
  double off = 0;
};
template <class T, class F>
Wanted<T> wanted(int ranks, Index i, bool rough) {
  const auto x = [&](int r) { return element<T, F>(r, i, rough); };
  constexpr bool adds = std::is_same_v<F, Sum> || std::is_same_v<F, Avg>;
  constexpr bool scales = std::is_same_v<F, PreMulSum>, multiplies = std::is_same_v<F, Prod>;
  if constexpr (!adds && !scales && !multiplies) {
    T best = x(0);
    for (int r = 1; r < ranks; ++r) {
      const T next = x(r);
      bool better;
      if constexpr (std::is_same_v<F, Nearest>) {
        // In the type that elements are reduced in; copies nothing but the definition above.
        using A = accumulate_t<T>;
        const F f{1};
        better = bool(f(A(best), A(next)) == A(next)) && !bool(A(best) == A(next));
      } else if constexpr (is_float<T>) {
        better = std::is_same_v<F, Min> ? real(next) < real(best) : real(best) < real(next);
      } else {
        better = std::is_same_v<F, Min> ? next < best : best < next;
      }
      if (better) best = next;
    }
    return {best};
  } else if constexpr (is_float<T>) {
    long double result = multiplies ? 1 : 0, size = result;  // no rounding of their own
    for (int r = 0; r < ranks; ++r) {
      const long double v = real(x(r)) * (scales ? scalar<T>() : 1);
      result = multiplies ? result * v : result + v;
      size = multiplies ? size * std::abs(v) : size + std::abs(v);
    }
    if constexpr (std::is_same_v<F, Avg>) {
      size /= ranks;
      using A = std::conditional_t<std::is_same_v<T, double>, double, float>;
      result = rough ? result / ranks : A(result) / A(ranks);
    }
    if (!rough) return {number<T>(double(result))};
    // Each rank rounds once; the scalar's product, the division, the result and this value too.
    const double most = std::expm1((ranks + 3) * std::log1p(roundoff<T>()));
    return {number<T>(double(result)), most * double(size)};
  } else {
    T result = x(0);
    if constexpr (std::is_same_v<T, Triple>) {
      const Triple by(scales ? scalar<T>() : 1, scales ? scalar<T>() : 1, scales ? scalar<T>() : 1);
      result = result * by;
      for (int r = 1; r < ranks; ++r) result = multiplies ? result * x(r) : result + x(r) * by;
      if constexpr (std::is_same_v<F, Avg>) result = result / ranks;
    } else {
      std::uint64_t whole = std::uint64_t(result) * (scales ? scalar<T>() : 1);
      for (int r = 1; r < ranks; ++r) {
        const std::uint64_t next = std::uint64_t(x(r)) * (scales ? scalar<T>() : 1);
        whole = multiplies ? whole * next : whole + next;
      }
      result = T(whole);
      if constexpr (std::is_same_v<F, Avg>) {
        // Towards zero, in a type that holds both.
        result = std::is_signed_v<T> ? T(std::int64_t(result) / ranks)
                                     : T(std::uint64_t(result) / std::uint64_t(ranks));
      }
    }
    return {result};
  }
}

/// A buffer of bytes with guards around.
class Guarded {
 public:
  Guarded(Index bytes, Index skew)
      : skew_{skew}, end_{room + skew + bytes}, bytes_(end_ + room, guard) {}
  char* data() { return bytes_.data() + room + skew_; }
  bool sound() const {
    const auto whole = [&](Index from, Index to) {
      for (Index i = from; i < to; ++i) {
        if (bytes_[i] != guard) return false;
      }
      return true;
    };
    return whole(0, room + skew_) && whole(end_, Index(bytes_.size()));
  }

 private:
  static constexpr char guard = 0x5a;
  static constexpr Index room = 64;
  Index skew_, end_;
  std::vector<char> bytes_;
};

struct Case {
  Levels level;
  int ranks() const { return level[rank_count] + 1; }
  Index count() const { return counts[level[test::count]]; }
  int root() const { return (level[type] + level[functor] + level[test::count]) % ranks(); }
};

/// What one composition does with its buffers; made for each row.
using Call = Result<void> (*)(const Communicator& comm, const Case& row, const void* send,
                              void* recv, const void* scalar_at);
/// What the elements of one type and functor are; made for each of these.
struct Rules {
  Index size;
  void (*fill)(char* at, int rank, Index i, bool rough);
  bool (*good)(const char* at, int ranks, Index i, bool rough);
  void (*put_scalar)(char* at);
};
template <class T, class F>
constexpr Rules rules() {
  return {Index{sizeof(T)},
          [](char* at, int rank, Index i, bool rough) {
            const T x = element<T, F>(rank, i, rough);
            std::memcpy(at, &x, sizeof x);
          },
          [](const char* at, int ranks, Index i, bool rough) {
            T got;
            std::memcpy(static_cast<void*>(&got), at, sizeof got);
            const auto want = wanted<T, F>(ranks, i, rough);
            if constexpr (is_float<T>) {
              return std::abs(real(got) - real(want.value)) <= want.off;
            } else {
              return got == want.value;
            }
          },
          [](char* at) {
            const T x = [] {
              if constexpr (is_float<T>) return number<T>(scalar<T>());
              return T(scalar<T>());
            }();
            std::memcpy(at, &x, sizeof x);
          }};
}

template <class F, class T>
F functor_of(const Case& row, const void* scalar_at) {
  if constexpr (std::is_same_v<F, PreMulSum>) {
    if (row.level[memory] != 0) return PreMulSum::at(static_cast<const T*>(scalar_at));
    return PreMulSum{scalar<T>()};
  } else if constexpr (std::is_same_v<F, Nearest>) {
    return Nearest{1};
  } else {
    return F{};
  }
}

template <int I>
Result<void> call(const Communicator& comm, const Case& row, const void* send, void* recv,
                  const void* scalar_at) {
  constexpr Levels at = rows.rows[I];
  using T = TypeAt<at[type]>;
  using F = FunctorAt<at[functor]>;
  using P = PatternAt<at[pattern]>;
  using C = Collective<typename P::Op, typename P::Algo, ProtocolAt<at[proto]>, ChosenTransport>;
  CCL_TRY(auto c, C::create(comm, plan_of(row.level[plan])));
  const F op = functor_of<F, T>(row, scalar_at);
  const auto* from = static_cast<const T*>(send);
  auto* to = static_cast<T*>(recv);
  if constexpr (P::Op::rooted) {
    CCL_CHECK(c(from, to, row.count(), op, row.root()));
  } else {
    CCL_CHECK(c(from, to, row.count(), op));
  }
  return {};
}

enum class Shape { all_reduce, reduce_scatter, reduce };

/// One row, on all ranks.
inline void run_case(const std::vector<Communicator>& comms, const Case& row, Shape shape,
                     const Rules& rules, Call call) {
  const int ranks = row.ranks();
  const Index n = row.count();
  const bool rough = row.level[test::rough] != 0, in_place = row.level[test::in_place] != 0;
  const Index skew = row.level[test::skew] == 0 ? 0 : row.level[test::skew] == 1 ? rules.size : 1;
  const Index runs = shape == Shape::reduce_scatter ? ranks : 1;
  std::atomic<Index> wrong{0};
  std::vector<std::vector<char>> results(comms.size());
  on_all(comms, [&](const Communicator& comm) -> Result<void> {
    const int me = comm.rank();
    alignas(16) char scalar_at[16] = {};
    rules.put_scalar(scalar_at);
    Guarded send{runs * n * rules.size, skew}, apart{n * rules.size, skew};
    for (Index i = 0; i < runs * n; ++i) rules.fill(send.data() + i * rules.size, me, i, rough);
    const Index mine = shape == Shape::reduce_scatter ? me * n : 0;
    char* const recv = in_place ? send.data() + mine * rules.size : apart.data();
    const std::vector<char> before(recv, recv + n * rules.size);
    CCL_CHECK(call(comm, row, send.data(), recv, scalar_at));
    auto& result = results[size_t(me)];
    result.assign(recv, recv + n * rules.size);
    if (shape == Shape::reduce && me != row.root()) {
      wrong += result != before;
    } else {
      for (Index i = 0; i < n; ++i) {
        wrong += !rules.good(result.data() + i * rules.size, ranks, mine + i, rough);
      }
    }
    wrong += !send.sound() + !apart.sound();
    return {};
  });
  CHECK(wrong == 0);
  if (shape != Shape::all_reduce) return;
  // Whatever the order of the reduction was, it was one.
  for (const auto& result : results) CHECK(result == results[0]);
}

/// Communicators of 1 to `most_ranks` ranks: [ranks].
inline std::vector<std::vector<Communicator>> communicators() {
  Config config;
  config.timeout_s = 20;
  config.memory_budget_bytes = Index{1} << 30;
  std::vector<std::vector<Communicator>> comms(most_ranks + 1);
  for (int ranks = 1; ranks <= most_ranks; ++ranks) {
    auto made = Communicator::create_all(ranks, config);
    INFO((made ? std::string{} : made.error().message()));
    REQUIRE(made.has_value());
    comms[size_t(ranks)] = std::move(*made);
  }
  return comms;
}
inline std::vector<detail::Connector> transports() {
  return {detail::connector<LoopbackTransport>(), detail::connector<ShmTransport>(),
          detail::connector<SocketTransport>()};
}

/// A row, and then what it compiled at all other numbers of ranks, for each at the row's number of
/// elements and `more_counts` others, the rest in turns. Returns how many cases these were.
template <class RunCase>
int sweep(Levels row, int more_counts, RunCase run_case) {
  for (int r = 0; r < levels[rank_count]; ++r) {
    for (int n = 0; n <= more_counts; ++n) {
      Levels at = row;
      const auto turn = [&](Factor f, int by) { at[f] = (row[f] + by) % levels[f]; };
      turn(rank_count, r);
      turn(count, n);
      turn(transport, r + n);
      turn(skew, n / 2 + r);
      turn(plan, n + r / 2);
      turn(in_place, r / 2 + n / 2);
      turn(memory, n);
      run_case(at);
    }
  }
  return levels[rank_count] * (1 + more_counts);
}

/// The rows whose number is `Part` modulo `Parts`.
template <int Part, int Parts>
void run_types() {
  const auto comms = communicators();
  const auto over = transports();
  int ran = 0;
  const auto each = [&]<int I>() {
    constexpr Levels at = rows.rows[I];
    using T = TypeAt<at[type]>;
    using F = FunctorAt<at[functor]>;
    using P = PatternAt<at[pattern]>;
    constexpr Shape shape = std::is_same_v<typename P::Op, AllReduce> ? Shape::all_reduce
                            : std::is_same_v<typename P::Op, Reduce>  ? Shape::reduce
                                                                      : Shape::reduce_scatter;
    ran += sweep(at, levels[count] - 1, [&](const Levels& level) {
      const Case one{level};
      INFO("row " << I << ": " << detail::type_label<T>() << ' ' << detail::redop_label<F>() << ", "
                  << P::Op::name << '/' << P::Algo::name << '/' << ProtocolAt<at[proto]>::name
                  << '/' << over[size_t(level[transport])].name << ", " << one.ranks() << " ranks, "
                  << one.count() << " elements, skew " << level[skew] << ", plan " << level[plan]
                  << (level[in_place] != 0 ? ", in place" : "")
                  << (level[rough] != 0 ? ", rough" : "")
                  << (level[memory] != 0 ? ", scalar in memory" : ""));
      chosen = over[size_t(level[transport])];
      run_case(comms[size_t(one.ranks())], one, shape, rules<T, F>(), call<I>);
    });
  };
  [&]<int... K>(std::integer_sequence<int, K...>) {
    (each.template operator()<K * Parts + Part>(), ...);
  }
  (std::make_integer_sequence<int, (rows.count - Part + Parts - 1) / Parts>{});
  WARN(ran << " cases, of one in " << Parts << " of " << rows.count << " rows, which cover "
           << rows.pairs << " pairs");
  for (const auto& each_comm : comms) {
    on_all(each_comm, [](const Communicator& comm) { return comm.finalize(); });
  }
}

}  // namespace ccl::test
