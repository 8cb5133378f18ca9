// User-defined reduction, algorithm and list of candidates; see docs/guide/own_algorithm.md.
#include <ccl/ccl.hpp>

#include <cstdio>
#include <vector>

/// Largest value and its index; the first of equal values. Any struct of plain data works.
struct Location {
  float value;
  int at;
};
struct Largest {
  CCL_HD Location operator()(const Location& a, const Location& b) const {
    return b.value > a.value || (b.value == a.value && b.at < a.at) ? b : a;
  }
};

/// All-reduce by two rings at once, one in each direction, with half of the message each.
struct TwoWays {
  static constexpr const char* name = "TwoWays";
  static constexpr bool reorders = true;
  static constexpr bool root_moves_wires = false;
  static constexpr int max_wires(int) { return 2; }
  static constexpr int wires = 4;
  template <class Op>
  static constexpr bool supports = std::is_same_v<Op, ccl::AllReduce>;
  template <class Op>
  static constexpr ccl::CostTerms cost_terms(int ranks) {
    return {2.0 * (ranks - 1), (ranks - 1.0) / ranks};
  }

  template <class Positions>
  static constexpr void peers(Positions& positions) {
    const auto at = positions.ring();
    for (const int peer : {at.prev(), at.next()}) {
      positions.from(peer);
      positions.to(peer);
    }
  }

  template <class Context>
  CCL_HD static constexpr void run(ccl::AllReduce, Context& context) {
    const auto at = context.ring();
    auto right = context.template prims<1, 1>({at.prev()}, {at.next()});
    if (at.ranks == 2) return around(at, context, right, right);  // only one wire in each direction
    auto left = context.template prims<1, 1>({at.next()}, {at.prev()});
    around(at, context, right, left);
  }

 private:
  template <class Position, class Context, class Prims>
  CCL_HD static constexpr void around(const Position& at, Context& context, Prims& right,
                                      Prims& left) {
    const int n = at.ranks;  // shares 0 to n - 1 go right, the others left
    // Two sends before a receive, and another with it, exceed the slots of a short wire.
    const bool both = n > 2;
    for (auto chunks = context.chunks(both ? 2 * n : n); chunks.next();) {
      right.send(chunks.share(at.behind(1)));
      if (both) left.send(chunks.share(n + at.ahead(1)));
      for (int j = 2; j < n; ++j) {
        right.recv_reduce_send(chunks.share(at.behind(j)));
        left.recv_reduce_send(chunks.share(n + at.ahead(j)));
      }
      right.recv_reduce_copy_send(chunks.share(at.rank()));
      if (both) left.recv_reduce_copy_send(chunks.share(n + at.rank()));
      for (int j = 1; j < n - 1; ++j) {
        right.recv_copy_send(chunks.share(at.behind(j)));
        left.recv_copy_send(chunks.share(n + at.ahead(j)));
      }
      right.recv(chunks.share(at.ahead(1)));
      if (both) left.recv(chunks.share(n + at.behind(1)));
    }
  }
};

ccl::Result<void> run() {
  using List = ccl::AutoOf<ccl::Candidate<ccl::Doubling, ccl::Simple>,  //
                           ccl::Candidate<TwoWays, ccl::Simple>>;
  CCL_TRY(const auto comm, ccl::Communicator::from_env());
  CCL_TRY(const auto named, (ccl::Collective<ccl::AllReduce, TwoWays, ccl::LL>::create(comm)));
  CCL_TRY(const auto chosen, (ccl::Collective<ccl::AllReduce, List>::create(comm)));
  for (const ccl::Index count : {1, 1000, 300'000}) {
    std::vector<Location> best(std::size_t(count), {float(comm.rank() + 1), comm.rank()});
    best[0].value = 1;
    CCL_CHECK(named(best.data(), best.data(), count, Largest{}));
    CCL_CHECK(chosen(best.data(), best.data(), count, Largest{}));
    const Location first = best.front(), last = best.back();
    const bool right = first.at == 0 && (count == 1 || last.at == comm.ranks() - 1);
    if (!right) return ccl::fail(ccl::Errc::internal, "the largest is not where it was");
    std::printf("%ld: %s\n", long(count), chosen.plan(count * 8).text().c_str());
  }
  return comm.finalize();
}

int main() {
  const auto done = run();
  if (!done) std::fprintf(stderr, "%s\n", done.error().message().c_str());
  return done ? 0 : 1;
}
