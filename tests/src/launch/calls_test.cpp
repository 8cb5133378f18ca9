#include <ccl/proto/ll.hpp>
#include <ccl/proto/simple.hpp>
#include <ccl/transport/socket.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <latch>
#include <optional>
#include <thread>

#include "comm/state.hpp"
#include "support/collective_suite.hpp"
#include "support/growing_limit.hpp"
#include <sys/wait.h>
#include <unistd.h>

using namespace ccl;
using namespace ccl::test;

namespace {
template <class Op, class Algo>
using Over = Collective<Op, Algo, Simple, LoopbackTransport>;

std::vector<Communicator> make(int ranks, Config config) {
  auto comms = Communicator::create_all(ranks, config);
  REQUIRE(comms.has_value());
  return *std::move(comms);
}
Config checking() {
  Config config;
  config.timeout_s = 60;
  config.check = true;
  return config;
}
Result<void> expect(bool good, const std::string& what) {
  return good ? Result<void>{} : fail(Errc::internal, what);
}
template <class R>
Result<void> is_mismatch(const R& result, std::string_view mentions) {
  return expect(!result && result.error().code == Errc::mismatch &&
                    result.error().what.find(mentions) != std::string::npos,
                result ? "it was fine" : result.error().message());
}

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

TEST_CASE("every rank gets the error of a mismatch, whoever leaves first") {
  for (int again = 0; again < 10; ++again) {
    auto comms = make(5, checking());
    std::vector<std::thread> threads;
    std::vector<Result<void>> results(comms.size()), after(comms.size());
    for (std::size_t r = 0; r < comms.size(); ++r) {
      threads.emplace_back([&, r, comm = std::move(comms[r])]() mutable {
        auto sum = Over<AllReduce, Ring>::create(comm);
        float x[4] = {}, y[4] = {};
        if (sum) results[r] = (*sum)(x, y, r == 2 ? 3 : 4);
        after[r] = comm.status();
        sum = fail(Errc::internal, "dropped");
        comm = detail::Access::communicator(nullptr);  // leaves
      });
    }
    for (auto& t : threads) t.join();
    for (std::size_t r = 0; r < results.size(); ++r) {
      INFO("rank " << r << ": " << (results[r] ? "fine" : results[r].error().message()));
      REQUIRE_FALSE(results[r].has_value());
      CHECK(results[r].error().code == Errc::mismatch);
      REQUIRE_FALSE(after[r].has_value());
      CHECK(after[r].error().code == Errc::mismatch);
    }
  }
}

TEST_CASE("ranks that differ in a failed communicator get its failure") {
  auto comms = make(2, checking());
  detail::CommState& state = *detail::Access::state(comms[0]);
  state.rendezvous.fail_all({Errc::peer_lost, "rank 7 is gone"});
  const auto reported = state.rendezvous.disagree("rank 1 creates another", 1);
  REQUIRE_FALSE(reported);
  CHECK(reported.error().code == Errc::peer_lost);
  CHECK(reported.error().what.find("rank 7 is gone") != std::string::npos);
}

TEST_CASE("ranks that create different compositions get an error") {
  Config config;
  config.timeout_s = config.init_timeout_s = 60;
  on_all(make(3, config), [](const Communicator& comm) -> Result<void> {
    if (comm.rank() == 1) {
      CCL_CHECK(is_mismatch(Over<AllReduce, Tree>::create(comm), "all_reduce/Tree"));
    } else {
      CCL_CHECK(is_mismatch(Over<AllReduce, Ring>::create(comm), "rank 1 creates all_reduce/Tree"));
    }
    return expect(!comm.status().has_value(), "the communicator is well");
  });
}

TEST_CASE("the error of compositions called in another order names them") {
  on_all(make(3, checking()), [](const Communicator& comm) -> Result<void> {
    CCL_TRY(const auto ring, (Over<AllReduce, Ring>::create(comm)));
    CCL_TRY(const auto tree, (Over<AllReduce, Tree>::create(comm)));
    float x = 1;
    const auto first = comm.rank() == 1 ? tree(&x, &x, 1) : ring(&x, &x, 1);
    CCL_CHECK(is_mismatch(first, "calls all_reduce/Tree/Simple/loopback, number 2"));
    return is_mismatch(first, "calls all_reduce/Ring/Simple/loopback, number 1");
  });
}

TEST_CASE("checking that is on on some ranks alone is an error") {
  const auto id = create_unique_id().value();
  std::vector<Result<void>> results(3, fail(Errc::internal, "not run"));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      const auto run = [&]() -> Result<void> {
        Config config;
        config.timeout_s = config.init_timeout_s = 60;
        config.check = rank == 1;
        CCL_TRY(const auto comm, Communicator::create(id, rank, 3, config));
        return is_mismatch(Over<AllReduce, Ring>::create(comm), "CCL_CHECK or Config::check");
      };
      results[std::size_t(rank)] = run();
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& result : results) {
    INFO((result ? std::string{} : result.error().message()));
    CHECK(result.has_value());
  }
}

TEST_CASE("with checking on, messages are compared by the ranks that have them") {
  const auto exchange = [](int sent, int taken) {
    return [sent, taken](const Communicator& comm) -> Result<void> {
      const auto made = Over<SendRecv, Pairwise>::create(comm);
      // A rank that takes no part can get the mismatch at once.
      if (!made && sent != taken && comm.rank() % 2 == 0) return {};
      CCL_TRY(auto pass, made);
      std::vector<int> x(1000, comm.rank()), y(1000, -1);
      for (int call = 0; call < 2; ++call) {  // the other two do not take part
        Result<void> done;
        if (comm.rank() == 1) done = pass.send(x.data(), sent, 3);
        if (comm.rank() == 3) done = pass.recv(y.data(), taken, 1);
        if (sent != taken && comm.rank() == 3) {
          return is_mismatch(
              done, fmt::format("rank 1 sends {} bytes, rank 3 takes {}", 4 * sent, 4 * taken));
        }
        if (sent == taken) CCL_CHECK(done);
      }
      if (comm.rank() == 3) CCL_CHECK(expect(y[99] == 1 && y[100] == -1, "wrong data"));
      return sent == taken ? comm.finalize() : Result<void>{};
    };
  };
  on_all(make(4, checking()), exchange(100, 100));
  on_all(make(4, checking()), exchange(100, 7));
  on_all(make(4, checking()), exchange(7, 100));
}

TEST_CASE("with checking on, the counts of AllToAllV are compared by pairs") {
  for (const Index wrong : {Index{5}, Index{0}, Index{3}}) {
    on_all(make(3, checking()), [wrong](const Communicator& comm) -> Result<void> {
      const auto made = Over<AllToAllV, Pairwise>::create(comm);
      // The other two may be further than this rank, and have failed.
      if (!made && wrong != 3 && comm.rank() == 1) return is_mismatch(made, "rank 2 takes");
      CCL_TRY(auto swap, made);
      const std::vector<Index> offsets{0, 10, 20};
      std::vector<Index> out{3, 3, 3}, in{3, 3, 3};
      if (comm.rank() == 2) in[0] = wrong;
      std::vector<int> x(30, 1), y(30, 0);
      const auto done = swap(x.data(), out, offsets, y.data(), in, offsets);
      if (wrong == 3) return done;
      if (comm.rank() == 2) {
        CCL_CHECK(
            is_mismatch(done, fmt::format("rank 0 sends 12 bytes, rank 2 takes {}", 4 * wrong)));
      }
      // The other ranks can have completed by then, but they get the error.
      while (comm.status()) std::this_thread::yield();
      return is_mismatch(comm.status(), "rank 2 takes");
    });
  }
}

TEST_CASE("a forked process gets an error, because the communicator is not its own") {
  Config config;
  config.timeout_s = 60;
  const auto comms = make(2, config);
  std::vector<Result<Over<AllReduce, Ring>>> sums(2, fail(Errc::internal, "not created"));
  on_all(comms, [&](const Communicator& comm) -> Result<void> {
    auto& mine = sums[std::size_t(comm.rank())];
    mine = Over<AllReduce, Ring>::create(comm);
    return mine ? Result<void>{} : fail(mine.error());
  });
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    float x = 1;
    const auto misuse = [](const auto& r) {
      return !r && r.error().code == Errc::invalid_usage &&
             r.error().what.find("create one after fork") != std::string::npos;
    };
    const bool reported = misuse((*sums[0])(&x, &x, 1)) && misuse(comms[0].barrier()) &&
                          misuse(comms[0].finalize()) && misuse(comms[1].split(0, 0));
    ::_exit(reported ? 0 : 1);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  on_all(comms, [&](const Communicator& comm) -> Result<void> {
    float x = 1;
    CCL_CHECK((*sums[std::size_t(comm.rank())])(&x, &x, 1));
    CCL_CHECK(expect(x == 2, "wrong sum"));
    return comm.finalize();
  });
}

TEST_CASE("a forked process that drops its parent's handles leaves the parent's ranks alone") {
  using Network = Collective<AllReduce, Ring, Simple, SocketTransport>;
  auto comms = make(2, checking());
  std::vector<std::optional<Network>> sums(2);
  const auto sum = [&](const Communicator& comm) -> Result<void> {
    auto& mine = sums[std::size_t(comm.rank())];
    if (!mine) {
      CCL_TRY(mine, Network::create(comm));
    }
    float x = 1;
    CCL_CHECK((*mine)(&x, &x, 1));
    return expect(x == 2, "wrong sum");
  };
  on_all(comms, sum);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    comms[0].abort("a child's whim");
    const bool silent = comms[1].report().ranks.empty();
    const auto waited = comms[1].wait();
    const bool reported = !waited && waited.error().code == Errc::invalid_usage;
    sums.clear();
    comms.clear();
    ::_exit(silent && reported ? 0 : 1);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  on_all(comms, [&](const Communicator& comm) -> Result<void> {
    for (int i = 0; i < 3; ++i) CCL_CHECK(sum(comm));
    return comm.finalize();
  });
}

TEST_CASE("a rank that is late for a barrier or the end is no error, but for CCL_TIMEOUT") {
  Config config;
  config.check = true;
  config.timeout_s = 0;
  const auto with_late_rank = [&](double init_s) {  // in which ranks must find each other
    config.init_timeout_s = init_s;
    const auto comms = Communicator::create_all(2, config);
    if (!comms) return comms.error().message();
    const auto late = [&] {
      std::this_thread::sleep_for(std::chrono::duration<double>{1.6 * init_s});
    };
    return first_problem(on_ranks(*comms, [&](const Communicator& comm) -> Result<void> {
      CCL_TRY(auto sum, (Over<AllReduce, Ring>::create(comm)));
      float x = 1;
      if (comm.rank() == 1) late();
      CCL_CHECK(sum(&x, &x, 1));
      if (comm.rank() == 1) late();
      CCL_CHECK(comm.barrier());
      if (comm.rank() == 1) late();
      return comm.finalize();
    }));
  };
  CHECK(with_growing_limit(0.25, with_late_rank) == "");
  config.init_timeout_s = 60;
  config.timeout_s = 0.3;
  on_all(make(2, config), [](const Communicator& comm) -> Result<void> {
    if (comm.rank() == 1) {
      while (comm.status()) std::this_thread::yield();
      return expect(comm.status().error().code == Errc::timed_out, "another failure");
    }
    const auto joined = comm.barrier();
    CCL_CHECK(expect(!joined && joined.error().code == Errc::timed_out, "no time-out"));
    CCL_CHECK(expect(joined.error().peer == 1, joined.error().message()));
    return expect(joined.error().what.find("CCL_TIMEOUT") != std::string::npos,
                  joined.error().what);
  });
}
