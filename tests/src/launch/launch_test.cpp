// Launches on GPUs that fail, and launches that are not needed. The driver's GPUs are plain memory,
// and the kernels are functions of this test.
#include <ccl/algo/one_shot.hpp>
#include <ccl/algo/pairwise.hpp>
#include <ccl/algo/tree.hpp>
#include <ccl/collective.hpp>
#include <ccl/collective/all_reduce.hpp>
#include <ccl/collective/broadcast.hpp>
#include <ccl/collective/send_recv.hpp>
#include <ccl/detail/launch/call_order.hpp>
#include <ccl/proto/ll128.hpp>
#include <ccl/proto/simple.hpp>
#include <ccl/transport/any_of.hpp>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/peer_waits.hpp"
#include "comm/state.hpp"
#include "support/catch.hpp"
#include "support/environment.hpp"
#include "support/fake_gpus.hpp"
#include "support/gpu_ranks.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {

using detail::DeviceTarget;
using SumOfFloats = detail::Reduction<Sum, float>;
using SumOverWires = Collective<AllReduce, Tree, Simple>;
using FromRoot = Collective<Broadcast, Tree, Simple>;
using SumOverPeers = Collective<AllReduce, OneShot, LL128>;

std::atomic<int> fails_on{-1};  // this device, with the code below
std::atomic<int> code{0};
std::atomic<int> launches{0}, marks{0};
std::atomic<bool> throws{false};

template <class Work>
int kernel(const Work&, const DeviceTarget& target) {
  ++launches;
  if (throws) throw std::bad_alloc{};
  return target.device == fails_on ? code.load() : 0;
}

/// The driver, with streams that launches can be ordered on.
void install(int devices = 2) {
  (void)gpus(devices);
  auto cuda = fake::driver();
  cuda.stream_is_capturing = [](CUstream, CUstreamCaptureStatus* status) {
    *status = CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
  };
  cuda.stream_get_id = [](CUstream stream, unsigned long long* number) {
    *number = reinterpret_cast<std::uintptr_t>(stream);
    return CUDA_SUCCESS;
  };
  cuda.stream_wait_event = [](CUstream, CUevent, unsigned) { return CUDA_SUCCESS; };
  cuda.event_record = [](CUevent event, CUstream stream) {
    static const auto record = fake::driver().event_record;
    ++marks;
    return record(event, stream);
  };
  detail::use_cuda_driver(cuda, devices);
  detail::WireKernels<AllReduce, Tree, Simple, SumOfFloats>::launch = &kernel;
  detail::WireKernels<Broadcast, Tree, Simple, detail::Bytes>::launch = &kernel;
  using OverPeers = detail::PeerKernels<AllReduce, OneShot, LL128, SumOfFloats>;
  OverPeers::launch = &kernel;
  OverPeers::max_elements = [](const detail::PeerWork<SumOfFloats>&) { return Index{1} << 20; };
  fails_on = -1;
  throws = false;
  launches = 0;
}

/// Two ranks of one composition, each on a GPU.
template <class Sums>
struct TwoRanks {
  std::vector<Result<Communicator>> comms;
  std::vector<Result<Sums>> sums{2, fail(Errc::internal, "not created")};
  fake::Stream streams[2]{{0, {}, {}, false}, {1, {}, {}, false}};
  float data[2][64]{};

  explicit TwoRanks(bool checks = false) {
    {
      const Environment check{"CCL_CHECK", checks ? "1" : "0"};
      comms = create({0, 1});
    }
    std::vector<std::thread> threads;
    for (std::size_t r = 0; r < 2; ++r) {
      INFO((comms[r] ? std::string{} : comms[r].error().message()));
      REQUIRE(comms[r]);
      threads.emplace_back([this, r] { sums[r] = Sums::create(*comms[r]); });
    }
    for (auto& thread : threads) thread.join();
    for (const auto& one : sums) {
      INFO((one ? std::string{} : one.error().message()));
      REQUIRE(one);
    }
  }
  Result<void> call(int rank, Index count = 64) {
    const auto r = std::size_t(rank);
    const auto stream = reinterpret_cast<cudaStream_t>(&streams[r]);
    if constexpr (std::is_same_v<Sums, FromRoot>) {
      return (*sums[r])(data[r], data[r], count, 1, stream);
    } else {
      return (*sums[r])(data[r], data[r], count, Sum{}, stream);
    }
  }
  /// Status of a rank, once it has failed, or after a while.
  Result<void> failure(int rank) const {
    using Clock = std::chrono::steady_clock;
    const auto deadline = Clock::now() + std::chrono::seconds{20};
    const Communicator& comm = *comms[std::size_t(rank)];
    while (comm.status() && Clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
    return comm.status();
  }
};

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

template <class Sums>
void check_failed_launch(const std::string& name) {
  install();
  TwoRanks<Sums> ranks;
  for (const int rank : {0, 1}) REQUIRE(ranks.call(rank));
  fails_on = 1;
  code = CUDA_ERROR_INVALID_HANDLE;  // as of a stream of another device
  REQUIRE(ranks.call(0));            // a kernel that would wait for rank 1
  const auto refused = ranks.call(1);
  REQUIRE(!refused);
  for (const auto& own : {refused, ranks.failure(1)}) {
    REQUIRE(!own);
    INFO(own.error().message());
    CHECK(own.error().code == Errc::cuda);
    CHECK(own.error().rank == 1);
    CHECK(own.error().os_code == CUDA_ERROR_INVALID_HANDLE);
    CHECK(contains(own.error().what, "cannot launch " + name));
    CHECK(contains(own.error().what, "operation 2"));
  }
  const auto peers = ranks.failure(0);
  REQUIRE(!peers);
  CHECK(peers.error().code == Errc::aborted);
  CHECK(peers.error().peer == 1);
  CHECK(contains(peers.error().what, refused.error().what));
  fails_on = -1;
  launches = 0;
  for (const int rank : {0, 1}) CHECK(!ranks.call(rank));  // none could meet its peer's
  CHECK(launches == 0);
}

}  // namespace

TEST_CASE("a launch that fails on one rank ends the communicator on all ranks") {
  check_failed_launch<SumOverWires>("all_reduce/Tree/Simple");
  check_failed_launch<SumOverPeers>("all_reduce/OneShot/LL128");
}

TEST_CASE("a stream that cannot be used ends the communicator on all ranks") {
  install();
  auto cuda = fake::driver();
  static std::atomic<bool> gone{false};
  gone = false;
  cuda.stream_is_capturing = [](CUstream, CUstreamCaptureStatus* status) {
    *status = CU_STREAM_CAPTURE_STATUS_NONE;
    return gone ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
  };
  cuda.stream_get_id = [](CUstream, unsigned long long*) { return CUDA_SUCCESS; };
  detail::use_cuda_driver(cuda, 2);
  TwoRanks<SumOverPeers> ranks;
  REQUIRE(ranks.call(0));
  gone = true;
  CHECK(!ranks.call(1));
  const auto found = ranks.failure(0);
  REQUIRE(!found);
  CHECK(found.error().code == Errc::aborted);
  CHECK(found.error().peer == 1);
}

TEST_CASE(
    "a communicator whose launches do not end is dropped at its limit, and keeps its memory") {
  install();
  const Environment limit{"CCL_TIMEOUT", "0.2"};
  std::atomic<bool> dropped{false};
  std::thread guard{[&dropped] {  // a test that waits for ever is ended
    for (int ms = 0; ms < 30'000 && !dropped; ms += 10) {
      std::this_thread::sleep_for(std::chrono::milliseconds{10});
    }
    if (!dropped) std::abort();
  }};
  std::size_t regions = 0;
  {
    TwoRanks<SumOverWires> ranks;
    for (int r = 0; r < 2; ++r) {
      ranks.streams[r].stuck = true;  // by work of the program, before the launch
      REQUIRE(ranks.call(r));
    }
    regions = fake::gpus().regions.size();
    CHECK(regions > 0);
  }
  CHECK(fake::gpus().regions.size() == regions);
  dropped = true;
  guard.join();
}

TEST_CASE("a launch into a capture that fails leaves the communicator well") {
  install();
  auto cuda = fake::driver();
  cuda.stream_is_capturing = [](CUstream, CUstreamCaptureStatus* status) {
    *status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    return CUDA_SUCCESS;
  };
  detail::use_cuda_driver(cuda, 2);
  TwoRanks<SumOverPeers> ranks;
  const auto refused = ranks.call(1);
  REQUIRE(!refused);
  CHECK(refused.error().code == Errc::invalid_usage);
  CHECK(launches == 0);
  CHECK(ranks.comms[0]->status());
  CHECK(ranks.comms[1]->status());
}

namespace {
/// Objects that captured graphs hold.
std::vector<std::pair<CUhostFn, void*>> held;

/// The driver, with all streams in one capture.
void capture() {
  auto cuda = **detail::cuda_driver();
  cuda.stream_is_capturing = [](CUstream, CUstreamCaptureStatus* status) {
    *status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    return CUDA_SUCCESS;
  };
  cuda.stream_get_capture_info = [](CUstream, CUstreamCaptureStatus*, cuuint64_t* id,
                                    CUgraph* graph, const CUgraphNode** nodes,
                                    const CUgraphEdgeData**, std::size_t* number) {
    static const CUgraphNode node = nullptr;
    if (id != nullptr) *id = 1;
    if (graph != nullptr) *graph = nullptr;
    if (nodes != nullptr) *nodes = &node;
    if (number != nullptr) *number = 1;
    return CUDA_SUCCESS;
  };
  cuda.user_object_create = [](CUuserObject* object, void* what, CUhostFn destroy, unsigned,
                               unsigned) {
    *object = nullptr;
    held.emplace_back(destroy, what);
    return CUDA_SUCCESS;
  };
  cuda.graph_retain_user_object = [](CUgraph, CUuserObject, unsigned, unsigned) {
    return CUDA_SUCCESS;
  };
  cuda.graph_add_event_record_node = [](CUgraphNode* node, CUgraph, const CUgraphNode*, std::size_t,
                                        CUevent) {
    *node = reinterpret_cast<CUgraphNode>(std::uintptr_t{1});
    return CUDA_SUCCESS;
  };
  detail::use_cuda_driver(cuda, 2);
}
}  // namespace

TEST_CASE("a replay whose call has left the flight recorder is an operation that runs") {
  install();
  const auto usual = **detail::cuda_driver();
  const Environment size{"CCL_FLIGHT_RECORDER_SIZE", "16"};
  {
    TwoRanks<SumOverPeers> ranks;
    REQUIRE(ranks.call(0, 8));
    capture();
    REQUIRE(ranks.call(0, 32));
    detail::use_cuda_driver(usual, 2);
    for (int n = 0; n < 40; ++n) REQUIRE(ranks.call(0, 8));
    detail::CommState& state = *detail::Access::state(*ranks.comms[0]);
    state.device.gpu->watched().waits = {2, 5, 2, 1};  // what lanes of the replay write
    Word from = 1;
    const auto progress = state.observers.progress(from, 0);
    CHECK((progress.running.ticket == 2 && progress.running.number == 2 && progress.moved == 6));
    const RankStatus status = state.observers.status();
    REQUIRE(status.running() != nullptr);
    CHECK((status.running()->number == 2 && status.running()->count == 32));
    CHECK(status.waits.peer == 1);
    state.device.gpu->watched().waits = {2, 5, 3, 2};  // a call of many ahead
    CHECK(state.observers.progress(from, 0).running.ticket == 3);
    CHECK(state.observers.status().running() != nullptr);
    state.device.gpu->watched().waits = {};
    CHECK(state.observers.progress(from, 0).running.ticket == 0);
  }
  for (const auto& [destroy, what] : std::exchange(held, {})) destroy(what);
}

TEST_CASE("a call that every rank refuses leaves the communicator well") {
  install();
  TwoRanks<SumOverWires> ranks;
  fails_on = 1;
  code = -4096;  // slices too small, by the plan of all ranks
  const auto refused = ranks.call(1);
  REQUIRE(!refused);
  CHECK(refused.error().code == Errc::over_budget);
  CHECK(ranks.comms[0]->status());
  CHECK(ranks.comms[1]->status());
}

TEST_CASE("a launch that an exception ends marks its stream, where a part of it may run") {
  install();
  TwoRanks<SumOverWires> ranks;
  throws = true;
  const int before = marks;
  const auto ended = ranks.call(1);
  REQUIRE(!ended);
  CHECK(ended.error().code == Errc::out_of_memory);
  CHECK(marks == before + 1);
}

TEST_CASE("a call of several launches ends all ranks unless all return its error") {
  install();
  TwoRanks<SumOverWires> ranks;
  const Stream stream{reinterpret_cast<cudaStream_t>(&ranks.streams[1])};
  for (const Errc code : {Errc::over_budget, Errc::out_of_memory}) {
    detail::CallOrder order{*ranks.comms[1]};
    REQUIRE(order.begin(stream, nullptr));
    const auto ended = order.end(stream, fail(code, "the second launch was refused"));
    REQUIRE(!ended);
    CHECK(ended.error().code == code);
    if (code == Errc::over_budget) CHECK(ranks.comms[1]->status());
  }
  const auto peers = ranks.failure(0);
  REQUIRE(!peers);
  CHECK(contains(peers.error().what, "the second launch was refused"));
}

TEST_CASE("a late connection that fails leaves the record of earlier operations alone") {
  install();
  const Environment soon{"CCL_INIT_TIMEOUT", "2"};
  TwoRanks<FromRoot> ranks;
  Result<void> called[2];
  std::vector<std::thread> threads;  // the first call by a root connects it
  for (int r = 0; r < 2; ++r) threads.emplace_back([&, r] { called[r] = ranks.call(r); });
  for (auto& thread : threads) thread.join();
  for (const auto& call : called) REQUIRE(call);
  float* const data = ranks.data[0];
  const auto stream = reinterpret_cast<cudaStream_t>(&ranks.streams[0]);
  REQUIRE(!(*ranks.sums[0])(data, data, 64, 0, stream));  // rank 1 does not come for that root
  Operation first;
  REQUIRE(detail::Access::state(*ranks.comms[0])->observers.recorder()->read(1, first));
  CHECK(first.state != OpState::failed);
}

TEST_CASE("a call of no elements launches nothing") {
  install();
  TwoRanks<SumOverWires> wires;
  TwoRanks<SumOverPeers> peers;
  for (const int rank : {0, 1}) {
    CHECK(wires.call(rank, 0));
    CHECK(peers.call(rank, 0));
  }
  CHECK(launches == 0);
  wires.comms[1]->abort();
  CHECK(!wires.call(1, 0));
}

namespace {
/// Calls of both ranks by this thread, which must not wait for either. Returns whether one was
/// refused.
template <class Ranks>
bool refused_by_one_thread(Ranks& ranks) {
  const detail::NoPeerWaits here;
  for (const int rank : {0, 1}) {
    const auto done = ranks.call(rank);
    INFO((done ? std::string{} : done.error().message()));
    CHECK(done.has_value() == !here.refused());
  }
  return here.refused();
}
template <class Ranks>
void call_on_threads(Ranks& ranks) {
  Result<void> of_one;
  std::thread other{[&] { of_one = ranks.call(1); }};
  CHECK(ranks.call(0));
  other.join();
  CHECK(of_one);
}
}  // namespace

TEST_CASE("one thread makes calls of several ranks unless they wait for each other") {
  install();
  TwoRanks<SumOverWires> wires;
  TwoRanks<SumOverPeers> peers;
  CHECK(!refused_by_one_thread(wires));
  CHECK(!refused_by_one_thread(peers));
  CHECK(launches == 4);
  TwoRanks<FromRoot> trees;  // the first call with a root connects its tree
  launches = 0;
  CHECK(refused_by_one_thread(trees));
  CHECK(launches == 0);
  call_on_threads(trees);
  CHECK(!refused_by_one_thread(trees));
  CHECK(launches == 4);
}

TEST_CASE("calls that ranks compare are refused before they count") {
  install();
  TwoRanks<SumOverPeers> ranks{true};
  CHECK(refused_by_one_thread(ranks));
  CHECK(launches == 0);
  call_on_threads(ranks);  // whose numbers are compared, too
  CHECK(launches == 2);
}

TEST_CASE("with checking on, GPUs that have no messages need not call an exchange") {
  install(3);
  using Messages = Collective<SendRecv, Pairwise, Simple>;
  detail::ExchangeKernels<Pairwise, Simple>::launch = [](const detail::ExchangeWork&, Index,
                                                         const DeviceTarget&) { return 0; };
  const Environment check{"CCL_CHECK", "1"}, soon{"CCL_TIMEOUT", "10"};
  auto comms = create({0, 1, 2});
  fake::Stream streams[2]{{0, {}, {}, false}, {1, {}, {}, false}};
  Result<void> done[2][2];  // by rank and call
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < 3; ++r) {
    REQUIRE(comms[r]);
    threads.emplace_back([&, r] {
      const auto messages = Messages::create(*comms[r]);
      if (r == 2) return;  // takes no part
      for (int call = 0; call < 2; ++call) {
        float data[64]{};
        const auto stream = reinterpret_cast<cudaStream_t>(&streams[r]);
        const Index taken = call == 0 ? 64 : 7;  // the second time, less than is sent
        if (!messages) {
          done[r][call] = fail(messages.error());
        } else {
          done[r][call] =
              r == 0 ? messages->send(data, 64, 1, stream) : messages->recv(data, taken, 0, stream);
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& of : done) {
    INFO((of[0] ? std::string{} : of[0].error().message()));
    CHECK(of[0]);
  }
  REQUIRE(!done[1][1]);
  CHECK(done[1][1].error().code == Errc::mismatch);
  CHECK(contains(done[1][1].error().what, "rank 0 sends 256 bytes, rank 1 takes 28"));
}
