// Communicators of kernels with NVIDIA's headers. The driver's GPUs are plain memory, and threads
// of this test do what kernels do.
#include "nccl/device/kernel_comm.hpp"

#include <atomic>
#include <cstring>
#include <functional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "comm/edges/memory_rest.hpp"
#include "comm/state.hpp"
#include "nccl/device/kernel_needs.hpp"
#include "support/environment.hpp"
#include "support/kernel_memory.hpp"
#include "support/kernel_wants.hpp"
#include "support/processes.hpp"

using namespace ccl;
using namespace ccl::test;
using namespace ccl::detail::nccl;

namespace {

/// One rank, with a table of windows.
struct Rank {
  Communicator& comm;
  std::unique_ptr<WindowTable> table{};

  explicit Rank(Communicator& of) : comm{of} {}
  int rank() const { return comm.rank(); }
  int ranks() const { return comm.ranks(); }
  Result<std::shared_ptr<KernelComm>> create(const void* wants, void* made) {
    return KernelComm::create(comm, wants, made, [this]() -> Result<WindowTable*> {
      if (!table) {
        CCL_TRY(table, WindowTable::create(comm.device()));
      }
      return table.get();
    });
  }
};

std::uint32_t* resource(const KernelComm& comm, ncclDevResourceHandle_t handle, int rank) {
  return in_window<std::uint32_t>(*comm.window(), rank, std::size_t{handle} * 128);
}

/// Runs `f(rank)` on a thread for each; it returns a problem, or an empty text.
void on_each(std::vector<Result<Communicator>>& comms, const std::function<std::string(Rank&)>& f) {
  each_comm(comms, [&f](Communicator& comm) {
    Rank rank{comm};
    return f(rank);
  });
}

/// Barriers as kernels with NVIDIA's headers have them, on one thread.
class Barrier {
 public:
  Barrier(const KernelComm& comm, const ncclLsaBarrierHandle_t& handle, int rank, int ranks,
          int index)
      : comm_{comm}, handle_{handle}, rank_{rank}, ranks_{ranks}, index_{index} {
    epoch_ = resource(comm, handle.bufHandle, rank)[handle.nBarriers + index];
  }
  ~Barrier() { resource(comm_, handle_.bufHandle, rank_)[handle_.nBarriers + index_] = epoch_; }
  Barrier(const Barrier&) = delete;
  Barrier& operator=(const Barrier&) = delete;
  void sync() {
    for (int p = 0; p < ranks_; ++p) {
      if (p != rank_) inbox(p, rank_).store(epoch_ + 1, std::memory_order_release);
    }
    for (int p = 0; p < ranks_; ++p) {
      while (p != rank_ && inbox(rank_, p).load(std::memory_order_acquire) - (epoch_ + 1) > ~0u / 2)
        std::this_thread::yield();
    }
    ++epoch_;
  }

 private:
  std::atomic_ref<std::uint32_t> inbox(int owner, int from) const {
    auto* const words = resource(comm_, handle_.bufHandle, owner);
    return std::atomic_ref{words[3 * handle_.nBarriers + index_ * ranks_ + from]};
  }
  const KernelComm& comm_;
  ncclLsaBarrierHandle_t handle_;
  int rank_, ranks_, index_;
  std::uint32_t epoch_;
};

/// Barriers of all versions, and a number behind each that peers must see.
std::string count_rounds(const KernelComm& comm, const ncclLsaBarrierHandle_t& handle,
                         ncclDevResourceHandle_t counts, const Rank& rank, int index) {
  Barrier barrier{comm, handle, rank.rank(), rank.ranks(), index};
  for (std::uint32_t round = 1; round <= 1000; ++round) {
    for (int p = 0; p < rank.ranks(); ++p) {
      std::atomic_ref{resource(comm, counts, p)[rank.rank()]}.store(round,
                                                                    std::memory_order_relaxed);
    }
    barrier.sync();
    for (int p = 0; p < rank.ranks(); ++p) {
      const std::uint32_t is =
          std::atomic_ref{resource(comm, counts, rank.rank())[p]}.load(std::memory_order_relaxed);
      if (is != round) return fmt::format("rank {} is in round {}, and this in {}", p, is, round);
    }
    barrier.sync();
  }
  return {};
}

std::string failure_of(const Result<std::shared_ptr<KernelComm>>& result, Errc code,
                       const char* words) {
  if (result) return fmt::format("no failure with \"{}\"", words);
  const std::string said = result.error().message();
  if (result.error().code == code && said.find(words) != said.npos) return {};
  return fmt::format("\"{}\" in place of \"{}\"", said, words);
}

}  // namespace

TEMPLATE_TEST_CASE("the structure has the layout of the program's headers", "", DevComm228,
                   DevComm229, DevComm230, DevComm231) {
  constexpr unsigned version = std::is_same_v<TestType, DevComm228>   ? 22902
                               : std::is_same_v<TestType, DevComm229> ? 22907
                               : std::is_same_v<TestType, DevComm230> ? 23007
                                                                      : 23102;
  auto comms = create_ranks(3);
  on_each(comms, [](Rank& rank) -> std::string {
    ncclDevResourceHandle_t first = 99, second = 99;
    ncclDevResourceRequirements_t last{};
    last.bufferSize = 12;
    last.bufferAlign = 4096;
    last.outBufferHandle = &second;
    ncclDevResourceRequirements_t list = last;
    list.next = &last;
    list.bufferSize = 300;
    list.bufferAlign = 4;
    list.outBufferHandle = &first;
    DevCommRequirements needs = usual_wants();
    needs.resourceRequirementsList = &list;
    needs.barrierCount = 2;
    needs.lsaBarrierCount = 5;
    struct {
      TestType comm;
      unsigned behind = 0xabababab;
    } made;
    std::memset(&made.comm, 0xee, sizeof made.comm);
    const auto kernels = rank.create(wants_of(version, needs).data(), &made.comm);
    if (!kernels) return kernels.error().message();
    const TestType& all = made.comm;
    if (made.behind != 0xabababab) return "more was written";
    if constexpr (requires { all.version; }) {
      if (all.magic != NCCL_API_MAGIC || all.version != version) return "another version";
    }
    if (all.rank != rank.rank() || all.nRanks != 3 || all.nRanks_rcp32 != 0x55555555)
      return "world";
    if (all.lsaRank != rank.rank() || all.lsaSize != 3 || all.lsaSize_rcp32 != 0x55555555) {
      return "LSA team";
    }
    if (all.windowTable != rank.table->at()) return "table";
    const ncclWindow_vidmem& window = *all.resourceWindow;
    if (all.resourceWindow_inlined.lsaFlatBase != window.lsaFlatBase ||
        all.resourceWindow_inlined.stride4G != window.stride4G || window.lsaRank != rank.rank()) {
      return "resource window";
    }
    if (KernelComm::window_in(&all) != all.resourceWindow) return "identity";
    if (all.ginSignalCount != 0 || all.ginHandles[0] != nullptr) return "GIN";
    if (all.lsaBarrier.nBarriers != 5) return "barriers";
    std::set<std::pair<std::size_t, std::size_t>> places;  // begin and end
    const auto place = [&](ncclDevResourceHandle_t handle, std::size_t bytes) {
      places.emplace(std::size_t{handle} * 128, std::size_t{handle} * 128 + bytes);
    };
    place(all.lsaBarrier.bufHandle, lsa_barrier_bytes(5, 3));
    if constexpr (requires { all.hybridLsaBarrier; }) {
      if (all.hybridLsaBarrier.nBarriers != 2) return "hybrid barriers";
      place(all.hybridLsaBarrier.bufHandle, lsa_barrier_bytes(2, 3));
    }
    place(first, 300);
    place(second, 12);
    if (second % 32 != 0) return "alignment";
    std::size_t end = 0;
    for (const auto& [from, to] : places) {
      if (from < end) return fmt::format("a resource at {}, before the end of another", from);
      end = to;
      for (std::size_t at = from; at < to; ++at) {
        if (*in_window<char>(window, rank.rank(), at) != 0) return "not zero";
      }
    }
    if constexpr (requires { all.abortFlag; }) {
      if (*all.abortFlag != 0) return "aborted";
    }
    if (const auto here = rank.comm.barrier(); !here) return here.error().message();
    for (const auto* handle : {&all.lsaBarrier}) {
      for (const int index : {0, 4}) {
        if (auto wrong = count_rounds(**kernels, *handle, first, rank, index); !wrong.empty()) {
          return wrong;
        }
      }
    }
    if constexpr (requires { all.hybridLsaBarrier; }) {
      return count_rounds(**kernels, all.hybridLsaBarrier, first, rank, 1);
    }
    return {};
  });
}

TEST_CASE("2.28's requirements have no version") {
  auto comms = create_ranks(2);
  on_each(comms, [](Rank& rank) -> std::string {
    DevCommRequirements needs = usual_wants();
    needs.lsaBarrierCount = 1;
    DevComm228 made;
    const auto kernels = rank.create(&needs, &made);
    if (!kernels) return kernels.error().message();
    return made.nRanks == 2 && made.lsaBarrier.nBarriers == 1 ? "" : "another structure";
  });
}

TEST_CASE("what ccl does not have is refused by name, on all ranks alike") {
  auto comms = create_ranks(2);
  on_each(comms, [](Rank& rank) -> std::string {
    DevComm231 made;
    const auto refused = [&](const DevCommRequirements& needs, const char* words, Errc code,
                             unsigned version = 23203) {
      return failure_of(rank.create(wants_of(version, needs).data(), &made), code, words);
    };
    std::string all;
    const auto with = [&](auto set, const char* words) {
      DevCommRequirements needs = usual_wants();
      if (rank.rank() == 1) set(needs);  // the other rank's requirements are well
      all += refused(needs, words, Errc::not_supported);
    };
    ncclDevResourceRequirements_t signals{};
    signals.ginSignalCount = 1;
    ncclDevResourceRequirements_t counters{};
    counters.ginCounterCount = 1;
    TeamRequirements team{};
    team.multimem = true;
    with([](auto& n) { n.ginForceEnable = true; }, "GIN");
    with([](auto& n) { n.ginSignalCount = 1; }, "ginSignalCount");
    with([](auto& n) { n.ginCounterCount = 1; }, "GIN");
    with([](auto& n) { n.ginConnectionType = ncclGinConnectionType_t(1); }, "GIN");
    with([](auto& n) { n.railGinBarrierCount = 1; }, "railGinBarrierCount");
    with([](auto& n) { n.worldGinBarrierCount = 1; }, "GIN");
    with([&](auto& n) { n.resourceRequirementsList = &signals; }, "GIN");
    with([&](auto& n) { n.resourceRequirementsList = &counters; }, "GIN");
    with([](auto& n) { n.lsaMultimem = true; }, "multimem");
    with([&](auto& n) { n.teamRequirementsList = &team; }, "multimem");
    with([](auto& n) { n.cftCaps = 1; }, "CFT");
    with([](auto& n) { n.cftBarrierCount = 1; }, "CFT");
    const DevCommRequirements usual = usual_wants();
    all += refused(usual, "23204", Errc::invalid_usage, 23204);
    all += failure_of(rank.create(nullptr, &made), Errc::invalid_argument, "null");
    all += failure_of(rank.create(wants_of(23102, usual).data(), nullptr), Errc::invalid_argument,
                      "null");
    DevCommRequirements other = usual;
    other.lsaBarrierCount = 1 + rank.rank();
    all += refused(other, "differ", Errc::mismatch);
    if (!all.empty()) return all;
    const auto well = rank.create(wants_of(23203, usual).data(), &made);
    return well ? std::string{} : well.error().message();
  });
}

TEST_CASE("a rank that cannot map the memory makes all fail alike") {
  auto comms = create_ranks(3);
  on_each(comms, [](Rank& rank) -> std::string {
    DevComm231 made;
    const auto wants = wants_of(23102, usual_wants());
    if (rank.rank() == 0) no_range_on = 1;
    (void)rank.comm.barrier();
    const auto failed = rank.create(wants.data(), &made);
    (void)rank.comm.barrier();
    no_range_on = -1;
    (void)rank.comm.barrier();
    if (failed || failed.error().code != Errc::out_of_memory) return "no failure of memory";
    const auto well = rank.create(wants.data(), &made);
    return well ? std::string{} : well.error().message();
  });
}

TEST_CASE("kernels reach no memory without cuMem handles, of CPU ranks, or without a path") {
  {
    auto comms = create_ranks(2);
    const Environment legacy{"CCL_CUMEM_ENABLE", "0"};
    on_each(comms, [](Rank& rank) -> std::string {
      DevComm231 made;
      if (check_kernels_reach_all(rank.comm)) return "it is said to be had";
      return failure_of(rank.create(wants_of(23102, usual_wants()).data(), &made),
                        Errc::not_supported, "CCL_CUMEM_ENABLE");
    });
  }
  {
    Config config;
    config.device = Config::cpu;
    auto made = Communicator::create_all(2, config);
    REQUIRE(made);
    std::vector<Result<Communicator>> comms(made->begin(), made->end());
    on_each(comms, [](Rank& rank) -> std::string {
      DevComm231 none;
      return failure_of(rank.create(wants_of(23102, usual_wants()).data(), &none),
                        Errc::not_supported, "on CPUs");
    });
  }
  {
    install_kernel_gpus(FakeGpus::usual);
    fake::gpus().link(30, 31, {.access = false});  // GPUs of no other case
    auto comms = create({30, 31});
    on_each(comms, [](Rank& rank) -> std::string {
      DevComm231 none;
      return failure_of(rank.create(wants_of(23102, usual_wants()).data(), &none),
                        Errc::not_supported, "do not address each other's memory");
    });
  }
  auto comms = create_ranks(2);
  on_each(comms, [](Rank& rank) -> std::string {
    return check_kernels_reach_all(rank.comm) ? "" : "it is not had";
  });
}

TEST_CASE("a lone rank has a communicator and windows of kernels") {
  auto comms = create_ranks(1);
  on_each(comms, [](Rank& rank) -> std::string {
    const Taken memory{0, page};
    const auto window = Window::create(rank.comm, memory.at, page);
    const auto seen = KernelWindow::create(*window, 0);
    if (!seen) return seen.error().message();
    *in_window<int>((*seen)->content(), 0) = 5;
    DevComm230 made;
    const auto kernels = rank.create(wants_of(23004, usual_wants()).data(), &made);
    if (!kernels) return kernels.error().message();
    if (made.nRanks_rcp32 != 0 || made.lsaSize != 1) return "another team";
    return *reinterpret_cast<int*>(memory.at) == 5 ? "" : "another place";
  });
}

TEST_CASE("an abort ends the waits of kernels") {
  auto comms = create_ranks(2);
  std::atomic<int> created{0};
  on_each(comms, [&created](Rank& rank) -> std::string {
    DevComm231 made;
    const auto kernels = rank.create(wants_of(23102, usual_wants()).data(), &made);
    if (!kernels) return kernels.error().message();
    if (*made.abortFlag != 0) return "it is set";
    ++created;
    while (created < rank.ranks()) std::this_thread::yield();
    rank.comm.abort("the test ends");
    return *made.abortFlag != 0 ? "" : "it is not set";
  });
}

TEST_CASE("memory of kernels stays while the communicator's other memory rests") {
  auto comms = create_ranks(2);
  on_each(comms, [](Rank& rank) -> std::string {
    DevCommRequirements needs = usual_wants();
    needs.lsaBarrierCount = 1;
    ncclDevResourceHandle_t counts = 0;
    ncclDevResourceRequirements_t list{};
    list.bufferSize = 64;
    list.outBufferHandle = &counts;
    needs.resourceRequirementsList = &list;
    DevComm231 made;
    const auto kernels = rank.create(wants_of(23102, needs).data(), &made);
    if (!kernels) return kernels.error().message();
    for (int time = 0; time < 2; ++time) {
      if (auto w = count_rounds(**kernels, made.lsaBarrier, counts, rank, 0); !w.empty()) return w;
      detail::CommState& state = *detail::Access::state(rank.comm);
      if (auto rested = detail::rest_memory(state, "the test"); !rested) {
        return rested.error().message();
      }
      if (auto w = count_rounds(**kernels, made.lsaBarrier, counts, rank, 0); !w.empty()) return w;
      if (auto woken = detail::wake_memory(state, "the test"); !woken) {
        return woken.error().message();
      }
    }
    return count_rounds(**kernels, made.lsaBarrier, counts, rank, 0);
  });
}

TEST_CASE("ranks of different processes have each other's memory in one range") {
  const auto id = create_unique_id();
  REQUIRE(id);
  const auto run = [&](int r) {
    install_kernel_gpus(2);
    auto comms = create(*id, r, 2, {r});
    if (!comms[0]) return std::printf("%s\n", comms[0].error().message().c_str());
    Rank rank{*comms[0]};
    DevCommRequirements needs = usual_wants();
    needs.lsaBarrierCount = 1;
    ncclDevResourceHandle_t counts = 0;
    ncclDevResourceRequirements_t list{};
    list.bufferSize = 64;
    list.outBufferHandle = &counts;
    needs.resourceRequirementsList = &list;
    DevComm231 made;
    const auto kernels = rank.create(wants_of(23203, needs).data(), &made);
    if (!kernels) return std::printf("%s\n", kernels.error().message().c_str());
    const std::string wrong = count_rounds(**kernels, made.lsaBarrier, counts, rank, 0);
    if (!wrong.empty()) return std::printf("%s\n", wrong.c_str());
    (void)rank.comm.barrier();
    return 0;
  };
  const pid_t other = start_process([&] { return run(1); });
  CHECK(run(0) == 0);
  int status = -1;
  ::waitpid(other, &status, 0);
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
}
