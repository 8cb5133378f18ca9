// Algorithms of a program that name ranks, wires or shares which do not exist, or use wires that
// they have not named.
#include <ccl/proto/ll.hpp>
#include <ccl/proto/simple.hpp>

#include <algorithm>
#include <atomic>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include "support/checked_ranks.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {

/// Moves a message on rank 1 over a wire that its `peers` does not name, when the test requests
/// it.
template <bool Sends, int Wires>
struct Forgetful {
  static inline std::atomic<bool> forgets_now{false};
  static constexpr const char* name = "Forgetful";
  static constexpr bool reorders = false;
  static constexpr bool root_moves_wires = false;
  static constexpr int max_wires(int) { return 1; }
  static constexpr int wires = 2;
  template <class Op>
  static constexpr bool supports = std::is_same_v<Op, AllReduce>;
  template <class Positions>
  static constexpr void peers(Positions& positions) {
    positions.from(positions.ring().prev());
    positions.to(positions.ring().next());
  }
  template <class Context>
  static void run(AllReduce, Context& context) {
    const auto at = context.ring();
    const bool forgets = context.rank() == 1 && forgets_now;
    Peers<Wires> in{}, out{};
    for (int w = 0; w < Wires; ++w) in.rank[w] = out.rank[w] = -1;
    in.rank[0] = forgets && !Sends ? at.next() : at.prev();
    out.rank[0] = forgets && Sends ? at.prev() : at.next();
    for (auto chunks = context.chunks(1); chunks.next();) {
      auto prims = context.template prims<Wires, Wires>(in, out);
      prims.send(chunks.all());
      prims.recv(chunks.all());
    }
  }
};
template <class Algo, class Proto>
void check_report_of_wire(const char* direction, int peer) {
  Config config;
  config.timeout_s = 60;
  std::latch all_created{3};  // not a barrier of theirs, in which one may still be when it fails
  on_all(make(3, config), [&](const Communicator& comm) -> Result<void> {
    using C = Collective<AllReduce, Algo, Proto, LoopbackTransport>;
    const auto wrong = C::create(comm, Plan{2, 2, 256, 1, 1});
    all_created.arrive_and_wait();
    if (!wrong) return fail(wrong.error());
    Algo::forgets_now = true;
    std::vector<float> x(1000), y(1000);
    const Result<void> done = (*wrong)(x.data(), y.data(), 1000);
    // The other ranks can have completed by then, but they get the error.
    if (comm.rank() != 1) {
      while (comm.status()) std::this_thread::yield();
      return expect(comm.status().error().what.find(direction) != std::string::npos,
                    comm.status().error().message());
    }
    const bool reported = !done && done.error().code == Errc::invalid_usage &&
                          done.error().what.find("Forgetful") != std::string::npos &&
                          done.error().what.find(direction) != std::string::npos;
    return expect(reported && done.error().peer == peer && done.error().rank == 1,
                  done ? "it was fine" : done.error().message());
  });
}

/// Rank 1 names a rank that there is not.
template <bool Sends, int Named>
struct Astray : Forgetful<Sends, 1> {
  static constexpr const char* name = "Astray";
  template <class Positions>
  static constexpr void peers(Positions& positions) {
    Forgetful<Sends, 1>::peers(positions);
    if (positions.rank() != 1) return;
    Sends ? positions.to(Named) : positions.from(Named);
  }
};
template <class Op, class Algo>
void check_refused(const std::string& text, int ranks = 3) {
  on_all(make(ranks, checking()), [&](const Communicator& comm) -> Result<void> {
    const auto wrong = Over<Op, Algo>::create(comm, Plan{2, 2, 256, 1, 1});
    CCL_CHECK(expect(!wrong && wrong.error().code == Errc::invalid_argument &&
                         wrong.error().what.find(text) != std::string::npos,
                     wrong ? "it was fine" : wrong.error().message()));
    return comm.barrier();  // it is well
  });
}
template <bool Sends, int Named>
void check_report_of_rank(const std::string& text) {
  check_refused<AllReduce, Astray<Sends, Named>>(text);
}

/// Names a wire on rank 1 that its other end does not name, or names only on one channel.
template <bool Sends, bool OnOne = false>
struct Lonely : Forgetful<Sends, 1> {
  static constexpr const char* name = "Lonely";
  template <class Positions>
  static void peers(Positions& positions) {
    Forgetful<Sends, 1>::peers(positions);
    const int other = Sends ? 0 : 2;
    if (positions.rank() == 1) Sends ? positions.to(other) : positions.from(other);
    if (!OnOne || positions.rank() != other || named.exchange(true)) return;
    Sends ? positions.from(1) : positions.to(1);
  }
  static inline std::atomic<bool> named{false};
};

/// Names a share that does not exist, or requests none, on rank 1.
template <class Of, int Shares, int Share>
struct Beyond : Forgetful<true, 1> {
  static constexpr const char* name = "Beyond";
  static constexpr bool root_moves_wires = true;
  template <class Op>
  static constexpr bool supports = std::is_same_v<Op, Of>;
  template <class Context>
  CCL_HD static constexpr void run(Of, Context& context) {
    const auto at = context.ring();
    auto prims = context.template prims<1, 1>({at.prev()}, {at.next()});
    const bool astray = context.rank() == 1;
    for (auto chunks = context.chunks(astray ? Shares : 3); chunks.next();) {
      prims.send(chunks.share(astray ? Share : 0));
      prims.recv(chunks.share(0));
    }
  }
};

/// Rank 1 names itself, and sends itself what it has.
struct ToItself : Forgetful<true, 1> {
  static constexpr const char* name = "ToItself";
  template <class Positions>
  static void peers(Positions& positions) {
    Forgetful<true, 1>::peers(positions);
    if (positions.rank() == 1) positions.to(1);
  }
  template <class Context>
  static void run(AllReduce, Context& context) {
    if (context.rank() != 1) return;
    auto prims = context.template prims<1, 1>({-1}, {1});
    for (auto chunks = context.chunks(1); chunks.next();) prims.send(chunks.all());
  }
};

/// Rank 2 is the end of a chain, and sends on to none.
struct ToNone : Forgetful<true, 1> {
  static constexpr const char* name = "ToNone";
  template <class Context>
  static void run(AllReduce, Context& context) {
    const int rank = context.rank();
    auto prims = context.template prims<1, 1>({rank - 1}, {rank < 2 ? rank + 1 : -1});
    for (auto chunks = context.chunks(1); chunks.next();) {
      if (rank == 0) {
        prims.send(chunks.all());
      } else {
        prims.recv_reduce_copy_send(chunks.all());
      }
    }
  }
};

/// Broadcasts one share after the other. The first shares must not be whole messages.
struct ByShares : Forgetful<true, 1> {
  static constexpr const char* name = "ByShares";
  static inline std::atomic<Index> longest{0};
  template <class Op>
  static constexpr bool supports = std::is_same_v<Op, Broadcast>;
  template <class Context>
  static void run(Broadcast, Context& context) {
    const auto at = context.ring();
    auto prims = context.template prims<1, 1>({at.prev()}, {at.next()});
    for (auto chunks = context.chunks(4); chunks.next();) {
      for (int s = 3; s >= 0; --s) {
        const Part part = chunks.share(s);
        const bool counts = context.root() == 1 && part.count <= 400;
        if (counts) longest = std::max<Index>(longest, part.count);
        if (context.rank() == context.root()) {
          prims.copy_send(part);
        } else if (at.next() == context.root()) {
          prims.recv(part);
        } else {
          prims.recv_copy_send(part);
        }
      }
    }
  }
};

}  // namespace

TEST_CASE("an algorithm that names a missing rank fails on all ranks") {
  check_report_of_rank<false, 3>("has no rank 3");
  check_report_of_rank<true, 1 << 30>("has no rank 1073741824");
  check_report_of_rank<true, -1>("has no rank -1");
}

TEST_CASE("a wire that only one of its ends names is an error on all ranks, which says so") {
  check_refused<AllReduce, Lonely<true>>(
      "wire from rank 1 to rank 0 that its ends do not both name (the algorithm's `peers` calls "
      "positions.to(0) on rank 1, and no positions.from(1) on rank 0)");
  check_refused<AllReduce, Lonely<false>>(
      "positions.from(2) on rank 1, and no positions.to(1) on rank 2");
  check_refused<AllReduce, Lonely<true, true>>(
      "positions.from(1) on rank 0, and on other channels positions.to(0) on rank 1");
}

TEST_CASE("an algorithm that names a missing share fails before any call") {
  check_refused<AllReduce, Beyond<AllReduce, 0, 0>>("cannot cut a message into 0 shares");
  check_refused<AllReduce, Beyond<AllReduce, -7, 0>>("cannot cut a message into -7 shares");
  check_refused<AllReduce, Beyond<AllReduce, 3, 3>>("has no share 3");
  check_refused<AllReduce, Beyond<AllReduce, 3, -1>>("names it on rank 1, and shares are 0 to 2");
  check_refused<AllGather, Beyond<AllGather, 1, 3>>("has no share 3");
  check_refused<ReduceScatter, Beyond<ReduceScatter, 3, 1 << 30>>("has no share 1073741824");
  // Wires of a root are made when it is first named.
  on_all(make(3, checking()), [](const Communicator& comm) -> Result<void> {
    CCL_TRY(const auto wrong, (Over<Broadcast, Beyond<Broadcast, 2, 2>>::create(comm)));
    float x = 1;
    const auto done = wrong(&x, &x, 1, 2);
    CCL_CHECK(expect(!done && done.error().code == Errc::invalid_argument &&
                         done.error().what.find("has no share 2") != std::string::npos,
                     done ? "it was fine" : done.error().message()));
    return comm.barrier();
  });
}

TEST_CASE("a broadcast of one's own may cut its message into shares") {
  on_all(make(3, checking()), [](const Communicator& comm) -> Result<void> {
    CCL_TRY(const auto mine, (Over<Broadcast, ByShares>::create(comm, Plan{1, 2, 4096, 1, 1})));
    for (const int root : {0, 2, 1}) {
      for (const Index count : {0, 1, 5, 400, 100'003}) {
        if (root == 1 && count > 400) continue;
        std::vector<char> x(std::size_t(count), char(comm.rank() + 1));
        CCL_CHECK(mine(x.data(), x.data(), count, root));
        for (const char c : x) CCL_CHECK(expect(c == char(root + 1), "another rank's"));
      }
    }
    return comm.barrier();
  });
  CHECK(ByShares::longest == 128);  // bytes of 400: they are cut at whole lines
}

TEMPLATE_TEST_CASE("the error of an algorithm that uses an undeclared wire names it", "", Simple,
                   LL) {
  check_report_of_wire<Forgetful<false, 1>, TestType>("uses a wire from rank 2", 2);
  check_report_of_wire<Forgetful<true, 1>, TestType>("uses a wire to rank 0", 0);
  check_report_of_wire<Forgetful<false, 2>, TestType>("uses a wire from rank 2", 2);
  check_report_of_wire<Forgetful<true, 2>, TestType>("uses a wire to rank 0", 0);
  for (auto* const forgets : {&Forgetful<false, 1>::forgets_now, &Forgetful<true, 1>::forgets_now,
                              &Forgetful<false, 2>::forgets_now, &Forgetful<true, 2>::forgets_now})
    *forgets = false;
}

TEST_CASE("what an algorithm always does wrong with a wire is found before any call") {
  Forgetful<false, 1>::forgets_now = Forgetful<true, 2>::forgets_now = true;
  check_refused<AllReduce, Forgetful<false, 1>>("uses a wire from rank 2 that was not connected");
  check_refused<AllReduce, Forgetful<true, 2>>("uses a wire to rank 0 that was not connected");
  Forgetful<false, 1>::forgets_now = Forgetful<true, 2>::forgets_now = false;
  check_refused<AllReduce, ToItself>("uses a wire to rank 1 itself (a rank has none to itself)");
}

TEST_CASE("a step without a wire is found before any call") {
  check_refused<AllReduce, ToNone>("on rank 2 sends in a step of prims whose only wire out is -1");
}
