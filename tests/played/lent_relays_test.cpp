// Two GPUs without NVLink to each other relay over a third one, where each process sees its own
// only (CUDA_VISIBLE_DEVICES): the rank in between lends memory.
#define CCL_PLAYED_WARP 2  // lanes of a warp
#include "support/played/played_gpus.hpp"
// Kernels come before other headers of ccl.
#include <ccl/algo/pairwise.hpp>
#include <ccl/collective.cuh>
#include <ccl/transport/any_of.hpp>

#include <atomic>
#include <cstdio>
#include <string>
#include <vector>

#include "gpu/devices.hpp"
#include "support/environment.hpp"
#include "support/played/calls.hpp"
#include "support/processes.hpp"
#include "topo/graph/p2p_path.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {

constexpr int most = 4, devices_here = 3;

/// GPUs of the ranks. Ranks 0 and 1 have no NVLink to each other, but to GPU 1.
using Devices = std::vector<int>;

/// What the processes see of each other.
struct Board {
  UniqueId id;
  std::atomic<bool> has_id{false};
  std::atomic<int> arrived{0};
  char problems[most][400] = {};
};

std::int64_t bus_id(int device) {
  char text[32] = {};
  (void)(*detail::cuda_driver())->device_get_pci_bus_id(text, sizeof text, device);
  return detail::bus_id_of(text);
}

std::string send_over_the_middle(Board& board, const Devices& devices, int rank) {
  const int ranks = int(devices.size()), device = devices[std::size_t(rank)];
  FakeGpus& all = played::install(devices_here, 1);
  all.link(0, 2, {false, false, FakePath::well});
  all.seen = {device};
  for (const int end : {0, 2}) detail::note_nvlink(bus_id(1), bus_id(end));
  if (rank == 0) {
    const auto id = create_unique_id();
    if (!id) return id.error().message();
    board.id = *id;
    board.has_id = true;
  }
  if (!wait_until([&] { return board.has_id.load(); }, 60)) return "no id";
  Config config;
  config.device = device;
  config.init_timeout_s = 60;
  std::vector<Result<Communicator>> comms;
  comms.push_back(Communicator::create(board.id, rank, ranks, config));
  if (!comms[0]) return comms[0].error().message();
  const Communicator& comm = *comms[0];
  if (rank < 2 && comm.peer(1 - rank).way.relay < 2) return "no relay";
  if (rank < 2 && comm.peer(2).way.relay != -1) return "a needless relay";
  // Also a rank that was not meant: who asks for memory knows the GPU only.
  const bool lends = detail::Access::state(comm)->gpu_lender != nullptr;
  if (lends != (device == 1)) return lends ? "a needless lender" : "no lender";
  for (const auto& problem : played::problems_on(comms, [](const played::Rank& of) -> std::string {
         using Calls = Collective<SendRecv, Pairwise, Simple, AnyOf<P2pTransport>>;
         const auto made = Calls::create(of.comm);
         if (!made) return made.error().message();
         for (int distance = 1; distance < of.ranks; ++distance) {
           auto wrong = played::send_recv(of, *made, 70'000, 3, distance);
           if (!wrong.empty()) return wrong;
         }
         return {};
       })) {
    if (!problem.empty()) return problem;
  }
  ++board.arrived;  // who leaves too early is missed by the others
  return wait_until([&] { return board.arrived == ranks; }, 60) ? "" : "others have failed";
}

}  // namespace

TEST_CASE("two processes send each other over a GPU that neither sees") {
  const Devices devices = GENERATE(Devices{0, 2, 1}, Devices{0, 2, 1, 1});
  INFO(devices.size() << " ranks");
  const Environment shared{"CCL_MULTI_RANK_GPU_ENABLE", devices.size() > devices_here ? "1" : "0"};
  const Shared<Board> board;
  std::vector<pid_t> children;
  for (int rank = 0; rank < int(devices.size()); ++rank) {
    children.push_back(start_process([&board, &devices, rank] {
      const std::string problem = send_over_the_middle(*board, devices, rank);
      std::snprintf(board->problems[rank], sizeof board->problems[rank], "%s", problem.c_str());
      return problem.empty() ? 0 : 1;
    }));
  }
  CHECK(reap(children, 120));
  for (const auto& problem : board->problems) CHECK(std::string{problem} == "");
}
