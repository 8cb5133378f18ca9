// Operations that move elements and reduce nothing, for types of all sizes: patterns, protocols,
// ranks, counts, alignments, transports and plans by pairs.
#include <ccl/algo/pairwise.hpp>
#include <ccl/algo/ring.hpp>
#include <ccl/algo/tree.hpp>

#include <functional>

#include "support/types_suite.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {

template <class O, class A>
struct Pattern {
  using Op = O;
  using Algo = A;
};
using Moves =
    std::tuple<Pattern<AllGather, Ring>, Pattern<AllGather, Pairwise>, Pattern<Broadcast, Ring>,
               Pattern<Broadcast, Tree>, Pattern<Broadcast, Pairwise>, Pattern<AllToAll, Pairwise>,
               Pattern<AllToAllV, Pairwise>, Pattern<Gather, Pairwise>, Pattern<Scatter, Pairwise>,
               Pattern<SendRecv, Pairwise>>;

// Factors of the reductions without those that only reductions have.
constexpr Levels move_levels = [] {
  Levels l = levels;
  l[functor] = l[rough] = l[memory] = 1;
  l[pattern] = int(std::tuple_size_v<Moves>);
  return l;
}();
constexpr bool may_move(int f, int a, int g, int b) {
  // Exchanges are not done in place.
  const bool out_of_place = f == pattern && (a == 5 || a == 6 || a == 9);
  return !(out_of_place && g == in_place && b == 1);
}
constexpr auto move_rows = cover_pairs<factors>(move_levels, may_move);
static_assert(covers<factors>(move_rows, move_levels, may_move));

/// Index and rank of an element; rank -1: none.
struct Origin {
  int rank;
  Index i;
};
constexpr Origin moved_from{-1, 0};

unsigned char byte_of(int rank, Index i) {
  return static_cast<unsigned char>(mix(std::uint64_t(rank + 1) << 40 ^ std::uint64_t(i)) >> 8);
}

/// Returns the elements that rank a sends to rank b in AllToAllV.
Index between(Index n, int a, int b) {
  return (a + 2 * b) % 3 * n / 2;
}

/// Buffers of elements of `size` bytes, for one call.
class Move {
 public:
  Move(const Case& row, int me, Index size, Index in, Index out, bool in_place, Index in_shift,
       Index out_shift)
      : size_{size},
        out_{out},
        in_place_{in_place},
        send_{(in_place ? std::max(in + out_shift, out + in_shift) : in) * size,
              skew_of(row, size)},
        recv_{out * size, skew_of(row, size)},
        to_{in_place ? in_shift * size : 0},
        from_{in_place ? out_shift * size : 0} {
    for (Index b = 0; b < in * size; ++b) {
      send_.data()[from_ + b] = static_cast<char>(byte_of(me, b));
    }
    before_.assign(recv(), recv() + out * size);
  }
  char* send() { return send_.data() + from_; }
  char* recv() { return (in_place_ ? send_ : recv_).data() + to_; }
  Index wrong(const std::function<Origin(Index)>& want) {
    Index wrong = 0;
    for (Index i = 0; i < out_; ++i) {
      const Origin from = want(i);
      for (Index b = 0; b < size_; ++b) {
        const char due = from.rank < 0 ? before_[size_t(i * size_ + b)]
                                       : static_cast<char>(byte_of(from.rank, from.i * size_ + b));
        wrong += recv()[i * size_ + b] != due;
      }
    }
    return wrong + !send_.sound() + !recv_.sound();
  }

 private:
  static Index skew_of(const Case& row, Index size) {
    return row.level[skew] == 0 ? 0 : row.level[skew] == 1 ? size : 1;
  }
  Index size_, out_;
  bool in_place_;
  Guarded send_, recv_;
  Index to_, from_;
  std::vector<char> before_;
};

/// Runs one case on one rank. Returns the number of wrong bytes.
template <int Which, class Proto, class T>
Result<Index> move_once(const Communicator& comm, const Case& row) {
  using P = std::tuple_element_t<size_t(Which), Moves>;
  using Op = typename P::Op;
  using C = Collective<Op, typename P::Algo, Proto, ChosenTransport>;
  const int R = comm.ranks(), me = comm.rank(), root = row.root();
  const Index n = row.count();
  const bool in_place = row.level[test::in_place] != 0;
  CCL_TRY(auto c, C::create(comm, plan_of(row.level[test::plan])));
  const auto with = [&](Index in, Index out, Index in_shift, Index out_shift,
                        const std::function<Result<void>(const T*, T*)>& call,
                        const std::function<Origin(Index)>& want) -> Result<Index> {
    Move m{row, me, sizeof(T), in, out, in_place, in_shift, out_shift};
    CCL_CHECK(call(reinterpret_cast<const T*>(m.send()), reinterpret_cast<T*>(m.recv())));
    return m.wrong(want);
  };
  if constexpr (std::is_same_v<Op, AllGather>) {
    return with(
        n, n * R, 0, me * n, [&](const T* s, T* r) { return c(s, r, n); },
        [&](Index i) {
          return Origin{int(i / n), i % n};
        });
  } else if constexpr (std::is_same_v<Op, Broadcast>) {
    return with(
        n, n, 0, 0, [&](const T* s, T* r) { return c(s, r, n, root); },
        [&](Index i) {
          return Origin{root, i};
        });
  } else if constexpr (std::is_same_v<Op, AllToAll>) {
    return with(
        n * R, n * R, 0, 0, [&](const T* s, T* r) { return c(s, r, n); },
        [&](Index i) {
          return Origin{int(i / n), me * n + i % n};
        });
  } else if constexpr (std::is_same_v<Op, Gather>) {
    return with(
        n, n * R, 0, me * n, [&](const T* s, T* r) { return c(s, r, n, root); },
        [&](Index i) {
          return me == root ? Origin{int(i / n), i % n} : moved_from;
        });
  } else if constexpr (std::is_same_v<Op, Scatter>) {
    return with(
        n * R, n, me * n, 0, [&](const T* s, T* r) { return c(s, r, n, root); },
        [&](Index i) {
          return Origin{root, me * n + i};
        });
  } else if constexpr (std::is_same_v<Op, SendRecv>) {
    const int next = (me + 1) % R, prev = (me + R - 1) % R;
    return with(
        n, n, 0, 0, [&](const T* s, T* r) { return c(s, n, next, r, n, prev); },
        [&](Index i) {
          return Origin{prev, i};
        });
  } else {
    std::vector<Index> out_counts, out_offsets, in_counts, in_offsets;
    Index out = 0, in = 0;
    for (int p = 0; p < R; ++p) {
      out_counts.push_back(between(n, me, p));
      out_offsets.push_back(std::exchange(out, out + between(n, me, p)));
      in_counts.push_back(between(n, p, me));
      in_offsets.push_back(std::exchange(in, in + between(n, p, me)));
    }
    return with(
        out, in, 0, 0,
        [&](const T* s, T* r) { return c(s, out_counts, out_offsets, r, in_counts, in_offsets); },
        [&](Index i) {
          int p = 0;
          while (i >= in_offsets[size_t(p)] + in_counts[size_t(p)]) ++p;
          Index there = i - in_offsets[size_t(p)];
          for (int q = 0; q < me; ++q) there += between(n, p, q);
          return Origin{p, there};
        });
  }
}

}  // namespace

TEST_CASE("types, patterns that move elements, and ranks") {
  const auto comms = communicators();
  const auto over = transports();
  int ran = 0;
  const auto each = [&]<int I>() {
    constexpr Levels at = move_rows.rows[I];
    using P = std::tuple_element_t<size_t(at[pattern]), Moves>;
    ran += sweep(at, 1, [&](Levels level) {
      if (!may_move(pattern, at[pattern], in_place, 1)) level[in_place] = 0;
      const Case one{level};
      INFO("row " << I << ": " << detail::type_label<TypeAt<at[type]>>() << ", " << P::Op::name
                  << '/' << P::Algo::name << '/' << ProtocolAt<at[proto]>::name << '/'
                  << over[size_t(level[transport])].name << ", " << one.ranks() << " ranks, "
                  << one.count() << " elements, skew " << level[skew] << ", plan " << level[plan]
                  << (level[in_place] != 0 ? ", in place" : ""));
      chosen = over[size_t(level[transport])];
      std::atomic<Index> wrong{0};
      on_all(comms[size_t(one.ranks())], [&](const Communicator& comm) -> Result<void> {
        CCL_TRY(const Index bytes,
                (move_once<at[pattern], ProtocolAt<at[proto]>, TypeAt<at[type]>>(comm, one)));
        wrong += bytes;
        return {};
      });
      CHECK(wrong == 0);
    });
  };
  [&]<int... I>(std::integer_sequence<int, I...>) {
    (each.template operator()<I>(), ...);
  }(std::make_integer_sequence<int, move_rows.count>{});
  WARN(ran << " cases, of " << move_rows.count << " rows, which cover " << move_rows.pairs
           << " pairs");
  for (const auto& each_comm : comms) {
    on_all(each_comm, [](const Communicator& comm) { return comm.finalize(); });
  }
}
