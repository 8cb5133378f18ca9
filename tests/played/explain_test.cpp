// `ccl_perf --explain` by kernels of traced forms, on GPUs that are played on the CPU.
#include "support/played/played_gpus.hpp"
// Kernels come before other headers of ccl.
#include <ccl/algo/pairwise.hpp>
#include <ccl/algo/ring.hpp>
#include <ccl/collective.cuh>
#include <ccl/detail/base/cpu.hpp>
#include <ccl/traced.hpp>

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "explain_gpu.hpp"
#include "support/played/calls.hpp"
#include "wire_runner.hpp"

using namespace ccl;
using namespace ccl::test;

namespace ccl::perf {
namespace {
template <class Op, class Algo>
EntryFacts facts() {
  EntryFacts of{{Algo::name, Simple::name}, false, {}};
  of.facts.cost_terms = &Algo::template cost_terms<Op>;
  return of;
}
}  // namespace

// The compositions of this program, and what the others of ccl_perf need.
std::span<const Entry> all_entries() {
  static constexpr Entry entries[] = {
      {AllReduce::name, Ring::name, Simple::name, &make_runner<AllReduce, Traced<Ring>, Simple>,
       &facts<AllReduce, Ring>},
      {SendRecv::name, Pairwise::name, Simple::name, &make_runner<SendRecv, Pairwise, Simple>,
       &facts<SendRecv, Pairwise>}};
  return entries;
}
std::span<const TracedEntry> traced_entries() {
  static constexpr TracedEntry entries[] = {
      {AllReduce::name, Ring::name, Simple::name, &make_runner<AllReduce, Traced<Ring>, Simple>}};
  return entries;
}
int gpu::communicator_device(int device) {
  return device;
}
Result<std::byte*> gpu::allocate(Index bytes) {
  return static_cast<std::byte*>(std::aligned_alloc(4096, std::size_t(bytes)));
}
}  // namespace ccl::perf

namespace {
constexpr int multiprocessors = 2, late_rank = 1, slots = 4;
constexpr Index count = 100'000, slot_bytes = 32 << 10, large_bytes = 1 << 20;
std::chrono::milliseconds late{20};  // of one rank in each call
constexpr long long clock_late_ns = 5'000'000'000;

/// Stream of a played GPU, with the functions that an explanation needs.
class PlayedQueue final : public perf::gpu::Queue {
 public:
  PlayedQueue(const played::Rank& rank, bool clock_is_late)
      : rank_{rank}, clock_is_late_{clock_is_late} {}
  Stream stream() const override { return rank_.stream; }
  void* native() const override { return rank_.stream; }
  Result<void> wait() override {
    rank_.synchronize();
    return {};
  }
  Result<long long> lane_clock_ns() override {
    const auto system = std::chrono::system_clock::now().time_since_epoch();
    return std::chrono::nanoseconds{system}.count() - static_cast<long long>(detail::steady_ns()) +
           (clock_is_late_ ? clock_late_ns : 0);
  }

  using Void = Result<void>;
  Void fill_values(DataType, perf::RedOp, int, int, Index, std::byte*) override { return none(); }
  Void fill_moved(int, Index, std::byte*) override { return none(); }
  Void poison(std::byte*, Index) override { return none(); }
  Result<Index> count_values(DataType, perf::RedOp, int, Index, Index, const std::byte*) override {
    return none();
  }
  Result<Index> count_moved(const perf::Piece&, Index, const std::byte*) override { return none(); }
  Result<Index> count_poison_gone(const std::byte*, Index) override { return none(); }
  Void capture(const std::function<Void()>&) override { return none(); }
  Void replay() override { return none(); }
  Void drop_graph() override { return none(); }
  Void hold(unsigned) override { return none(); }
  Void begin_clock() override { return none(); }
  Void end_clock() override { return none(); }
  Result<double> clock_us() override { return none(); }

 private:
  static cuda::std::unexpected<Error> none() {
    return fail(Errc::not_supported, "a played GPU has no such function");
  }
  const played::Rank& rank_;
  bool clock_is_late_;
};

class PlayedStage final : public perf::Stage {
 public:
  PlayedStage(const played::Rank& rank, bool clock_is_late)
      : rank_{rank}, queue_{rank, clock_is_late} {}
  perf::gpu::Queue& queue() override { return queue_; }
  /// One rank comes late out of it.
  Result<void> meet() override {
    CCL_CHECK(rank_.comm.barrier());
    if (rank_.rank == late_rank) std::this_thread::sleep_for(late);
    return {};
  }
  Result<double> clock(const std::function<Result<void>()>& work) override {
    CCL_CHECK(rank_.comm.barrier());
    const auto begin = detail::steady_ns();
    CCL_CHECK(work());
    CCL_CHECK(queue_.wait());
    return double(detail::steady_ns() - begin) / 1e3;
  }

 private:
  const played::Rank& rank_;
  PlayedQueue queue_;
};

perf::Options options() {
  perf::Options options;
  options.channels = 1;
  options.slots = slots;
  options.slot_bytes = slot_bytes;
  options.slice_steps = options.chunk_steps = 1;
  return options;
}

/// Explains all-reduces of `choice` on a rank.
Result<perf::RankPhases> explain(const played::Rank& rank, const perf::Choice& choice,
                                 bool clock_is_late) {
  const perf::Options given = options();
  perf::Compositions compositions{rank.comm, given};
  perf::GpuExplainer explainer{rank.comm, given, compositions, large_bytes};
  PlayedStage stage{rank, clock_is_late};
  std::vector<float> in(count, 1), out(count, -1);
  perf::Call call;
  call.send = reinterpret_cast<const std::byte*>(in.data());
  call.recv = reinterpret_cast<std::byte*>(out.data());
  call.count = count;
  call.stream = rank.stream;
  CCL_TRY(const auto of, explainer.explain(stage, choice, call, count * Index{sizeof(float)}));
  if (out[0] != 2 || out[count - 1] != 2) return fail(Errc::internal, "wrong sum");
  CCL_CHECK(rank.comm.barrier());  // peers may still move messages
  return of;
}

/// Explains on two ranks, and gives each to `look`, which returns a problem.
void on_two(bool clock_is_late,
            const std::function<std::string(int, const perf::RankPhases&)>& look) {
  played::install(2, multiprocessors);
  auto comms = played::create_ranks(2);
  played::on_each(comms, [&](const played::Rank& rank) -> std::string {
    const auto of = explain(rank, {"Ring", "Simple"}, clock_is_late);
    return of ? look(rank.rank, *of) : of.error().message();
  });
}
}  // namespace

TEST_CASE("the phases of traced kernels are the parts of a call's time") {
  // On a busy machine the other rank comes late, too: one rank is later and later.
  std::atomic<int> has_waited{0};
  for (late = std::chrono::milliseconds{20}; has_waited < 2 && late.count() < 2000; late *= 4) {
    has_waited = 0;
    on_two(false, [&](int rank, const perf::RankPhases& of) -> std::string {
      const auto [launch, before, first_hop, steady, tail] = of.us;
      // The other rank waits for the late one in its first hop. The late one finds data there.
      const bool waits = first_hop > double(std::chrono::microseconds{late}.count()) / 2;
      has_waited += waits == (rank != late_rank);
      // The first part is a slot, and as much as the message comes to each of two ranks.
      const double steady_bytes = double(count) * sizeof(float) - double(slot_bytes);
      const bool well = of.receives && launch > 0 && before >= 0 && steady > 0 && tail >= 0 &&
                        of.steady_bytes == steady_bytes && of.data_bytes == 0 &&
                        of.link_first_us > 0 && of.link_gbs > 0;
      return well ? ""
                  : fmt::format("{} {} {} {} {} us, {} and {} bytes, link {} us, {} GB/s", launch,
                                before, first_hop, steady, tail, of.steady_bytes, of.data_bytes,
                                of.link_first_us, of.link_gbs);
    });
  }
  late = std::chrono::milliseconds{20};
  CHECK(has_waited == 2);
}

TEST_CASE("a launch is measured by the clock that the queue has compared") {
  on_two(true, [](int, const perf::RankPhases& of) -> std::string {
    const double launch = of.us[0], clock_late_us = double(clock_late_ns) / 1e3;
    return launch > clock_late_us && launch < 2 * clock_late_us ? "" : fmt::format("{} us", launch);
  });
}

TEST_CASE("a composition without a traced form is refused by its name") {
  played::install(2, multiprocessors);
  auto comms = played::create_ranks(2);
  played::on_each(comms, [](const played::Rank& rank) -> std::string {
    const auto of = explain(rank, {"Ring", "LL"}, false);
    if (of || of.error().code != Errc::not_supported) return "not refused";
    const bool named =
        of.error().what.find("all_reduce/Ring/LL (it has those of Ring)") != std::string::npos;
    return named ? "" : of.error().what;
  });
}

TEST_CASE("parts are medians over the ranks that receive data") {
  const auto rank = [](double us, bool receives) {
    perf::RankPhases of;
    of.us = {us, us, us, us, us};
    of.receives = receives;
    of.link_gbs = us;
    of.steady_bytes = 1e6 * us;
    return of;
  };
  const perf::RankPhases some[] = {rank(1, true), rank(2, true), rank(10, true), rank(500, false)};
  const perf::Explained of = perf::explained_of(some);
  CHECK((of.launch_us == 2 && of.before_us == 2 && of.first_hop_us == 2 && of.tail_us == 2));
  CHECK((of.link_gbs == 2 && of.steady_gbs == 1000 && of.on_gpus && of.data_gbs == 0));
  const perf::RankPhases none[] = {rank(3, false), rank(5, false)};
  CHECK(perf::explained_of(none).launch_us == 4);
  perf::RankPhases peers = rank(4, true);
  peers.steady_bytes = 0;
  peers.data_bytes = 8e3;
  const perf::Explained data = perf::explained_of({&peers, 1});
  CHECK((data.data_gbs == 1 && data.steady_gbs == 0));
  CHECK(data.text().find("; with the first hop 1.00 of the link's 4.00 GB/s") != std::string::npos);
  CHECK(
      data.text().starts_with("launch 4.00 us (20 %), wait for the launch before 4.00 us (20 %)"));
}
