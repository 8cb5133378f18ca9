#include <ccl/detail/runtime/guarded.hpp>
#include <ccl/device/device_comm.hpp>
#include <ccl/proto/ll128.hpp>
#include <ccl/transport/p2p.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/field_check.hpp"
#include "base/forks.hpp"
#include "base/made_once.hpp"
#include "comm/edges/far_ranks.hpp"
#include "comm/edges/window_state.hpp"
#include "comm/part_rules.hpp"
#include "comm/rank_results.hpp"
#include "comm/state.hpp"
#include "comm/team_errors.hpp"

namespace ccl {
namespace detail {

/// State that all handles of one rank's device-side interface share.
struct DeviceCommState {
  explicit DeviceCommState(Communicator of) : comm{std::move(of)} {}
  ~DeviceCommState() {
    Access::state(comm)->departure.forget(waits);
    keep_for_peers();
  }
  DeviceCommState(const DeviceCommState&) = delete;
  DeviceCommState& operator=(const DeviceCommState&) = delete;
  /// Without a `close`, kernels of peers may still write to this rank's memory, and messages
  /// between this rank and far ones may be on their way. The memory and the wires stay as long as
  /// the communicator of this rank.
  void keep_for_peers() {
    if (!scratch) return;
    CommState& state = *Access::state(comm);
    if (far && window) far->leave_window(WindowState::of(*window).number);
    const auto lock = state.observers.lock_windows();
    if (auto holds = WindowState::of(*scratch).holds) {
      using Kept = std::pair<std::shared_ptr<WindowState::Holds>, std::unique_ptr<FarRanks>>;
      state.kept_for_peers.push_back(  // the second, whose target is the first, ends before it
          std::make_shared<Kept>(std::move(holds), std::move(far)));
    }
  }

  Communicator comm;
  std::optional<Window> window{};   // the user's, kept for the kernels
  std::optional<Window> scratch{};  // `TeamLayout`, of every rank
  std::unique_ptr<FarRanks> far{};  // null: none
  NetworkTeam team;
  Team near;                 // without blocks if it has far ranks, so that its kernels fail
  LaneFailure lane_failure;  // of CPU lanes
  WaitRecord waits;          // of CPU lanes
};

namespace {

constexpr const char* device_comm_name = "a DeviceComm";
constexpr Index max_ids = Index{1} << 20;
constexpr Index max_packet_bytes = Index{1} << 40;

/// Requirements of one rank, exchanged between ranks.
struct Needs {
  Index blocks = 0, signals = 0, counters = 0, ll_bytes = 0, ll128_bytes = 0, window_bytes = 0;
  bool operator==(const Needs&) const = default;

  std::string wrong() const {
    return FieldCheck{}
        .in_range("blocks", blocks, 1, max_ids)
        .in_range("signals", signals, 0, max_ids)
        .in_range("counters", counters, 0, max_ids)
        .in_range("ll_bytes", ll_bytes, 0, max_packet_bytes)
        .in_range("ll128_bytes", ll128_bytes, 0, max_packet_bytes)
        .why();
  }
};

/// Fails if lines of LL128 to or from a peer do not arrive whole.
Result<void> check_lines(const CommState& state, const Window& window, const Needs& needs) {
  if (!state.device.gpu || needs.ll128_bytes == 0) return {};
  const int me = state.identity.rank();
  const auto& peers = state.identity.peers();
  for (int p = 0; p < state.identity.ranks(); ++p) {
    const PeerInfo& low = peers[std::size_t(std::min(p, me))];
    const PeerInfo& high = peers[std::size_t(std::max(p, me))];
    int bytes = LL128::line_bytes;
    if (p != me) bytes = P2pTransport::edge_transport(low, high).line_bytes;
    if (window.at(p) == nullptr) bytes = sizeof(Word);  // a copy into the memory of a GPU
    if (bytes >= LL128::line_bytes) continue;
    Error error{
        Errc::not_supported,
        fmt::format("{} cannot have packets of LL128 (rank {} and rank {} exchange {} bytes "
                    "at once and LL128 needs {}); use Tiles over LL, and ll128_bytes = 0",
                    device_comm_name, me, p, bytes, LL128::line_bytes)};
    error.peer = p;
    return fail(std::move(error));
  }
  return {};
}

Result<void> check_given(const CommState& state, const Communicator& comm, const Window& window,
                         const Needs& needs) {
  if (auto why = needs.wrong(); !why.empty()) {
    return fail(Errc::invalid_argument,
                fmt::format("rank {} cannot create {} ({}); give DeviceRequirements in that range",
                            state.identity.rank(), device_comm_name, why));
  }
  if (!is_open_window(comm, window)) {
    return fail(Errc::invalid_argument,
                fmt::format("rank {} gave {} a window that is not one of its communicator (it is "
                            "closed, moved from, or another communicator's); create it with "
                            "Window::create on this communicator",
                            state.identity.rank(), device_comm_name));
  }
  if (state.identity.ranks() > Team::max_ranks) {
    return fail(Errc::not_supported,
                fmt::format("{} has {} ranks (kernels address at most {}); split the communicator",
                            device_comm_name, state.identity.ranks(), Team::max_ranks));
  }
  return check_lines(state, window, needs);
}

/// Agrees on the requirements of all ranks. Collective.
Result<void> compare(CommState& state, const Needs& mine, const Result<void>& good) {
  if (state.identity.ranks() == 1) return good;
  const auto lock = state.rendezvous.lock();
  CCL_CHECK(all_agree(state, device_comm_name, good));
  std::vector<Needs> all(std::size_t(state.identity.ranks()), Needs{});
  all[std::size_t(state.identity.rank())] = mine;
  CCL_CHECK(state.rendezvous.after_creation(state.rendezvous.bootstrap()->all_gather(
      all.data(), Index{sizeof(Needs)}, {}, {"the creation of", device_comm_name})));
  CCL_CHECK(check_gathered(state, all, [](const Needs& of, int) { return of.wrong(); }));
  for (int p = 0; p < state.identity.ranks(); ++p) {
    const Needs& of = all[std::size_t(p)];
    if (of == mine) continue;
    Error error{Errc::mismatch,
                fmt::format("the ranks' DeviceRequirements or windows differ (rank {} asks for {} "
                            "blocks, {} signals, {} counters, {} and {} bytes of packets and a "
                            "window of {} bytes; rank {} for {}, {}, {}, {}, {} and {}); give all "
                            "ranks the same",
                            p, of.blocks, of.signals, of.counters, of.ll_bytes, of.ll128_bytes,
                            of.window_bytes, state.identity.rank(), mine.blocks, mine.signals,
                            mine.counters, mine.ll_bytes, mine.ll128_bytes, mine.window_bytes)};
    error.peer = p;
    return fail(std::move(error));
  }
  return {};
}

AbortWatch watch_of(CommState& state, DeviceCommState& made) {
  const Word deadline_ns = Word(state.limits.timeout_s * 1e9);
  if (state.device.gpu) {
    Watched& watched = state.device.gpu->watched();
    return {&watched.stop, &watched.lane_failure, deadline_ns, &watched.program_waits, 0};
  }
  return {reinterpret_cast<const Word*>(&state.status.word()), &made.lane_failure, deadline_ns,
          &made.waits, 0};
}

/// Connects the ranks whose memory is not mapped. Collective.
Result<void> connect_far(CommState& state, DeviceCommState& made, TeamData& team) {
  std::vector<int> peers;
  for (int p = 0; p < team.ranks; ++p) {
    if (team.scratch[p] == nullptr) peers.push_back(p);
  }
  if (team.ranks == 1) return {};
  const FarTarget target{team.window[team.rank], team.scratch[team.rank], team.window_bytes,
                         team.layout.bytes};
  CCL_TRY(made.far, FarRanks::connect(state, state.rendezvous.next_composition(), peers, target));
  team.far_ranks = int(peers.size());
  team.queue = made.far->queue();
  return {};
}

Result<std::shared_ptr<DeviceCommState>> make(const Communicator& comm, const Window& window,
                                              const DeviceRequirements& needs) {
  CommState& state = *Access::state(comm);
  CCL_CHECK(state.ready());
  const Needs mine{needs.blocks,   needs.signals,     needs.counters,
                   needs.ll_bytes, needs.ll128_bytes, window.bytes()};
  if (auto same = compare(state, mine, check_given(state, comm, window, mine)); !same) {
    return fail(state.annotate(std::move(same).error()));
  }
  auto made = std::make_shared<DeviceCommState>(comm);
  TeamData team;
  team.layout = TeamLayout::of(needs, state.identity.ranks());
  auto memory = SharedMemory::allocate(comm, team.layout.bytes);
  if (state.identity.ranks() > 1) {
    const auto lock = state.rendezvous.lock();
    const Result<void> allocated = memory ? Result<void>{} : fail(memory.error());
    CCL_CHECK(all_agree(state, device_comm_name, allocated));
  }
  if (!memory) return fail(std::move(memory).error());
  const WindowReach reach = WindowState::of(window).reach;
  CCL_TRY(made->scratch, Window::create(comm, *memory, reach));
  WindowState::hold_no_buffers(*made->scratch);
  made->window = window;
  team.rank = state.identity.rank();
  team.ranks = state.identity.ranks();
  team.blocks = needs.blocks;
  team.signals = needs.signals;
  team.counters = needs.counters;
  team.window_bytes = window.bytes();
  for (int p = 0; p < team.ranks; ++p) {
    team.window[p] = reinterpret_cast<char*>(window.at(p));
    team.scratch[p] = reinterpret_cast<char*>(made->scratch->at(p));
  }
  if (reach == WindowReach::near) CCL_CHECK(connect_far(state, *made, team));
  team.watch = watch_of(state, *made);
  state.departure.watch(made->waits);
  made->team = NetworkTeam{team};
  if (team.far_ranks > 0) team.blocks = 0;
  made->near = Team{team};
  return made;
}

}  // namespace
}  // namespace detail

Result<DeviceComm> DeviceComm::create(const Communicator& comm, const Window& window,
                                      const DeviceRequirements& needs) {
  return detail::guarded(comm, [&]() -> Result<DeviceComm> {
    CCL_TRY(auto state, detail::make(comm, window, needs));
    return DeviceComm{std::move(state)};
  });
}

std::shared_ptr<detail::DeviceCommState> DeviceComm::moved_from() {
  static constinit detail::MadeOnce<detail::DeviceCommState> one;
  detail::DeviceCommState& state = one.get([] {
    auto made = std::make_unique<detail::DeviceCommState>(
        detail::Access::communicator(detail::moved_from()));
    detail::TeamData none;
    none.rank = -1;
    none.ranks = 0;
    made->team = NetworkTeam{none};
    made->near = Team{none};
    return made;
  });
  return {std::shared_ptr<void>{}, &state};
}

const Team& DeviceComm::team() const {
  return state_->near;
}

const NetworkTeam& DeviceComm::network_team() const {
  return state_->team;
}

Result<void> DeviceComm::status() const {
  return detail::guarded(state_->comm, [&]() -> Result<void> {
    detail::CommState& state = *detail::Access::state(state_->comm);
    if (!state.device.gpu) state.look_at_lanes(state_->lane_failure);
    return state.ready();  // looks at a GPU
  });
}

Result<void> DeviceComm::check_launch(int blocks, int resident) const {
  const detail::CommState& state = *detail::Access::state(state_->comm);
  const int most = state_->team.data().blocks;
  if (blocks < 1 || blocks > most) {
    return fail(state.annotate({Errc::invalid_argument,
                                fmt::format("a launch has {} blocks (its team has {}); launch 1 to "
                                            "that many, or raise DeviceRequirements::blocks",
                                            blocks, most)}));
  }
  const int sharing = state.device.gpu ? state.device.ranks_on_gpu : 1;
  if (resident < 0 || Index{blocks} * sharing <= resident) return {};
  return fail(state.annotate(
      {Errc::invalid_argument,
       fmt::format("a launch has {} blocks on each of the {} ranks of a GPU (it runs {} of this "
                   "kernel at once, and blocks that wait for peers must all run); launch fewer or "
                   "smaller blocks",
                   blocks, sharing, resident)}));
}

Result<void> DeviceComm::close() const {
  return detail::guarded(state_->comm, [&]() -> Result<void> {
    CCL_CHECK(status());
    if (state_->far) CCL_CHECK(state_->far->finish());
    return state_->scratch->close();
  });
}

}  // namespace ccl
