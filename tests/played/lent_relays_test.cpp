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
#include "support/played/calls.hpp"
#include "support/processes.hpp"
#include "topo/graph/p2p_path.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {

constexpr int ranks = 3;

/// What the processes see of each other.
struct Board {
  UniqueId id;
  std::atomic<bool> has_id{false};
  std::atomic<int> arrived{0};
  char problems[ranks][400] = {};
};

std::int64_t bus_id(int device) {
  char text[32] = {};
  (void)(*detail::cuda_driver())->device_get_pci_bus_id(text, sizeof text, device);
  return detail::bus_id_of(text);
}

std::string send_over_the_middle(Board& board, int rank) {
  FakeGpus& all = played::install(ranks, 1);
  all.link(0, 2, {false, false, FakePath::well});
  all.seen = {rank};
  for (const int end : {0, 2}) detail::note_nvlink(bus_id(1), bus_id(end));
  if (rank == 0) {
    const auto id = create_unique_id();
    if (!id) return id.error().message();
    board.id = *id;
    board.has_id = true;
  }
  if (!wait_until([&] { return board.has_id.load(); }, 60)) return "no id";
  auto comms = played::create_some(board.id, {rank}, ranks, [](int) { return -1; });
  if (!comms[0]) return comms[0].error().message();
  const Communicator& comm = *comms[0];
  if (rank != 1 && comm.peer(2 - rank).way.relay != 1) return "no relay";
  if (rank != 1 && comm.peer(1).way.relay != -1) return "a needless relay";
  const bool lends = detail::Access::state(comm)->gpu_lender != nullptr;
  if (lends != (rank == 1)) return lends ? "a needless lender" : "no lender";
  for (const auto& problem : played::problems_on(comms, [](const played::Rank& of) -> std::string {
         using Calls = Collective<SendRecv, Pairwise, Simple, AnyOf<P2pTransport>>;
         const auto made = Calls::create(of.comm);
         if (!made) return made.error().message();
         for (const int distance : {1, 2}) {
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
  const Shared<Board> board;
  std::vector<pid_t> children;
  for (int rank = 0; rank < ranks; ++rank) {
    children.push_back(start_process([&board, rank] {
      const std::string problem = send_over_the_middle(*board, rank);
      std::snprintf(board->problems[rank], sizeof board->problems[rank], "%s", problem.c_str());
      return problem.empty() ? 0 : 1;
    }));
  }
  CHECK(reap(children, 120));
  for (const auto& problem : board->problems) CHECK(std::string{problem} == "");
}
