#include <ccl/comm/log.hpp>
#include <ccl/detail/runtime/settings.hpp>
#include <ccl/transport/p2p.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>

#include "gpu/devices.hpp"
#include "topo/graph/p2p_path.hpp"
#include "transport/edge_error.hpp"
#include "transport/p2p/check.hpp"
#include "transport/p2p/mapping.hpp"
#include "transport/wire_layout.hpp"

namespace ccl {
namespace detail {
namespace {
constexpr std::size_t line = 128;

/// Each channel has two words, each on a line of its own, in the memory of the end that polls it.
/// The slots follow the words of all channels in the receiver's memory, in read mode in the
/// sender's. With a GPU in between, each end keeps the word that only it reads, and all else is in
/// that GPU's memory.
constexpr std::size_t words_per_channel = 2;
std::size_t word_bytes(const WireShape& shape) {
  return words_per_channel * line * std::size_t(shape.channels);
}
std::size_t slot_bytes(const WireShape& shape) {
  return std::size_t(shape.channels) * std::size_t(shape.slot_count) *
         std::size_t(shape.slot_bytes);
}
std::size_t block_bytes(const WireShape& shape, EdgeSide side, bool reads) {
  const EdgeSide holder = reads ? EdgeSide::sender : EdgeSide::receiver;
  return word_bytes(shape) + (side == holder ? slot_bytes(shape) : 0);
}

/// Bus id of the GPU between them; -1: they address each other.
std::int64_t relay_between(const PeerInfo& a, const PeerInfo& b) {
  return std::max(a.way.relay_bus_id, b.way.relay_bus_id);
}

/// Reason why there is no peer access; empty if there is.
Result<std::string> driver_refuses(const PeerInfo& from, const PeerInfo& to) {
  if (from.host_hash != to.host_hash) return std::string{};  // no process sees both
  CCL_TRY(const CudaDriver* const cuda, cuda_driver());
  const auto device_at = [&](cuda::std::int64_t bus_id) {
    CUdevice device = -1;
    const std::string text = bus_id_text(bus_id);
    return cuda->device_get_by_pci_bus_id(&device, text.c_str()) == CUDA_SUCCESS ? device : -1;
  };
  const CUdevice a = device_at(from.bus_id), b = device_at(to.bus_id);
  if (a < 0 || b < 0) {
    // This process does not see one of them; cuMem handles work without that.
    CCL_TRY(const bool handles, setting_flag("CUMEM_ENABLE"));
    if (handles) return std::string{};
    return std::string{
        "legacy IPC handles want both GPUs visible to both processes; leave CCL_CUMEM_ENABLE at 1"};
  }
  int reaches = 0;
  CCL_CHECK(cuda_check(cuda->device_can_access_peer(&reaches, a, b),
                       fmt::format("ask whether GPU {} reaches GPU {}", bus_id_text(from.bus_id),
                                   bus_id_text(to.bus_id))));
  if (reaches != 0) return std::string{};
  return fmt::format("GPU {} cannot access GPU {}; shm would", bus_id_text(from.bus_id),
                     bus_id_text(to.bus_id));
}
}  // namespace

struct P2pEnd {
  TransportContext context;
  Edge edge;
  GpuBlock own;        // of this rank's GPU
  P2pMapping mapping;  // `own`, or memory of the GPU in between, for the peer
  bool reads = false;  // read mode

  auto refuse(Errc code, std::string what) const {
    return fail(edge_error(edge, P2pTransport::name, code, std::move(what)));
  }
  Result<void> make() {
    CCL_TRY(const bool wanted, setting_flag("P2P_READ_ENABLE"));
    reads = wanted && !edge.polls_slots;
    const std::int64_t relay = relay_between(edge.self, edge.peer);
    if (relay >= 0) return make_over(relay);
    const EdgeSide other = edge.side == EdgeSide::sender ? EdgeSide::receiver : EdgeSide::sender;
    CCL_TRY(own, context.arena->allocate(block_bytes(edge.shape, edge.side, reads)));
    CCL_TRY(mapping, P2pMapping::make(context, edge, own, block_bytes(edge.shape, other, reads),
                                      P2pMapping::probed_words_of_wires, reads));
    return {};
  }
  /// The receiver allocates memory of the GPU in between, and the sender maps it.
  Result<void> make_over(std::int64_t relay) {
    if (reads) {
      log_info(LogPart::p2p,
               "rank {} {} rank {} through memory of GPU {}, where the sender writes, whatever "
               "CCL_P2P_READ_ENABLE says",
               edge.self.rank, edge.side == EdgeSide::sender ? "sends to" : "receives from",
               edge.peer.rank, bus_id_text(relay));
    }
    reads = false;
    CCL_TRY(own, context.arena->allocate(word_bytes(edge.shape)));
    const std::size_t bytes = word_bytes(edge.shape) + slot_bytes(edge.shape);
    GpuBlock between;
    if (edge.side == EdgeSide::receiver) {
      CCL_TRY(between.memory, GpuMemory::allocate_on(relay, context.arena->gpu(), bytes));
    }
    CCL_TRY(mapping, P2pMapping::make(context, edge, std::move(between),
                                      edge.side == EdgeSide::sender ? bytes : 0));
    return {};
  }

  std::vector<Wire> wires() const {
    const bool sends = edge.side == EdgeSide::sender;
    const bool relayed = relay_between(edge.self, edge.peer) >= 0;
    std::byte* const shown = (sends ? mapping.theirs() : mapping.mine()).at();
    std::byte* const credits = relayed ? shown : (sends ? mapping.mine() : mapping.theirs()).at();
    std::byte* const slots = (reads ? credits : shown) + word_bytes(edge.shape);
    const WireShape& shape = edge.shape;
    const auto word = [](std::byte* at, std::size_t n) {
      return reinterpret_cast<Word*>(at + n * line);
    };
    std::vector<Wire> wires;
    for (std::size_t c = 0; c < std::size_t(shape.channels); ++c) {
      Wire wire;
      wire.posted = word(shown, 2 * c);
      wire.drained = word(credits, 2 * c + 1);
      if (sends) wire.sent = word(own.at(), 2 * c);
      if (!sends) wire.received = word(own.at(), 2 * c + 1);
      wire.slots = reinterpret_cast<Packet*>(slots + c * std::size_t(shape.slot_count) *
                                                         std::size_t(shape.slot_bytes));
      wire.slot_count = shape.slot_count;
      wire.slot_packets = int(shape.slot_bytes / Index(sizeof(Packet)));
      wires.push_back(wire);
    }
    return wires;
  }
};

}  // namespace detail

namespace detail {
namespace {
auto refusal(const PeerInfo& from, const PeerInfo& to, std::string_view why) {
  return fail(Errc::no_transport,
              fmt::format("p2p does not connect rank {} to rank {} ({})", from.rank, to.rank, why));
}

/// Checks that a pair addresses each other's memory, on any hosts.
Result<void> reaches(const PeerInfo& from, const PeerInfo& to) {
  const auto refuse = [&](std::string why) { return refusal(from, to, why); };
  if (from.device < 0 || to.device < 0) return refuse("it is for GPUs; shm or socket would");
  CCL_TRY(const bool disabled, setting_flag("P2P_DISABLE"));
  if (disabled) return refuse("CCL_P2P_DISABLE is 1");
  if (from.host_hash != to.host_hash && !same_fabric(from, to)) {
    return refuse("they are on different hosts, which no NVLink domain joins; socket would");
  }
  if (from.host_hash == to.host_hash) {  // their handles are descriptors
    if (auto why = no_common_memory(from, to); !why.empty()) return refuse(std::move(why));
  }
  const auto fault = PathFault(std::max(from.way.fault, to.way.fault));
  if (failed_its_check(fault)) {
    return refuse(
        fmt::format("{} when the communicator was created, so IOMMU or ACS may be in the "
                    "way; shm would, and CCL_P2P_CHECK=0 uses paths without a check",
                    fault_text(fault)));
  }
  if (fault == PathFault::excluded) return refuse("CCL_P2P_EXCLUDE names them; shm would");
  if (same_gpu(from, to)) return {};
  if (are_instances(from, to)) {
    return refuse(
        "they are on two instances (MIG) of one GPU, without a path between them; shm would");
  }
  CCL_TRY(const auto level, p2p_level());
  if (const auto path = gpu_path(from, to); level && path > *level) {
    return refuse(
        fmt::format("their path is {}, and CCL_P2P_LEVEL is {}; shm would, or a higher "
                    "level",
                    path_text(path), path_text(*level)));
  }
  if (auto why = driver_refuses(from, to); !why) {
    return fail(std::move(why).error());
  } else if (!why->empty()) {
    return refuse(*why);
  }
  if (fault == PathFault::none) return {};
  return refuse("a setting or the driver of the other one is against it; shm would");
}
}  // namespace
}  // namespace detail

Result<void> P2pTransport::can_address(const PeerInfo& from, const PeerInfo& to) {
  return detail::reaches(from, to);
}

Result<void> P2pTransport::can_connect(const PeerInfo& from, const PeerInfo& to) {
  if (detail::relay_between(from, to) >= 0) return {};
  return detail::reaches(from, to);
}

EdgeTransport P2pTransport::edge_transport(const PeerInfo& from, const PeerInfo& to) {
  const bool proven = detail::relay_between(from, to) < 0 && from.device >= 0 && to.device >= 0 &&
                      detail::lines_proven(from, to);
  return {name, Medium::gpu_memory, proven ? atomic_line_bytes : 16};
}

Result<P2pTransport::End> P2pTransport::setup(TransportContext& context, const Edge& edge) {
  End end;
  end.end_ = std::make_shared<detail::P2pEnd>();
  end.end_->context = context;
  end.end_->edge = edge;
  if (context.arena == nullptr) {
    return end.end_->refuse(Errc::invalid_usage, "this communicator has no GPU");
  }
  CCL_TRY(const auto layout, detail::WireLayout::of(edge.shape));  // refuses invalid shapes
  (void)layout;
  CCL_CHECK(end.end_->make());
  return end;
}

Handshake P2pTransport::End::handshake() const {
  return end_->mapping.handshake();
}

Result<Connection> P2pTransport::End::connect(const Handshake& theirs) {
  CCL_CHECK(end_->mapping.connect(theirs));
  Connection connection;
  connection.wires = end_->wires();
  using Blocks = std::array<detail::GpuBlock, 3>;
  connection.owner =
      std::make_shared<Blocks>(Blocks{end_->own, end_->mapping.mine(), end_->mapping.theirs()});
  connection.transport = name;
  connection.line_bytes = edge_transport(end_->edge.self, end_->edge.peer).line_bytes;
  connection.reads = end_->reads;
  return connection;
}

}  // namespace ccl
