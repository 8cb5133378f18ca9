#include <ccl/algo/halving.hpp>
#include <ccl/algo/pairwise.hpp>
#include <ccl/algo/pat.hpp>
#include <ccl/collective.hpp>
#include <ccl/proto/simple.hpp>

#include <fmt/format.h>

#include <limits>

#include "support/calls/rings.hpp"
#include "support/loopback_ranks.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
template <class Op, class Algo>
using Over = Collective<Op, Algo, Simple, LoopbackTransport>;

Result<void> refused(const Result<void>& result, std::string_view mentions) {
  if (!result && result.error().code == Errc::invalid_argument &&
      result.error().message().find(mentions) != std::string::npos) {
    return {};
  }
  return fail(Errc::internal, fmt::format("\"{}\" instead of \"{}\"",
                                          result ? "fine" : result.error().message(), mentions));
}
}  // namespace

TEST_CASE("counts that no memory holds are refused, and named as they were given") {
  on_all(make(4), [](const Communicator& comm) -> Result<void> {
    CCL_TRY(auto sum, (RingSums::create(comm, Via::loopback)));
    CCL_TRY(auto gather, (Over<AllGather, Pat>::create(comm)));
    CCL_TRY(auto scatter, (Over<ReduceScatter, Pat>::create(comm)));
    CCL_TRY(auto swap, (Over<AllToAll, Pairwise>::create(comm)));
    CCL_TRY(auto collect, (Over<Gather, Pairwise>::create(comm)));
    CCL_TRY(auto root_scatter, (Over<Scatter, Pairwise>::create(comm)));
    char x[4] = {}, y[4] = {};
    float u[4] = {}, v[4] = {};
    constexpr Index most = std::numeric_limits<Index>::max();
    // 1 << 62 bytes for each of four ranks are none at all in 64 bits.
    for (const Index n : {Index{-1}, Index{1} << 60, Index{1} << 62, most / 4, most, -most - 1}) {
      const std::string count = fmt::format("count {} of", n);
      CCL_CHECK(refused(sum(u, v, n), count));
      CCL_CHECK(refused(gather(x, y, n), count));
      CCL_CHECK(refused(scatter(x, y, n), count));
      CCL_CHECK(refused(swap(x, y, n), count));
      CCL_CHECK(refused(collect(x, y, n, comm.rank()), count));
      CCL_CHECK(refused(root_scatter(x, y, n, comm.rank()), count));
    }
    return comm.barrier();
  });
}

TEST_CASE("a rank that is not in the communicator is refused, and is no peer of the error") {
  on_all(make(2), [](const Communicator& comm) -> Result<void> {
    CCL_TRY(auto messages, (Over<SendRecv, Pairwise>::create(comm)));
    CCL_TRY(auto broadcast, (Over<Broadcast, Pat>::create(comm)));
    float x[4] = {}, y[4] = {};
    for (const int none : {-3, -1, 2, 7}) {
      const std::string text = fmt::format(
          "rank {} is not in the communicator (it has ranks 0 to 1); give one of these", none);
      for (const Result<void>& done :
           {messages(x, 4, comm.rank(), y, 4, none), messages(x, 4, none, y, 4, comm.rank()),
            broadcast(x, y, 4, none)}) {
        CCL_CHECK(refused(done, text));
        if (done.error().peer != -1 || done.error().rank != comm.rank()) {
          return fail(Errc::internal, done.error().message());
        }
      }
    }
    return comm.barrier();
  });
}

TEST_CASE("a GPU's buffers are aligned to their elements, or refused") {
  const std::vector<Communicator> alone = make(1);
  alignas(16) char memory[32] = {};
  const auto check = [&](Index send, Index recv, int align) {
    return detail::check_aligned(alone[0], memory + send, memory + recv, align);
  };
  CHECK(check(0, 16, 16));
  CHECK(check(4, 8, 4));
  CHECK(check(3, 7, 1));
  CHECK(detail::check_aligned(alone[0], memory + 2, nullptr, 2));
  CHECK(refused(check(0, 6, 4), "(multiples of 4 bytes); give buffers that are"));
  CHECK(refused(check(8, 0, 16), "not both aligned"));
}

TEST_CASE("buffers that overlap are refused, except where the operation runs in place") {
  on_all(make(3), [](const Communicator& comm) -> Result<void> {
    CCL_TRY(auto sum, (RingSums::create(comm, Via::loopback)));
    CCL_TRY(auto gather, (Over<AllGather, Pat>::create(comm)));
    CCL_TRY(auto scatter, (Over<ReduceScatter, Pat>::create(comm)));
    CCL_TRY(auto to_all, (Over<Broadcast, Pat>::create(comm)));
    CCL_TRY(auto to_root, (Over<Reduce, Pat>::create(comm)));
    CCL_TRY(auto collect, (Over<Gather, Pairwise>::create(comm)));
    CCL_TRY(auto root_scatter, (Over<Scatter, Pairwise>::create(comm)));
    const int me = comm.rank();
    std::vector<int> data(64, 1);
    int* x = data.data();
    const auto overlap = "overlap";
    CCL_CHECK(refused(sum(x, x + 1, 8), overlap));
    CCL_CHECK(refused(sum(x + 7, x, 8), overlap));
    CCL_CHECK(refused(gather(x + 8 * me + 1, x, 8), overlap));
    CCL_CHECK(refused(scatter(x, x + 8 * me + 1, 8), overlap));
    CCL_CHECK(refused(to_all(x, x + 1, 8, me), overlap));
    CCL_CHECK(refused(to_root(x, x + 1, 8, Sum{}, me), overlap));
    CCL_CHECK(refused(collect(x + 8 * me + 1, x, 8, me), overlap));
    CCL_CHECK(refused(root_scatter(x, x + 8 * me + 1, 8, me), overlap));
    // Apart, if only just; in place; and nothing at all.
    CCL_CHECK(sum(x, x + 8, 8));
    CCL_CHECK(sum(x, x, 8));
    CCL_CHECK(sum(x, x + 1, 0));
    CCL_CHECK(gather(x + 8 * me, x, 8));
    CCL_CHECK(scatter(x, x + 8 * me, 8));
    CCL_CHECK(to_all(x, x, 8, 1));
    CCL_CHECK(to_root(x, me == 1 ? x : x + 1, 8, Sum{}, 1));  // what the others give is not touched
    CCL_CHECK(collect(x + 8 * me, x, 8, 1));
    CCL_CHECK(root_scatter(x, x + 8 * me, 8, 1));
    return comm.finalize();
  });
}

TEST_CASE("messages of all_to_all_v that come where others leave from are refused") {
  on_all(make(3), [](const Communicator& comm) -> Result<void> {
    CCL_TRY(auto swap, (Over<AllToAllV, Pairwise>::create(comm)));
    const int me = comm.rank();
    std::vector<int> x(64, me);
    using Counts = std::vector<Index>;
    const auto call = [&](const Counts& out, const Counts& from, const Counts& in,
                          const Counts& to) { return swap(x.data(), out, from, x.data(), in, to); };
    const auto overlap = "overlap";
    const Counts four{4, 4, 4};
    CCL_CHECK(refused(call(four, {0, 4, 8}, four, {0, 4, 8}), overlap));
    CCL_CHECK(refused(call(four, {0, 4, 8}, four, {20, 11, 30}), overlap));
    CCL_CHECK(refused(call(four, {0, 0, 20}, four, {23, 40, 50}), overlap));
    // Data of two ranks, with their names.
    CCL_CHECK(refused(call(four, {0, 4, 8}, four, {20, 23, 40}), "rank 0 at"));
    CCL_CHECK(refused(call(four, {0, 4, 8}, {4, 4, 9}, {30, 20, 22}), "rank 2 at"));
    CCL_CHECK(refused(call({0, 0, 0}, {0, 0, 0}, four, {20, 20, 20}), overlap));
    // A long range that begins before a short one.
    Counts out{1, 1, 1};
    out[std::size_t((me + 1) % 3)] = 20;
    Counts from{2, 2, 2};
    from[std::size_t((me + 1) % 3)] = 0;
    CCL_CHECK(refused(call(out, from, four, {30, 40, 16}), overlap));
    // The share of this rank may stay, and not move by a bit.
    Counts to{20, 30, 40};
    to[std::size_t(me)] = 4 * me + 1;
    CCL_CHECK(refused(call(four, {0, 4, 8}, four, to), overlap));
    to[std::size_t(me)] = 4 * me;
    CCL_CHECK(call(four, {0, 4, 8}, four, to));
    // Between each other, if only just; nothing at all lies anywhere.
    CCL_CHECK(call(four, {0, 8, 16}, four, {4, 12, 20}));
    CCL_CHECK(call({0, 0, 0}, {0, 1, 2}, {0, 0, 0}, {1, 0, 1}));
    Counts own(3, 0);
    own[std::size_t(me)] = 4;
    CCL_CHECK(call(own, {0, 0, 0}, own, {4, 4, 4}));
    return comm.finalize();
  });
}

TEST_CASE("a rank receives all that it sends itself, or gets an error") {
  for (const int ranks : {1, 3}) {
    on_all(make(ranks), [](const Communicator& comm) -> Result<void> {
      using Pass = Over<SendRecv, Pairwise>;
      CCL_TRY(auto pass, Pass::create(comm));
      const int me = comm.rank(), x[4] = {1, 2, 3, 4};
      int y[4] = {};
      const auto differs = [](const Result<void>& result,
                              std::string_view mentions) -> Result<void> {
        if (!result && result.error().code == Errc::mismatch &&
            result.error().message().find(mentions) != std::string::npos) {
          return {};
        }
        return fail(Errc::internal, result ? "fine" : result.error().message());
      };
      const auto out = [&](Index n) { return Pass::send_message(x, n, me); };
      const auto in = [&](Index n) { return Pass::recv_message(y, n, me); };
      CCL_CHECK(differs(pass.group({out(4)}), "sends itself 1 messages and takes 0"));
      CCL_CHECK(differs(pass.group({in(4)}), "sends itself 0 messages and takes 1"));
      CCL_CHECK(differs(pass.group({in(4), out(2)}), "sends itself 8 bytes and takes 16"));
      // An empty message has no other end.
      CCL_CHECK(pass.group({out(0), out(4), in(4)}));
      if (y[0] != 1 || y[3] != 4) return fail(Errc::internal, "lost");
      CCL_CHECK(pass.group({in(0)}));
      CCL_TRY(auto swap, (Over<AllToAllV, Pairwise>::create(comm)));
      std::vector<Index> given(std::size_t(comm.ranks()), 0), taken = given, begin = given;
      given[std::size_t(me)] = 2;
      CCL_CHECK(differs(swap(x, given, begin, y, taken, begin), "sends itself 8 bytes"));
      return comm.finalize();
    });
  }
}

TEST_CASE("messages of send_recv that come where others come or leave from are refused") {
  on_all(make(3), [](const Communicator& comm) -> Result<void> {
    CCL_TRY(auto pass, (Over<SendRecv, Pairwise>::create(comm)));
    const int me = comm.rank(), next = (me + 1) % 3, last = (me + 2) % 3;
    std::vector<int> data(64, me);
    int* const x = data.data();
    const auto overlap = "overlap";
    const auto send = [&](int at, Index n, int to) { return pass.send_message(x + at, n, to); };
    const auto recv = [&](int at, Index n, int from) { return pass.recv_message(x + at, n, from); };
    CCL_CHECK(refused(pass(x, 8, next, x, 8, last), overlap));
    CCL_CHECK(refused(pass(x, 8, next, x + 7, 8, last), overlap));
    CCL_CHECK(refused(pass.group({recv(0, 8, last), recv(7, 8, next)}), "from rank"));
    CCL_CHECK(refused(pass.group({send(0, 8, me), recv(1, 8, me)}), overlap));
    // Apart, if only just; one buffer to all; a message to itself that stays; nothing at all.
    CCL_CHECK(pass(x, 8, next, x + 8, 8, last));
    CCL_CHECK(pass.group({send(0, 8, next), send(0, 8, last), send(30, 8, me), recv(30, 8, me),
                          recv(12, 8, last), recv(20, 8, next)}));
    CCL_CHECK(pass(x, 0, next, x, 0, last));
    return comm.finalize();
  });
}

TEST_CASE("the error of an impossible plan names the rule that it breaks") {
  const std::pair<Plan, const char*> broken[] = {
      {{0, 8, 256, 1, 1}, "cannot be: channels are 1 to 4096"},
      {{1, 6, 256, 1, 1}, "cannot be: slots are a power of two, and at least 2"},
      {{1, 8, 200, 1, 1}, "cannot be: slot bytes are a multiple of 128"},
      {{1, 8, 256, 0, 1}, "cannot be: steps of a slice are a power of two"},
      {{1, 8, (Index{1} << 30) + 128, 1, 1}, "cannot be: a slice is at most 1 GiB"},
      {{1, 8, Index{1} << 29, 4, 4}, "cannot be: a slice is at most 1 GiB"},
      {{1, 16, Index{1} << 28, 1, 8}, "cannot be: a chunk is at most 1 GiB"},
      {{1, 8, 256, 2, 3}, "cannot be: a chunk is one slice or several whole ones"},
      {{1, 8, 256, 1, 1, -1}, "cannot be: bytes of a channel are not below 0"}};
  on_all(make(2), [&](const Communicator& comm) -> Result<void> {
    for (const auto& [plan, rule] : broken) {
      const auto made = RingSums::create(comm, Via::loopback, plan);
      CCL_CHECK(refused(made ? Result<void>{} : Result<void>{fail(made.error())}, rule));
    }
    return comm.finalize();
  });
}

TEST_CASE("a plan of whose chunks no wire holds two is refused; the fullest runs") {
  on_all(make(6), [](const Communicator& comm) -> Result<void> {
    const int most = std::numeric_limits<int>::max();
    for (const Plan plan :
         {Plan{1, 8, 256, 4, 8}, Plan{1, 8, 256, 1, 8}, Plan{1, 8, 256, 1, 5},
          Plan{1, 4, 256, 2, 16}, Plan{1, 2, 256, 2, 2}, Plan{1, 8, 256, 1, most}}) {
      const auto made = RingSums::create(comm, Via::loopback, plan);
      const Result<void> said = made ? Result<void>{} : Result<void>{fail(made.error())};
      CCL_CHECK(refused(said, "at least two chunks"));
    }
    // Ranks send a chunk before they receive; a wire that holds no more would block all of them.
    for (const Plan plan : {Plan{1, 2, 256, 1, 1}, Plan{1, 8, 256, 1, 4}, Plan{1, 8, 256, 4, 4},
                            Plan{2, 8, 256, 2, 4}}) {
      CCL_TRY(const auto sums, RingSums::create(comm, Via::loopback, plan));
      CCL_TRY(const auto parts, (Over<ReduceScatter, Halving>::create(comm, plan)));
      std::vector<float> data(6000, 1), part(1000);
      CCL_CHECK(sums(data.data(), data.data(), 6000));
      CCL_CHECK(parts(data.data(), part.data(), 1000));
      if (data.back() != 6 || part.back() != 36) return fail(Errc::internal, "wrong sum");
    }
    return comm.finalize();
  });
}

TEST_CASE("a plan that cannot be on one rank is refused on all") {
  on_all(make(2), [](const Communicator& comm) -> Result<void> {
    const auto made = RingSums::create(comm, Via::loopback, Plan{1, comm.rank() == 1 ? 6 : 8, 256});
    const char* const said = comm.rank() == 1 ? "cannot be: slots are a power of two"
                                              : "is refused by rank 1 (a plan of 1 channels";
    CCL_CHECK(refused(made ? Result<void>{} : Result<void>{fail(made.error())}, said));
    CCL_CHECK(comm.status());
    return comm.finalize();
  });
}

TEST_CASE("plans that differ between ranks are refused on all, and named") {
  on_all(make(2), [](const Communicator& comm) -> Result<void> {
    const int slots = comm.rank() == 0 ? 2 : 4;
    const auto made = RingSums::create(comm, Via::loopback, Plan{1, slots, 256, 1, 1});
    if (made || made.error().code != Errc::mismatch ||
        made.error().what.find("slots of 256 bytes; give the same plan") == std::string::npos) {
      return fail(Errc::internal, made ? "made" : made.error().message());
    }
    CCL_CHECK(comm.status());
    return comm.finalize();
  });
}

TEST_CASE("plans whose wires are alike and whose rounds differ are refused on all") {
  on_all(make(3), [](const Communicator& comm) -> Result<void> {
    const Plan plan{1, 8, 256, 1, 1};
    for (const Plan other : {Plan{2, 8, 256, 1, 1}, Plan{1, 8, 256, 2, 2}, Plan{1, 8, 256, 1, 4},
                             Plan{1, 8, 256, 1, 1, 512}}) {
      const auto made = RingSums::create(comm, Via::loopback, comm.rank() == 1 ? other : plan);
      if (made || made.error().code != Errc::mismatch ||
          made.error().peer != (comm.rank() == 1 ? 0 : 1)) {
        return fail(Errc::internal, made ? "made" : made.error().message());
      }
      CCL_CHECK(comm.status());
    }
    return comm.finalize();
  });
}
