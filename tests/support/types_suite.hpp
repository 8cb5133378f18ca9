#pragma once

// Types, reductions and rank counts, with algorithms, protocols, counts, alignments, transports and
// plans. Each pair of levels of two of these is in a row of a covering array. Only the compositions
// of the rows are compiled, those of an algorithm in its own
// tests/element/types_<algorithm>_test.cpp.
#include <ccl/collective.hpp>
#include <ccl/proto/ll.hpp>
#include <ccl/proto/ll128.hpp>
#include <ccl/proto/simple.hpp>

#include "covering.hpp"
#include "reference.hpp"
#include "support/chosen_transport.hpp"

namespace ccl::test {

// ---- the factors and their levels

/// Operations with algorithms, each of which a test compiles.
enum PatternLevel {
  by_ring,  // all-reduces
  by_tree,
  by_doubling,
  parts_by_ring,    // reduce-scatters
  to_root_by_ring,  // reduces
  to_root_by_tree,
  patterns
};
using Protocols = std::tuple<Simple, LL, LL128>;
constexpr int max_ranks = 8;
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
                        max_ranks,
                        int(counts.size()),
                        int(patterns),
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
using ProtocolAt = std::tuple_element_t<size_t(I), Protocols>;

constexpr bool allowed(int f, int a, int g, int b) {
  const auto both = [&](Factor p, int x, Factor q, int y) {
    return (f == p && a == x && g == q && b == y) || (f == q && a == y && g == p && b == x);
  };
  // Doubling has no place for a prologue or an epilogue.
  if (both(functor, 4, pattern, by_doubling) || both(functor, 5, pattern, by_doubling))
    return false;
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

/// Operation of one composition on its buffers; created for each row.
using Call = Result<void> (*)(const Communicator& comm, const Case& row, const void* send,
                              void* recv, const void* scalar_at);
template <int I, class Op, class Algo>
Result<void> call(const Communicator& comm, const Case& row, const void* send, void* recv,
                  const void* scalar_at) {
  constexpr Levels at = rows.rows[I];
  using T = TypeAt<at[type]>;
  using F = FunctorAt<at[functor]>;
  using C = Collective<Op, Algo, ProtocolAt<at[proto]>, ChosenTransport>;
  CCL_TRY(auto c, C::create(comm, plan_of(row.level[plan])));
  const F op = functor_of<F, T>(row.level[memory] != 0 ? scalar_at : nullptr);
  const auto* from = static_cast<const T*>(send);
  auto* to = static_cast<T*>(recv);
  if constexpr (Op::rooted) {
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

/// Communicators of 1 to `max_ranks` ranks: [ranks].
inline std::vector<std::vector<Communicator>> communicators() {
  Config config;
  config.timeout_s = 20;
  config.memory_budget_bytes = Index{1} << 30;
  std::vector<std::vector<Communicator>> comms(max_ranks + 1);
  for (int ranks = 1; ranks <= max_ranks; ++ranks) {
    auto made = Communicator::create_all(ranks, config);
    INFO((made ? std::string{} : made.error().message()));
    REQUIRE(made.has_value());
    comms[size_t(ranks)] = std::move(*made);
  }
  return comms;
}
inline std::vector<detail::TransportTable> transports() {
  return {detail::transport_table<LoopbackTransport>(), detail::transport_table<ShmTransport>(),
          detail::transport_table<SocketTransport>()};
}

/// Runs a row, and then its compositions at all other numbers of ranks. Each runs with the row's
/// number of elements and `more_counts` others; other factors alternate. Returns the number of
/// cases.
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

/// Runs the rows of one pattern.
template <class Op, class Algo, PatternLevel Which>
void run_types() {
  const auto comms = communicators();
  const auto over = transports();
  int ran = 0;
  const auto each = [&]<int I>() {
    constexpr Levels at = rows.rows[I];
    using T = TypeAt<at[type]>;
    using F = FunctorAt<at[functor]>;
    constexpr Shape shape = std::is_same_v<Op, AllReduce> ? Shape::all_reduce
                            : std::is_same_v<Op, Reduce>  ? Shape::reduce
                                                          : Shape::reduce_scatter;
    ran += sweep(at, levels[count] - 1, [&](const Levels& level) {
      const Case one{level};
      INFO("row " << I << ": " << detail::type_label<T>() << ' ' << detail::redop_label<F>() << ", "
                  << Op::name << '/' << Algo::name << '/' << ProtocolAt<at[proto]>::name << '/'
                  << over[size_t(level[transport])].name << ", " << one.ranks() << " ranks, "
                  << one.count() << " elements, skew " << level[skew] << ", plan " << level[plan]
                  << (level[in_place] != 0 ? ", in place" : "")
                  << (level[rough] != 0 ? ", rough" : "")
                  << (level[memory] != 0 ? ", scalar in memory" : ""));
      chosen = over[size_t(level[transport])];
      run_case(comms[size_t(one.ranks())], one, shape, rules<T, F>(), call<I, Op, Algo>);
    });
  };
  const auto if_its = [&]<int I>() {
    if constexpr (rows.rows[I][pattern] == Which) each.template operator()<I>();
  };
  [&]<int... I>(std::integer_sequence<int, I...>) {
    (if_its.template operator()<I>(), ...);
  }(std::make_integer_sequence<int, rows.count>{});
  REQUIRE(ran > 0);
  WARN(ran << " cases by " << Algo::name << ", a part of " << rows.count << " rows, which cover "
           << rows.pairs << " pairs");
  for (const auto& each_comm : comms) {
    on_all(each_comm, [](const Communicator& comm) { return comm.finalize(); });
  }
}

}  // namespace ccl::test
