#include <ccl/settings.hpp>
#include <ccl/transport/p2p.hpp>

#include <fmt/format.h>

#include <memory>

#include "gpu/devices.hpp"
#include "gpu/memory.hpp"
#include "transport/fd_server.hpp"
#include "transport/wire_memory.hpp"

namespace ccl {
namespace detail {
namespace {
constexpr std::size_t line = 128;

/// What lies in whose memory, for each channel: two words, each on a line of its own; in the
/// receiver's, the slots follow the words of all channels.
std::size_t block_bytes(const Edge& edge) {
  const WireShape& shape = edge.shape;
  const std::size_t words = 2 * line * std::size_t(shape.channels);
  if (edge.side == Side::sender) return words;
  return words + std::size_t(shape.channels) * std::size_t(shape.slot_count) *
                     std::size_t(shape.slot_bytes);
}

/// What one end says of the memory that it made.
struct Said {
  Nonce nonce{};
  UnixName name;
  GpuMemoryName memory;
  Word offset = 0;
};
static_assert(sizeof(Said) <= sizeof(Handshake));
}  // namespace

struct P2pEnd {
  TransportContext context;
  Edge edge;
  GpuBlock mine, theirs;
  Nonce nonce{};
  FdOffer offer;

  auto refuse(Errc code, std::string what) const {
    return fail(edge_error(edge, P2pTransport::name, code, std::move(what)));
  }
  Result<void> blame(Result<void> done) const {
    if (done) return {};
    Error error = std::move(done).error();
    error.rank = edge.self.rank;
    error.peer = edge.peer.rank;
    error.transport = P2pTransport::name;
    return fail(std::move(error));
  }

  Result<void> make() {
    CCL_TRY(mine, context.arena->allocate(block_bytes(edge)));
    CCL_CHECK(fill_random(&nonce, sizeof nonce));
    if (edge.self.pid_hash == edge.peer.pid_hash || mine.memory->name().handles == 0) return {};
    CCL_TRY(Fd fd, mine.memory->share());
    CCL_TRY(offer,
            FdOffer::make(proof_of(context, nonce, edge.id, unsigned(edge.side == Side::sender)),
                          edge.shape, std::move(fd)));
    return {};
  }

  Result<void> reach(const Said& said) {
    const std::shared_ptr<Gpu>& gpu = context.arena->gpu();
    if (edge.self.pid_hash == edge.peer.pid_hash) {
      CCL_TRY(theirs.memory, GpuMemory::find(*gpu, said.memory));
      if (!theirs.memory) {
        return refuse(Errc::peer_lost,
                      fmt::format("rank {} has no such memory any more (its end was destroyed); "
                                  "keep both ends until both connect",
                                  edge.peer.rank));
      }
    } else {
      theirs.memory = GpuMemory::mapped(*gpu, said.memory);
      if (!theirs.memory) {
        Fd fd;
        if (said.memory.handles != 0) {
          CCL_TRY(fd, fetch_fd(context, edge, P2pTransport::name, said.name,
                               proof_of(context, said.nonce, edge.id,
                                        unsigned(edge.side != Side::sender))));
        }
        CCL_TRY(theirs.memory, GpuMemory::map(gpu, said.memory, fd));
      }
    }
    Edge other = edge;
    other.side = edge.side == Side::sender ? Side::receiver : Side::sender;
    theirs.offset = said.offset;
    if (said.offset > theirs.memory->name().bytes ||
        theirs.memory->name().bytes - said.offset < block_bytes(other)) {
      return refuse(Errc::mismatch,
                    fmt::format("the ends of edge {} do not match (rank {} made {} bytes)", edge.id,
                                edge.peer.rank, theirs.memory->name().bytes - said.offset));
    }
    return probe(*gpu);
  }

  /// A word of the peer's, which nobody uses before both ends have connected, written and read back
  /// through the mapping, and left as it was.
  Result<void> probe(const Gpu& gpu) {
    std::byte* const at = theirs.at() + (edge.side == Side::sender ? 0 : line);
    const Word zero = 0;
    Word token = 0x5ca1ab1e'00000000u + Word(edge.self.rank), back = 0;
    CCL_CHECK(gpu.copy(at, &token, sizeof token));
    CCL_CHECK(gpu.copy(&back, at, sizeof back));
    CCL_CHECK(gpu.copy(at, &zero, sizeof zero));
    if (back == token) return {};
    return refuse(Errc::not_supported,
                  fmt::format("memory of rank {} on device {} does not keep what is written to it "
                              "(IOMMU or ACS may be in the way); set CCL_P2P_DISABLE=1 to go "
                              "through host memory",
                              edge.peer.rank, edge.peer.device));
  }

  std::vector<Wire> wires() const {
    const bool sends = edge.side == Side::sender;
    std::byte* const receiver = sends ? theirs.at() : mine.at();
    std::byte* const sender = sends ? mine.at() : theirs.at();
    const WireShape& shape = edge.shape;
    const auto word = [](std::byte* at, std::size_t n) {
      return reinterpret_cast<Word*>(at + n * line);
    };
    std::vector<Wire> wires;
    for (std::size_t c = 0; c < std::size_t(shape.channels); ++c) {
      Wire wire;
      wire.posted = word(receiver, 2 * c);
      wire.drained = word(sender, 2 * c + 1);
      if (sends) wire.sent = word(sender, 2 * c);
      if (!sends) wire.received = word(receiver, 2 * c + 1);
      wire.slots = reinterpret_cast<Packet*>(receiver + 2 * line * std::size_t(shape.channels) +
                                             c * std::size_t(shape.slot_count) *
                                                 std::size_t(shape.slot_bytes));
      wire.slot_count = shape.slot_count;
      wire.slot_packets = int(shape.slot_bytes / Index(sizeof(Packet)));
      wires.push_back(wire);
    }
    return wires;
  }
};

}  // namespace detail

Result<void> P2pTransport::can_connect(const PeerInfo& from, const PeerInfo& to) {
  const auto refuse = [&](std::string why) {
    return fail(Errc::no_transport, fmt::format("p2p does not connect rank {} to rank {} ({})",
                                                from.rank, to.rank, why));
  };
  if (from.device < 0 || to.device < 0) return refuse("it is for GPUs; shm or socket would");
  CCL_TRY(const bool disabled, setting_flag("P2P_DISABLE"));
  if (disabled) return refuse("CCL_P2P_DISABLE is 1");
  if (from.host_hash != to.host_hash) return refuse("they are on different hosts; socket would");
  if (from.bus_id == to.bus_id) return {};
  CCL_TRY(const detail::CudaDriver* const cuda, detail::cuda_driver());
  const auto device_at = [&](cuda::std::int64_t bus_id) {
    CUdevice device = -1;
    const std::string text = detail::bus_id_text(bus_id);
    return cuda->device_get_by_pci_bus_id(&device, text.c_str()) == CUDA_SUCCESS ? device : -1;
  };
  const CUdevice a = device_at(from.bus_id), b = device_at(to.bus_id);
  if (a < 0 || b < 0) {
    // This process does not see one of them; cuMem handles work all the same.
    CCL_TRY(const bool handles, setting_flag("CUMEM_ENABLE"));
    if (handles) return {};
    return refuse(
        "legacy IPC handles want both GPUs visible to both processes; leave "
        "CCL_CUMEM_ENABLE at 1");
  }
  int reaches = 0;
  CCL_CHECK(detail::cuda_check(
      cuda->device_can_access_peer(&reaches, a, b),
      fmt::format("ask whether GPU {} reaches GPU {}", detail::bus_id_text(from.bus_id),
                  detail::bus_id_text(to.bus_id))));
  if (reaches != 0) return {};
  return refuse(fmt::format("GPU {} cannot access GPU {}; shm would",
                            detail::bus_id_text(from.bus_id), detail::bus_id_text(to.bus_id)));
}

Result<P2pTransport::End> P2pTransport::setup(TransportContext& context, const Edge& edge) {
  End end;
  end.end_ = std::make_shared<detail::P2pEnd>();
  end.end_->context = context;
  end.end_->edge = edge;
  if (context.arena == nullptr) {
    return end.end_->refuse(Errc::invalid_usage, "this communicator has no GPU");
  }
  CCL_TRY(const auto layout, detail::WireLayout::of(edge.shape));  // refuses shapes that cannot be
  (void)layout;
  CCL_CHECK(end.end_->blame(end.end_->make()));
  return end;
}

Handshake P2pTransport::End::handshake() const {
  detail::Said said;
  said.nonce = end_->nonce;
  said.name = end_->offer.name();
  said.memory = end_->mine.memory->name();
  said.offset = end_->mine.offset;
  Handshake mine{};
  detail::HandshakeCursor{}.put(mine, said);
  return mine;
}

Result<Connection> P2pTransport::End::connect(const Handshake& theirs) {
  CCL_CHECK(end_->blame(end_->reach(detail::HandshakeCursor{}.get<detail::Said>(theirs))));
  Connection connection;
  connection.wires = end_->wires();
  using Blocks = std::pair<detail::GpuBlock, detail::GpuBlock>;
  connection.owner = std::make_shared<Blocks>(end_->mine, end_->theirs);
  connection.transport = name;
  return connection;
}

}  // namespace ccl
