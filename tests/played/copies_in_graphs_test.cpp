// Copies by copy engines in graphs, beside other captures and launches. The GPUs are played on the
// CPU.
#define CCL_PLAYED_WARP 2  // lanes of a warp
#include "support/played/played_gpus.hpp"
// Kernels come before other headers of ccl.
#include <ccl/algo/copy_engine.hpp>
#include <ccl/collective.cuh>
#include <ccl/transport/p2p.hpp>

#include <memory>
#include <string>
#include <vector>

#include "support/played/calls.hpp"
#include "support/played/capture.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
using Gathers = Collective<AllGather, CopyEngine, Simple, P2pTransport>;
constexpr Plan plan{.channels = 1, .slot_count = 2, .slot_bytes = 64 << 10};
constexpr Index count = 3000;  // elements of a message

/// Stream of a rank, and one call on it.
struct Call {
  const Gathers& gather;
  CUstream stream = nullptr;
  std::vector<float> in{}, out{};
  std::shared_ptr<played::Graph> graph{};

  Call(const Gathers& by, const played::Rank& rank, int number) : gather{by} {
    (void)(*detail::cuda_driver())->stream_create(&stream, CU_STREAM_NON_BLOCKING);
    for (Index i = 0; i < count; ++i) in.push_back(played::element(rank.rank, number, i));
    out.assign(std::size_t(count * rank.ranks), -1.f);
  }
  ~Call() { (void)(*detail::cuda_driver())->stream_destroy(stream); }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  std::string run() const {
    const auto done = gather(in.data(), const_cast<float*>(out.data()), count, stream);
    return done ? std::string{} : done.error().message();
  }
  std::string begin() const {
    return played::Capture::begin(*played::stream_of(stream)) == CUDA_SUCCESS ? "" : "no capture";
  }
  std::string end() {
    played::Graph* made = nullptr;
    const auto capture = played::stream_of(stream)->capture;
    if (capture->end(*played::stream_of(stream), &made) != CUDA_SUCCESS) return "no graph";
    graph.reset(made);
    return {};
  }
  std::string replay() const {
    return played::launch_graph(graph, stream) == CUDA_SUCCESS ? "" : "no replay";
  }
  std::string check(int number) {
    (void)(*detail::cuda_driver())->stream_synchronize(stream);
    for (std::size_t i = 0; i < out.size(); ++i) {
      const float wanted = played::element(int(Index(i) / count), number, Index(i) % count);
      if (out[i] != wanted) return fmt::format("element {} is {} and not {}", i, out[i], wanted);
    }
    std::fill(out.begin(), out.end(), -1.f);
    return {};
  }
};

/// Text of the first step that fails.
std::string first_of(std::initializer_list<std::string> steps) {
  for (const std::string& step : steps) {
    if (!step.empty()) return step;
  }
  return {};
}
}  // namespace

TEST_CASE("copies run beside a capture of their composition, and other captures") {
  played::install(3, 4);
  auto comms = played::create_ranks(3);
  played::on_each(comms, [](const played::Rank& rank) -> std::string {
    const auto made = Gathers::create(rank.comm, plan);
    if (!made) return made.error().message();
    Call graph{*made, rank, 1}, live{*made, rank, 2}, other{*made, rank, 3};
    if (auto why = first_of({graph.begin(), graph.run()}); !why.empty()) return why;
    if (auto why = first_of({live.run(), live.check(2)}); !why.empty()) return "live: " + why;
    if (auto why = first_of({other.begin(), other.run()}); !why.empty()) return "other: " + why;
    if (auto why = first_of({graph.run(), live.run(), other.run()}); !why.empty()) return why;
    if (auto why = first_of({graph.end(), other.end()}); !why.empty()) return why;
    for (int turn = 0; turn < 3; ++turn) {
      auto why = first_of({graph.replay(), live.run(), other.replay()});
      if (why.empty()) why = first_of({other.check(3), live.check(2), graph.check(1)});
      if (!why.empty()) return "replays: " + why;
    }
    return {};
  });
}
