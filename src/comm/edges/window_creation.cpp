#include "comm/edges/window_creation.hpp"

#include <ccl/transport/p2p.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/field_check.hpp"
#include "comm/edges/edge_handshake.hpp"
#include "comm/edges/local_part.hpp"
#include "comm/edges/memory_exchange.hpp"
#include "comm/edges/window_binder.hpp"
#include "comm/part_rules.hpp"
#include "comm/rank_results.hpp"
#include "comm/state.hpp"
#include "topo/graph/p2p_path.hpp"
#include "transport/p2p/mapping.hpp"

namespace ccl::detail {
namespace {

/// Memory of one rank in a window, exchanged between ranks.
struct Part {
  Word address = 0;
  Index bytes = 0;
  // Host memory with a file descriptor: its bytes in all, and where the part begins.
  Index whole = 0, offset = 0;
  int shared = 0;  // 1 for such memory
  int near = 0;    // 1 for `WindowReach::near`
};

std::string wrong_part(const Part& part) {
  FieldCheck check;
  check.in_range("bytes of a window", part.bytes, 1, std::numeric_limits<Index>::max())
      .flag("sharing of a window", part.shared)
      .flag("reach of a window", part.near);
  if (part.shared != 0 && check.good()) {
    check.in_range("memory of a window", part.whole, part.bytes, std::numeric_limits<Index>::max());
    const Index last = part.whole > part.bytes ? part.whole - part.bytes : 0;
    check.in_range("begin of a window", part.offset, 0, last);
  }
  return check.why();
}

Result<void> check_part(const CommState& state, const void* data, Index bytes) {
  if (data != nullptr && bytes > 0) return {};
  return fail(Errc::invalid_argument,
              fmt::format("rank {} gave a window {} bytes at {}; give every rank memory of its own",
                          state.identity.rank(), bytes, data));
}

/// True if no memory is mapped between this rank and `p`, because they are on different hosts.
bool is_far(const CommState& state, int p) {
  const PeerInfo& self = state.identity.peers()[std::size_t(state.identity.rank())];
  const PeerInfo& peer = state.identity.peers()[std::size_t(p)];
  return self.host_hash != peer.host_hash && !(state.device.gpu && same_fabric(self, peer));
}

Result<void> check_parts(const CommState& state, const std::vector<Part>& parts) {
  const Part& mine = parts[std::size_t(state.identity.rank())];
  for (int p = 0; p < state.identity.ranks(); ++p) {
    const Part& theirs = parts[std::size_t(p)];
    const PeerInfo& self = state.identity.peers()[std::size_t(state.identity.rank())];
    const PeerInfo& peer = state.identity.peers()[std::size_t(p)];
    Error error{Errc::mismatch, ""};
    error.peer = p;
    if (theirs.bytes != mine.bytes) {
      error.what =
          fmt::format("the ranks' parts of a window differ: rank {} gave {} bytes, rank {} gave {}",
                      p, theirs.bytes, state.identity.rank(), mine.bytes);
      return fail(std::move(error));
    }
    if (theirs.near != mine.near) {
      const auto name = [](int near) { return near != 0 ? "near" : "all"; };
      error.what = fmt::format(
          "the ranks' windows reach different ranks: rank {} gave WindowReach::{}, rank {} gave "
          "{}; "
          "give all ranks the same",
          p, name(theirs.near), state.identity.rank(), name(mine.near));
      return fail(std::move(error));
    }
    const bool apart = self.host_hash != peer.host_hash;
    if (is_far(state, p)) {
      if (mine.near != 0) continue;
      error.code = Errc::not_supported;
      error.what = fmt::format(
          "rank {} is on {}, and this rank on another host (a window is memory that is mapped, and "
          "no NVLink domain joins the hosts); make windows on the ranks of one host, by "
          "Communicator::split, or for a DeviceComm with WindowReach::near",
          p, peer.host);
      return fail(std::move(error));
    }
    if (auto why = apart ? std::string{} : no_common_memory(self, peer); !why.empty()) {
      error.code = Errc::not_supported;
      error.what = fmt::format("rank {} and rank {} cannot share a window ({})",
                               state.identity.rank(), p, why);
      return fail(std::move(error));
    }
    const bool of_others = self.pid_hash != peer.pid_hash;
    if (!state.device.gpu && of_others && (theirs.shared == 0 || mine.shared == 0)) {
      const int me = state.identity.rank(), owner = theirs.shared == 0 ? p : me;
      error.code = Errc::not_supported;
      error.what = fmt::format(
          "rank {}'s memory cannot be mapped by rank {} (a process's own memory has no "
          "descriptor); make the window of SharedMemory on all ranks",
          owner, owner == p ? me : p);
      return fail(std::move(error));
    }
  }
  return {};
}

/// Registration of a window on one rank.
class Maker {
 public:
  Maker(CommState& state, std::shared_ptr<WindowState> made, std::shared_ptr<SharedBlock> own)
      : state_{state}, made_{std::move(made)}, own_{std::move(own)} {}

  Result<void> run() {
    const int me = state_.identity.rank(), ranks = state_.identity.ranks();
    made_->number = Word(number_) + 1;
    std::vector<Part> parts(std::size_t(ranks), Part{});
    Part& mine = parts[std::size_t(me)];
    mine.address = reinterpret_cast<Word>(made_->base);
    mine.bytes = made_->bytes;
    mine.near = int(made_->reach == WindowReach::near);
    if (own_ && own_->file) {
      mine.shared = 1;
      mine.whole = own_->bytes;
      mine.offset = made_->base - own_->data();
    }
    const LocalPart shown{{state_.rendezvous.bootstrap()->secret(), number_, me},
                          {mine.address, mine.bytes}};
    const auto lock = state_.rendezvous.lock();
    const Result<void> good = check_part(state_, made_->base, made_->bytes);
    CCL_CHECK(all_agree(state_, window_name, good));
    CCL_CHECK(state_.rendezvous.after_creation(state_.rendezvous.bootstrap()->all_gather(
        parts.data(), Index{sizeof(Part)}, {}, {"the creation of", window_name})));
    CCL_CHECK(
        check_gathered(state_, parts, [](const Part& part, int) { return wrong_part(part); }));
    Result<void> so_far = check_parts(state_, parts);
    for (int p = 0; p < ranks && so_far; ++p) {
      if (is_far(state_, p)) {
        made_->at[std::size_t(p)] = nullptr;
      } else {
        so_far = find_part(parts, p);
      }
    }
    if (state_.device.gpu) return on_gpu(so_far, parts);
    return on_host(so_far, parts);
  }

 private:
  bool elsewhere(int p) const {
    const auto& peers = state_.identity.peers();
    return peers[std::size_t(p)].pid_hash != peers[std::size_t(state_.identity.rank())].pid_hash;
  }

  /// Takes the address of a part in this process. It is used as it is, so another rank's word for
  /// it is not enough: its thread must have entered it here.
  Result<void> find_part(const std::vector<Part>& parts, int p) {
    const Part& part = parts[std::size_t(p)];
    if (elsewhere(p)) return {};
    if (LocalPart::contains({state_.rendezvous.bootstrap()->secret(), number_, p},
                            {part.address, part.bytes})) {
      made_->at[std::size_t(p)] = reinterpret_cast<std::byte*>(part.address);
      return {};
    }
    Error error{Errc::not_supported,
                fmt::format("rank {} claims a window of {} bytes in the process of rank {}, which "
                            "has none (another library of the process has a copy of ccl of its "
                            "own?); let all link one shared library of ccl",
                            p, part.bytes, state_.identity.rank())};
    error.peer = p;
    return fail(std::move(error));
  }

  Result<void> on_gpu(Result<void> so_far, const std::vector<Part>& parts) {
    GpuBlock block;
    const auto prepare = [&]() -> Result<void> {
      CCL_CHECK(so_far);
      if (own_) {
        block = own_->gpu;
        return {};
      }
      bool others = false;
      const auto& peers = state_.identity.peers();
      const auto host = peers[std::size_t(state_.identity.rank())].host_hash;
      for (int p = 0; p < state_.identity.ranks(); ++p) {
        others |= elsewhere(p) && peers[std::size_t(p)].host_hash == host;
      }
      CCL_TRY(block.memory,
              GpuMemory::borrow(state_.device.gpu, made_->base, std::size_t(made_->bytes), others));
      block.offset = std::size_t(made_->base - block.memory->base());
      return {};
    };
    const Result<void> prepared = prepare();
    made_->holds->gpu.push_back(block);
    GpuArena arena{state_.device.gpu};
    const TransportContext context = transport_context(state_, &arena);
    std::vector<P2pMapping> mappings(std::size_t(state_.identity.ranks()));
    std::vector<EdgeHandshake> rendezvous_points;
    for (int p = 0; p < state_.identity.ranks(); ++p) {
      if (p == state_.identity.rank() || is_far(state_, p)) continue;
      const Edge edge = even_edge(state_, number_, p);
      const auto [low, high] = std::minmax({p, state_.identity.rank()});
      P2pMapping& mapping = mappings[std::size_t(p)];
      const auto offer = [&, edge, low = low, high = high]() -> Result<Handshake> {
        CCL_CHECK(P2pTransport::can_address(state_.identity.peers()[std::size_t(low)],
                                            state_.identity.peers()[std::size_t(high)]));
        CCL_TRY(mapping, P2pMapping::make(context, edge, block, std::size_t(made_->bytes), 0));
        return mapping.handshake();
      };
      const auto connect = [&, p](const Handshake& theirs) -> Result<void> {
        CCL_CHECK(mapping.connect(theirs));
        CCL_CHECK(check_mapping(mapping.theirs(), parts[std::size_t(p)], p));
        made_->at[std::size_t(p)] = mapping.theirs().at();
        made_->holds->gpu.push_back(mapping.theirs());
        return {};
      };
      rendezvous_points.push_back({p, edge.id, offer, connect});
    }
    CCL_CHECK(
        swap_handshakes(state_, window_name, P2pTransport::name, prepared, rendezvous_points));
    state_.observers.add(made_.get());  // before any rank uses it
    return all_agree(state_, window_name, {});
  }

  /// Checks that a mapping begins where the peer's part does. Nothing is written: the program may
  /// use its memory. `prove_paths` has tried the path with memory of ccl's own.
  ///
  /// Memory of this process is used at its own address, and a cuMem handle is mapped from its
  /// begin. A legacy handle names all pages of an allocation, and a small allocation shares them
  /// with others. The address within the pages is equal in all mappings.
  Result<void> check_mapping(const GpuBlock& theirs, const Part& part, int p) const {
    constexpr Word page = Word{2} << 20;  // of cudaMalloc
    const GpuMemoryName& name = theirs.memory->name();
    const auto at = reinterpret_cast<Word>(theirs.at());
    const bool shares_pages = name.handles == 0 && name.bytes < page;
    if (!elsewhere(p) || !shares_pages || at % page == part.address % page) return {};
    Error error{Errc::not_supported,
                fmt::format("the memory of rank {} does not appear where rank {} has mapped it "
                            "(an allocation of {} bytes shares its pages with others); take "
                            "SharedMemory, or an allocation of 2 MiB or more",
                            p, state_.identity.rank(), name.bytes)};
    error.peer = p;
    return fail(std::move(error));
  }

  Result<void> on_host(const Result<void>& so_far, const std::vector<Part>& parts) {
    const auto take = [&](int p, const Fd& fd) -> Result<void> {
      const Part& theirs = parts[std::size_t(p)];
      CCL_TRY(Mapping mapping, Mapping::of(fd, std::size_t(theirs.whole)));
      made_->at[std::size_t(p)] = mapping.base() + theirs.offset;
      made_->holds->host.push_back(std::move(mapping));
      return {};
    };
    const auto bytes = [&](int p) { return std::size_t(parts[std::size_t(p)].whole); };
    const auto with = [this](int p) { return elsewhere(p) && !is_far(state_, p); };
    static const Fd none;
    return share_memory(state_, {number_, window_name, "shm", 0, with, take, bytes},
                        own_ ? own_->file : none, so_far);
  }

  CommState& state_;
  std::shared_ptr<WindowState> made_;
  std::shared_ptr<SharedBlock> own_;
  int number_ = state_.rendezvous.next_composition();  // a number of its own for the edges
};

}  // namespace

Result<std::shared_ptr<WindowState>> make_window(const Communicator& comm, std::byte* data,
                                                 Index bytes, WindowReach reach,
                                                 std::shared_ptr<SharedBlock> own) {
  CommState& state = *Access::state(comm);
  CCL_CHECK(state.ready());
  auto made = left_alone_by_forks(new WindowState{comm});
  made->base = data;
  made->bytes = bytes;
  made->reach = reach;
  made->at.assign(std::size_t(state.identity.ranks()), data);
  made->holds->own = own;
  if (state.identity.ranks() == 1) {
    if (auto good = check_part(state, data, bytes); !good) {
      return fail(state.annotate(std::move(good).error()));
    }
  } else if (auto done = Maker{state, made, std::move(own)}.run(); !done) {
    return fail(state.annotate(std::move(done).error()));
  }
  state.observers.add(made.get());
  made->counted = std::ranges::find(made->at, nullptr) == made->at.end();
  if (!made->counted) return made;
  state.observers.open_window(made->number);
  if (state.window_binder) {
    if (auto bound = state.window_binder->bind_open(); !bound) {
      return fail(state.annotate(std::move(bound).error()));
    }
  }
  return made;
}

}  // namespace ccl::detail
