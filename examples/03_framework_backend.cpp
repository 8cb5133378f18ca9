// Communication backend as a framework (PyTorch, JAX, a parameter server) embeds it:
// - types and reductions that are known at run time,
// - tensors with reference-counted storage,
// - calls that return at once with a handle to wait on,
// - several groups, errors and abort.
// Alone it forks four ranks; under torchrun, mpirun or srun it uses theirs. A framework can copy
// everything above `check`.
#include <ccl/any_collective.hpp>
#include <ccl/ccl.hpp>
#include <ccl/comm/launcher.hpp>

#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <memory>
#include <mutex>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

namespace backend {
using ccl::Index;
using ccl::Result;

enum class ScalarType { Byte, Char, Int, Long, Half, BFloat16, Float, Double };
enum class ReduceOp { Sum, Avg, Min, Max };

ccl::DataType data_type(ScalarType type) {
  using enum ccl::DataType;
  constexpr ccl::DataType types[] = {uint8,   int8,     int32,   int64,
                                     float16, bfloat16, float32, float64};
  return types[int(type)];
}
ccl::RedOp red_op(ReduceOp op) {
  constexpr const char* names[] = {"sum", "avg", "min", "max"};
  return names[int(op)];
}

/// Tensor of the framework: shared storage, and its count and type.
struct Tensor {
  std::shared_ptr<std::byte[]> storage;
  Index count = 0;
  ScalarType type = ScalarType::Float;

  static Tensor make(Index count, ScalarType type) {
    const auto bytes = std::size_t(count * size_of(data_type(type)));
    return {std::shared_ptr<std::byte[]>{new std::byte[bytes]}, count, type};
  }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(storage.get());
  }
};

// Code of this program for the data path. More types and reductions take longer to compile, so a
// framework spreads the lists over several files.
using Rings =
    ccl::Candidates<ccl::Candidate<ccl::Ring, ccl::LL>, ccl::Candidate<ccl::Ring, ccl::Simple>>;
using Ring = ccl::Candidates<ccl::Candidate<ccl::Ring, ccl::Simple>>;
using Pairs = ccl::Candidates<ccl::Candidate<ccl::Pairwise, ccl::Simple>>;
using Types = ccl::Types<float, double, std::int64_t, ccl::bfloat16>;
using Ops = ccl::Reductions<ccl::Sum, ccl::Avg, ccl::Max>;
using AllReduce = ccl::AnyCollective<ccl::AllReduce, Rings, Types, Ops>;
using ReduceScatter = ccl::AnyCollective<ccl::ReduceScatter, Ring, Types, Ops>;
using Reduce = ccl::AnyCollective<ccl::Reduce, Ring, Types, Ops>;
using AllGather = ccl::AnyCollective<ccl::AllGather, Rings>;
using Broadcast = ccl::AnyCollective<ccl::Broadcast, Rings>;
using AllToAll = ccl::AnyCollective<ccl::AllToAllV, Pairs>;
using Gather = ccl::AnyCollective<ccl::Gather, Pairs>;
using Scatter = ccl::AnyCollective<ccl::Scatter, Pairs>;
using SendRecv = ccl::AnyCollective<ccl::SendRecv, Pairs>;

/// Operation in flight. Any thread may wait for it.
class Work {
 public:
  bool done() const {
    const std::lock_guard lock{mutex_};
    return done_;
  }
  /// Blocks until the operation ends and returns its result. Fails with `timed_out` if it still
  /// runs after `limit_s` seconds, and does not stop it. The caller may wait again, request a
  /// report or abort.
  Result<void> wait(double limit_s) const {
    std::unique_lock lock{mutex_};
    if (ended_.wait_for(lock, std::chrono::duration<double>{limit_s}, [this] { return done_; })) {
      return result_;
    }
    return ccl::fail(ccl::Errc::timed_out,
                     fmt::format("the operation still runs after {} s", limit_s));
  }
  void finish(Result<void> result) {
    {
      const std::lock_guard lock{mutex_};
      result_ = std::move(result);
      done_ = true;
    }
    ended_.notify_all();
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable ended_;
  bool done_ = false;
  Result<void> result_;
};
using WorkPtr = std::shared_ptr<Work>;

/// Message of `ProcessGroup::batch`.
struct Message {
  bool sends;
  Tensor tensor;
  int peer;
};

/// Group of ranks. Every call returns at once. Operations run in the order of the calls, which must
/// be equal on all ranks; messages have a queue of their own. Buffers may be dropped at once,
/// because queued work keeps their storage alive.
class ProcessGroup {
 public:
  static Result<std::unique_ptr<ProcessGroup>> create(ccl::Communicator comm) {
    std::unique_ptr<ProcessGroup> group{new ProcessGroup{std::move(comm)}};
    CCL_CHECK(group->connect());
    return group;
  }
  /// Without `shutdown` it aborts all running operations on all ranks.
  ~ProcessGroup() {
    if (!shut_) comm_.abort("the group was destroyed");
  }

  int rank() const { return comm_.rank(); }
  int size() const { return comm_.ranks(); }

  WorkPtr all_reduce(Tensor in, Tensor out, ReduceOp op) {
    return run(collectives_, {in, out}, [&](ccl::Stream stream) {
      return (*all_reduce_)(in.storage.get(), out.storage.get(), in.count, data_type(in.type),
                            red_op(op), stream);
    });
  }
  WorkPtr reduce_scatter(Tensor in, Tensor out, ReduceOp op) {
    return run(collectives_, {in, out}, [&](ccl::Stream stream) {
      return (*reduce_scatter_)(in.storage.get(), out.storage.get(), out.count, data_type(in.type),
                                red_op(op), stream);
    });
  }
  WorkPtr reduce(Tensor in, Tensor out, ReduceOp op, int root) {
    return run(collectives_, {in, out}, [&](ccl::Stream stream) {
      return (*reduce_)(in.storage.get(), out.storage.get(), in.count, data_type(in.type),
                        red_op(op), root, stream);
    });
  }
  WorkPtr all_gather(Tensor in, Tensor out) {
    return run(collectives_, {in, out}, [&](ccl::Stream stream) {
      return (*all_gather_)(in.storage.get(), out.storage.get(), in.count, data_type(in.type),
                            stream);
    });
  }
  WorkPtr broadcast(Tensor tensor, int root) {
    return run(collectives_, {tensor}, [&](ccl::Stream stream) {
      return (*broadcast_)(tensor.storage.get(), tensor.storage.get(), tensor.count,
                           data_type(tensor.type), root, stream);
    });
  }
  /// Sends and receives elements of each rank, stored one rank after another.
  WorkPtr all_to_all(Tensor in, const std::vector<Index>& in_counts, Tensor out,
                     const std::vector<Index>& out_counts) {
    return run(collectives_, {in, out}, [&](ccl::Stream stream) {
      return (*all_to_all_)(in.storage.get(), in_counts, offsets(in_counts), out.storage.get(),
                            out_counts, offsets(out_counts), data_type(in.type), stream);
    });
  }
  WorkPtr gather(Tensor in, Tensor out, int root) {
    return run(collectives_, {in, out}, [&](ccl::Stream stream) {
      return (*gather_)(in.storage.get(), out.storage.get(), in.count, data_type(in.type), root,
                        stream);
    });
  }
  WorkPtr scatter(Tensor in, Tensor out, int root) {
    return run(collectives_, {in, out}, [&](ccl::Stream stream) {
      return (*scatter_)(in.storage.get(), out.storage.get(), out.count, data_type(out.type), root,
                         stream);
    });
  }
  WorkPtr barrier() {
    return run(collectives_, {}, [&](ccl::HostStream& stream) -> Result<void> {
      stream.enqueue([comm = comm_] { return comm.barrier(); });
      return {};
    });
  }
  WorkPtr send(Tensor tensor, int peer) { return batch({{true, std::move(tensor), peer}}); }
  WorkPtr recv(Tensor tensor, int peer) { return batch({{false, std::move(tensor), peer}}); }
  /// Runs all messages at once, so that no order here or at the peers can block.
  WorkPtr batch(const std::vector<Message>& messages) {
    std::vector<ccl::AnyMessage> all;
    std::vector<Tensor> keep;
    for (const Message& m : messages) {
      all.push_back(
          {m.sends, m.tensor.storage.get(), m.tensor.count, data_type(m.tensor.type), m.peer});
      keep.push_back(m.tensor);
    }
    return run(messages_, std::move(keep),
               [&](ccl::Stream stream) { return send_recv_->group(all, stream); });
  }

  /// Returns a group of the ranks with the same color, or null for a negative color. Collective.
  Result<std::unique_ptr<ProcessGroup>> split(int color, int key) {
    CCL_TRY(auto part, comm_.split(color, key));
    if (!part) return std::unique_ptr<ProcessGroup>{};
    return create(*std::move(part));
  }
  /// Ends everything on all ranks; their work fails with an error that names this rank.
  void abort(const std::string& why) { comm_.abort(why); }
  /// Returns a report of the rank that delays the others, for a watchdog's log.
  std::string report() const { return comm_.report().text(); }
  /// Ends the group gracefully: runs all queued calls and waits for all ranks.
  Result<void> shutdown() {
    CCL_CHECK(collectives_.synchronize());
    CCL_CHECK(messages_.synchronize());
    CCL_CHECK(comm_.finalize());
    shut_ = true;
    return {};
  }

 private:
  explicit ProcessGroup(ccl::Communicator comm) : comm_{std::move(comm)} {}

  /// Creates all collectives at once. Creation is collective, and not all ranks make the first call
  /// of each.
  Result<void> connect() {
    CCL_TRY(all_reduce_, AllReduce::create(comm_));
    CCL_TRY(reduce_scatter_, ReduceScatter::create(comm_));
    CCL_TRY(reduce_, Reduce::create(comm_));
    CCL_TRY(all_gather_, AllGather::create(comm_));
    CCL_TRY(broadcast_, Broadcast::create(comm_));
    CCL_TRY(all_to_all_, AllToAll::create(comm_));
    CCL_TRY(gather_, Gather::create(comm_));
    CCL_TRY(scatter_, Scatter::create(comm_));
    CCL_TRY(send_recv_, SendRecv::create(comm_));
    return {};
  }

  /// Checks the arguments at once, in `call`, and queues the rest. An operation that fails later
  /// fails its communicator, and so all later work.
  template <class Call>
  WorkPtr run(ccl::HostStream& stream, std::vector<Tensor> keep, Call&& call) {
    auto work = std::make_shared<Work>();
    Result<void> queued = call(stream);
    if (!queued) {
      work->finish(std::move(queued));
      return work;
    }
    stream.enqueue([comm = comm_, work, keep = std::move(keep)]() -> Result<void> {
      work->finish(comm.status());
      return {};
    });
    return work;
  }
  static std::vector<Index> offsets(const std::vector<Index>& counts) {
    std::vector<Index> all(counts.size());
    for (std::size_t i = 1; i < counts.size(); ++i) all[i] = all[i - 1] + counts[i - 1];
    return all;
  }

  ccl::Communicator comm_;
  bool shut_ = false;
  std::optional<AllReduce> all_reduce_;
  std::optional<ReduceScatter> reduce_scatter_;
  std::optional<Reduce> reduce_;
  std::optional<AllGather> all_gather_;
  std::optional<Broadcast> broadcast_;
  std::optional<AllToAll> all_to_all_;
  std::optional<Gather> gather_;
  std::optional<Scatter> scatter_;
  std::optional<SendRecv> send_recv_;
  // last: destroyed before the members that their calls use
  ccl::HostStream collectives_, messages_;
};
}  // namespace backend

// ---- the self-check

using namespace backend;

#define REQUIRE(...)  \
  if (!(__VA_ARGS__)) \
  return ccl::fail(ccl::Errc::internal, fmt::format("line {}: {} is false", __LINE__, #__VA_ARGS__))
constexpr double wait_limit_s = 60;

template <class T>
Tensor filled(Index count, ScalarType type, T value) {
  Tensor tensor = Tensor::make(count, type);
  std::fill_n(tensor.as<T>(), count, value);
  return tensor;
}

Result<void> check_results(ProcessGroup& group) {
  const int me = group.rank(), ranks = group.size();
  const Index n = 10'000;
  const double sum = ranks * (ranks + 1) / 2.0;
  // Several operations are in flight at once. Their inputs are dropped before they have run.
  Tensor floats = Tensor::make(n, ScalarType::Float), longs = Tensor::make(3, ScalarType::Long);
  Tensor halves = Tensor::make(7, ScalarType::BFloat16),
         share = Tensor::make(5, ScalarType::Double);
  Tensor whole = Tensor::make(2 * ranks, ScalarType::Byte);
  const std::vector<WorkPtr> works{
      group.all_reduce(filled(n, ScalarType::Float, float(me + 1)), floats, ReduceOp::Sum),
      group.all_reduce(filled(3, ScalarType::Long, std::int64_t{me}), longs, ReduceOp::Max),
      group.all_reduce(filled(7, ScalarType::BFloat16, ccl::bfloat16(float(2 * me))), halves,
                       ReduceOp::Avg),
      group.reduce_scatter(filled(5 * ranks, ScalarType::Double, me + 1.0), share, ReduceOp::Sum),
      group.all_gather(filled(2, ScalarType::Byte, std::uint8_t(me)), whole)};
  for (const auto& work : works) CCL_CHECK(work->wait(wait_limit_s));
  REQUIRE(floats.as<float>()[n - 1] == float(sum));
  REQUIRE(longs.as<std::int64_t>()[2] == ranks - 1);
  REQUIRE(float(halves.as<ccl::bfloat16>()[6]) == float(ranks - 1));
  REQUIRE(share.as<double>()[4] == sum);
  for (int r = 0; r < ranks; ++r) REQUIRE(whole.as<std::uint8_t>()[2 * r + 1] == r);

  Tensor word = filled(1, ScalarType::Int, me);
  CCL_CHECK(group.broadcast(word, ranks - 1)->wait(wait_limit_s));
  REQUIRE(*word.as<int>() == ranks - 1);
  Tensor total = filled(1, ScalarType::Float, -1.f);
  CCL_CHECK(group.reduce(filled(1, ScalarType::Float, float(me + 1)), total, ReduceOp::Sum, 0)
                ->wait(wait_limit_s));
  REQUIRE(*total.as<float>() == (me == 0 ? float(sum) : -1.f));

  // Rank r sends p + 1 elements to rank p.
  std::vector<Index> sends, recvs(ranks, me + 1);
  for (int p = 0; p < ranks; ++p) sends.push_back(p + 1);
  Tensor got = Tensor::make((me + 1) * ranks, ScalarType::Int);
  CCL_CHECK(
      group.all_to_all(filled(ranks * (ranks + 1) / 2, ScalarType::Int, me), sends, got, recvs)
          ->wait(wait_limit_s));
  for (int p = 0; p < ranks; ++p) REQUIRE(got.as<int>()[p * (me + 1)] == p);

  Tensor all = Tensor::make(ranks, ScalarType::Int), mine = Tensor::make(1, ScalarType::Int);
  CCL_CHECK(group.gather(filled(1, ScalarType::Int, 10 * me), all, 0)->wait(wait_limit_s));
  CCL_CHECK(group.scatter(all, mine, 0)->wait(wait_limit_s));
  REQUIRE(*mine.as<int>() == 10 * me);

  const int next = (me + 1) % ranks, prev = (me + ranks - 1) % ranks;
  Tensor in = Tensor::make(n, ScalarType::Char);
  const auto messages =
      group.batch({{true, filled(n, ScalarType::Char, char(me)), next}, {false, in, prev}});
  CCL_CHECK(group.barrier()->wait(wait_limit_s));  // in the other queue
  CCL_CHECK(messages->wait(wait_limit_s));
  REQUIRE(in.as<char>()[n - 1] == char(prev));
  if (ranks > 1 && me == 0) CCL_CHECK(group.send(word, 1)->wait(wait_limit_s));
  if (ranks > 1 && me == 1) CCL_CHECK(group.recv(word, 0)->wait(wait_limit_s));
  return {};
}

Result<void> check_errors(ProcessGroup& group) {
  // A type that the lists do not hold is an immediate error. The work is complete, and the group
  // continues.
  const Tensor ints = filled(1, ScalarType::Int, 1);
  const auto work = group.all_reduce(ints, ints, ReduceOp::Sum);
  REQUIRE(work->done());
  const auto refused = work->wait(0);
  REQUIRE(!refused && refused.error().code == ccl::Errc::not_supported);
  REQUIRE(refused.error().what.find("it lists float, double, int64, bfloat16") !=
          std::string::npos);
  if (group.size() == 1) return {};

  // One rank never calls. The wait of the others ends, they report the rank that is behind, and one
  // of them aborts.
  CCL_TRY(auto doomed, group.split(0, group.rank()));
  if (doomed->rank() != 0) {
    const auto late = doomed->all_reduce(filled(1, ScalarType::Float, 1.f),
                                         Tensor::make(1, ScalarType::Float), ReduceOp::Sum);
    const auto still = late->wait(0.2);
    REQUIRE(!still);
    if (doomed->rank() == doomed->size() - 1) doomed->abort("rank 0 never came");
    const auto end = late->wait(wait_limit_s);
    REQUIRE(!end && end.error().code == ccl::Errc::aborted);
    REQUIRE(end.error().what.find("rank 0 never came") != std::string::npos);
    if (doomed->rank() == 1) std::printf("as expected: %s\n", end.error().message().c_str());
  }
  return group.barrier()->wait(wait_limit_s);  // this group has not failed
}

Result<void> check(const ccl::Communicator& comm) {
  CCL_TRY(auto world, ProcessGroup::create(comm));
  CCL_CHECK(check_results(*world));
  {
    // Two halves, as for tensor and data parallelism, run at the same time as the whole group.
    CCL_TRY(auto half, world->split(world->rank() % 2, world->rank()));
    Tensor a = filled(1000, ScalarType::Float, 1.f), b = filled(1000, ScalarType::Float, 1.f);
    const auto first = world->all_reduce(a, a, ReduceOp::Sum);
    const auto second = half->all_reduce(b, b, ReduceOp::Sum);
    CCL_CHECK(second->wait(wait_limit_s));
    CCL_CHECK(first->wait(wait_limit_s));
    REQUIRE(a.as<float>()[999] == float(world->size()) && b.as<float>()[0] == float(half->size()));
    CCL_CHECK(check_results(*half));
    CCL_CHECK(half->shutdown());
  }
  CCL_CHECK(check_errors(*world));
  CCL_CHECK(world->shutdown());
  if (comm.rank() == 0) std::printf("%d ranks: all results are right\n", comm.ranks());
  return {};
}

int report_end(const Result<void>& end) {
  if (!end) std::fprintf(stderr, "%s\n", end.error().message().c_str());
  std::fflush(nullptr);
  return end ? 0 : 1;
}

Result<void> run_launched() {
  CCL_TRY(const auto comm, ccl::Communicator::from_env());
  return check(comm);
}
Result<void> run_rank(const ccl::UniqueId& id, int rank, int ranks) {
  CCL_TRY(const auto comm, ccl::Communicator::create(id, rank, ranks));
  return check(comm);
}

int main() {
  const auto launch = ccl::detect_launch();
  if (!launch || launch->launcher != "alone") return report_end(run_launched());
  constexpr int ranks = 4;
  const auto id = ccl::create_unique_id();
  if (!id) return report_end(ccl::fail(id.error()));
  for (int rank = 0; rank < ranks; ++rank) {
    if (fork() == 0) _exit(report_end(run_rank(*id, rank, ranks)));
  }
  int failed = 0;
  for (int status = 0; wait(&status) > 0;) failed += status != 0;
  return failed == 0 ? 0 : 1;
}
