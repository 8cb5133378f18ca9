// ccl_over_tcp OPS BEGIN END ROUNDS [all|ccl|mpi]: ccl's collectives on CPU ranks and MPI's, in one
// process and in turns. mpirun starts it (see over_tcp.sh). OPS are names separated by commas.
// `all` adds each of ccl's compositions; `ccl` and `mpi` select one side.
//
// Rank 0 prints a line of JSON for each operation, size and side. It has the microseconds of a call
// in each round: calls in a row, on the slowest rank.
#include <ccl/ccl.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <mpi.h>

using namespace ccl;

namespace {

/// Buffers of one operation. Its size is that of the larger buffer.
struct Buffers {
  Index count;  // floats of the call's `count`
  std::vector<float> in, out;
};

/// Side of the comparison: it runs the operation, and keeps the time of each round.
struct EdgeSide {
  std::string name;
  std::function<Result<void>(Buffers&)> call;
  std::function<std::string(Index)> choice = [](Index) { return std::string{}; };
  std::vector<double> us{};
};

struct Options {
  std::string_view ops;
  Index begin = 8, end = 8;
  int rounds = 5;
  std::string_view sides;
};

template <class Op>
Result<void> mpi_call(Buffers& b, int rank, int ranks) {
  const int n = int(b.count);
  float* const in = b.in.data();
  float* const out = b.out.data();
  const MPI_Comm world = MPI_COMM_WORLD;
  if constexpr (std::is_same_v<Op, AllReduce>) {
    MPI_Allreduce(in, out, n, MPI_FLOAT, MPI_SUM, world);
  } else if constexpr (std::is_same_v<Op, AllGather>) {
    MPI_Allgather(in, n, MPI_FLOAT, out, n, MPI_FLOAT, world);
  } else if constexpr (std::is_same_v<Op, ReduceScatter>) {
    MPI_Reduce_scatter_block(in, out, n, MPI_FLOAT, MPI_SUM, world);
  } else if constexpr (std::is_same_v<Op, Broadcast>) {
    MPI_Bcast(rank == 0 ? in : out, n, MPI_FLOAT, 0, world);
  } else if constexpr (std::is_same_v<Op, Reduce>) {
    MPI_Reduce(in, out, n, MPI_FLOAT, MPI_SUM, 0, world);
  } else if constexpr (std::is_same_v<Op, AllToAll>) {
    MPI_Alltoall(in, n, MPI_FLOAT, out, n, MPI_FLOAT, world);
  } else {
    MPI_Sendrecv(in, n, MPI_FLOAT, (rank + 1) % ranks, 0, out, n, MPI_FLOAT,
                 (rank + ranks - 1) % ranks, 0, world, MPI_STATUS_IGNORE);
  }
  return {};
}

template <class Op, class C>
Result<void> ccl_call(const C& call, Buffers& b, int rank, int ranks) {
  const float* const in = b.in.data();
  float* const out = b.out.data();
  if constexpr (std::is_same_v<Op, Broadcast>) {
    return call(in, out, b.count, 0);
  } else if constexpr (std::is_same_v<Op, Reduce>) {
    return call(in, out, b.count, Sum{}, 0);
  } else if constexpr (std::is_same_v<Op, SendRecv>) {
    return call(in, b.count, (rank + 1) % ranks, out, b.count, (rank + ranks - 1) % ranks);
  } else {
    return call(in, out, b.count);
  }
}

template <class Op>
Buffers buffers(Index bytes, int ranks) {
  constexpr bool shared_out =
      is_one_of<Op, AllGather, ReduceScatter, AllToAll>;  // parts of the message
  const Index all = std::max(bytes / Index{sizeof(float)}, Index{1});
  const Index count = shared_out ? std::max(all / ranks, Index{1}) : all;
  const auto size = std::size_t(shared_out ? count * ranks : count);
  return {count, std::vector<float>(size, 1.f), std::vector<float>(size, -1.f)};
}

/// True if `out` holds the expected result.
template <class Op>
bool right(const Buffers& b, int rank, int ranks) {
  const float want = Op::reduces ? float(ranks) : 1.f;
  // MPI leaves the root's data in its input
  if (std::is_same_v<Op, Broadcast> && rank == 0) return true;
  if (std::is_same_v<Op, Reduce> && rank != 0) return true;
  const std::size_t filled =
      std::is_same_v<Op, ReduceScatter> ? std::size_t(b.count) : b.out.size();
  return std::all_of(b.out.begin(), b.out.begin() + std::ptrdiff_t(filled),
                     [want](float x) { return x == want; });
}

Result<double> slowest_us(int calls, EdgeSide& side, Buffers& b) {
  using Clock = std::chrono::steady_clock;
  MPI_Barrier(MPI_COMM_WORLD);
  CCL_CHECK(side.call(b));  // the first call runs with cold caches
  MPI_Barrier(MPI_COMM_WORLD);
  const auto begin = Clock::now();
  for (int k = 0; k < calls; ++k) CCL_CHECK(side.call(b));
  double us = std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / calls;
  MPI_Allreduce(MPI_IN_PLACE, &us, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return us;
}

template <class Op, class... Algos>
Result<void> compare(const Communicator& comm, const Options& options) {
  if (("," + std::string{options.ops} + ",").find(fmt::format(",{},", Op::name)) ==
      std::string::npos) {
    return {};
  }
  const int rank = comm.rank(), ranks = comm.ranks();
  std::vector<EdgeSide> sides;
  if (options.sides != "ccl")
    sides.push_back({"mpi", [=](Buffers& b) { return mpi_call<Op>(b, rank, ranks); }});
  CCL_TRY(const auto chosen,
          (Collective<Op, AutoOf<Candidate<Algos, Simple>...>, Auto>::create(comm)));
  if (options.sides != "mpi")
    sides.push_back({"ccl", [=](Buffers& b) { return ccl_call<Op>(chosen, b, rank, ranks); },
                     [=](Index bytes) { return chosen.plan(bytes).composition; }});
  Result<void> made;
  const auto add = [&]<class Algo>(std::type_identity<Algo>) {
    if (options.sides != "all" || !made) return;
    auto call = Collective<Op, Algo, Simple>::create(comm);
    if (!call) {
      made = fail(std::move(call).error());
      return;
    }
    sides.push_back({Algo::name, [call = *call, rank, ranks](Buffers& b) {
                       return ccl_call<Op>(call, b, rank, ranks);
                     }});
  };
  (add(std::type_identity<Algos>{}), ...);
  CCL_CHECK(made);
  for (Index bytes = options.begin; bytes <= options.end;
       bytes = bytes < options.end ? std::min(bytes * 8, options.end) : bytes + 1) {
    Buffers b = buffers<Op>(bytes, ranks);
    for (EdgeSide& side : sides) {
      side.us.clear();
      std::fill(b.out.begin(), b.out.end(), -1.f);
      CCL_CHECK(side.call(b));
      if (!right<Op>(b, rank, ranks)) {
        return fail(Errc::internal, fmt::format("{} of {} bytes by {} is wrong on rank {}",
                                                Op::name, bytes, side.name, rank));
      }
    }
    for (int round = 0; round < options.rounds; ++round) {
      for (EdgeSide& side : sides) {
        CCL_TRY(const double guess, slowest_us(bytes < (1 << 20) ? 4 : 1, side, b));
        CCL_TRY(const double us, slowest_us(int(std::clamp(25e3 / guess, 2.0, 1000.0)), side, b));
        side.us.push_back(us);
      }
    }
    for (const EdgeSide& side : sides) {
      if (rank != 0) break;
      fmt::print(R"({{"op": "{}", "ranks": {}, "bytes": {}, "side": "{}", "choice": "{}", )"
                 R"("us": [{:.2f}]}})"
                 "\n",
                 Op::name, ranks, bytes, side.name, side.choice(bytes), fmt::join(side.us, ", "));
      std::fflush(stdout);
    }
  }
  return {};
}

Result<void> body(const Options& options) {
  Config config;
  config.device = Config::cpu;
  CCL_TRY(const auto comm, Communicator::from_env(config));
  CCL_CHECK((compare<Broadcast, Ring, Pat>(comm, options)));
  CCL_CHECK((compare<Reduce, Ring, Pat, Tree>(comm, options)));
  CCL_CHECK((compare<SendRecv, Pairwise>(comm, options)));
  CCL_CHECK((compare<AllReduce, Doubling, Ring, Tree>(comm, options)));
  CCL_CHECK((compare<AllGather, Bruck, Doubling, Ring, Pat>(comm, options)));
  CCL_CHECK((compare<ReduceScatter, Ring, Pat, Halving>(comm, options)));
  CCL_CHECK((compare<AllToAll, Pairwise>(comm, options)));
  return comm.finalize();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) {
    fmt::print(stderr, "ccl_over_tcp OPS BEGIN END ROUNDS [all|ccl|mpi]\n");
    return 2;
  }
  MPI_Init(&argc, &argv);
  const auto done = body({argv[1], std::atol(argv[2]), std::atol(argv[3]), std::atoi(argv[4]),
                          argc > 5 ? argv[5] : ""});
  if (!done) {
    fmt::print(stderr, "{}\n", done.error().message());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return 0;
}
