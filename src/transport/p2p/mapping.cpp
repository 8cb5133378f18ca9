#include "transport/p2p/mapping.hpp"

#include <ccl/transport/p2p.hpp>

#include <fmt/format.h>

#include "base/field_check.hpp"
#include "base/random.hpp"
#include "transport/edge_error.hpp"
#include "transport/handshake_fields.hpp"

namespace ccl::detail {
namespace {
Result<void> annotate(Result<void> done, const Edge& edge) {
  if (done) return {};
  Error error = std::move(done).error();
  error.rank = edge.self.rank;
  error.peer = edge.peer.rank;
  error.transport = P2pTransport::name;
  return fail(std::move(error));
}
}  // namespace

/// One end's description of the memory that it made.
struct P2pMapping::OpenReply {
  Nonce nonce{};
  UnixName name;
  GpuMemoryName memory;
  Word offset = 0;
  Word reads = 0;  // 1: read mode
};

Result<P2pMapping> P2pMapping::make(const TransportContext& context, const Edge& edge,
                                    GpuBlock mine, std::size_t theirs_bytes,
                                    std::size_t probed_words, bool reads) {
  P2pMapping mapping;
  mapping.context_ = context;
  mapping.edge_ = edge;
  mapping.mine_ = std::move(mine);
  mapping.theirs_bytes_ = theirs_bytes;
  mapping.probed_words_ = probed_words;
  mapping.reads_ = reads;
  const auto offer = [&]() -> Result<void> {
    if (!mapping.mine_.memory) return {};
    CCL_CHECK(fill_random(&mapping.nonce_, sizeof mapping.nonce_));
    const GpuMemory& memory = *mapping.mine_.memory;
    if (edge.self.pid_hash == edge.peer.pid_hash) return {};
    if (edge.self.host_hash != edge.peer.host_hash) {
      if (memory.name().handles == 2) return {};
      return fail(
          Errc::not_supported,
          fmt::format("memory of device {} has no fabric handle, which rank {} on another "
                      "host needs (does nvidia-imex run, and is "
                      "/dev/nvidia-caps-imex-channels there? memory of cudaMalloc has none); "
                      "give a window SharedMemory, and CCL_MNNVL_ENABLE=0 takes the network",
                      edge.self.device, edge.peer.rank));
    }
    if (memory.name().handles == 0) return {};
    CCL_TRY(Fd fd, memory.share());
    const unsigned end = unsigned(edge.side == EdgeSide::sender);
    CCL_TRY(mapping.offer_, FdOffer::make(proof_of(context, mapping.nonce_, edge.id, end),
                                          edge.shape, std::move(fd)));
    return {};
  };
  CCL_CHECK(annotate(offer(), edge));
  return mapping;
}

Handshake P2pMapping::handshake() const {
  static_assert(sizeof(OpenReply) <= sizeof(Handshake));
  OpenReply said;
  said.nonce = nonce_;
  said.name = offer_.name();
  if (mine_.memory) said.memory = mine_.memory->name();
  said.offset = mine_.offset;
  said.reads = reads_ ? 1 : 0;
  Handshake mine{};
  HandshakeCursor{}.put(mine, said);
  return mine;
}

Result<void> P2pMapping::connect(const Handshake& theirs) {
  if (theirs_bytes_ == 0) return {};
  return annotate(scope(HandshakeCursor{}.get<OpenReply>(theirs)), edge_);
}

std::string P2pMapping::wrong(const OpenReply& said) const {
  constexpr Word line = 128;  // to which blocks with probed words are aligned
  FieldCheck check;
  check.in_range("mode", said.reads, 0, 1)
      .in_range("kind of handle", said.memory.handles, 0, 2)
      .in_range("owner", said.memory.borrowed, 0, 1);
  if (probed_words_ > 0) {
    check.require(said.offset % line == 0,
                  fmt::format("offset is {}, no multiple of {}", said.offset, line));
  }
  return check.why();
}

Result<void> P2pMapping::scope(const OpenReply& said) {
  const auto refuse = [&](Errc code, std::string what) {
    return fail(edge_error(edge_, P2pTransport::name, code, std::move(what)));
  };
  if (const std::string why = wrong(said); !why.empty()) {
    return refuse(Errc::mismatch,
                  fmt::format("rank {} has sent rank {} a handshake that is not one of p2p ({}); "
                              "run the same version of ccl on all ranks",
                              edge_.peer.rank, edge_.self.rank, why));
  }
  if (said.reads != Word(reads_)) {
    return refuse(Errc::mismatch,
                  fmt::format("the ends of edge {} do not match (CCL_P2P_READ_ENABLE is {} on rank "
                              "{} and {} on rank {}, so that each looks for slots in the other's "
                              "memory, or in its own); set it to the same on all ranks",
                              edge_.id, int(reads_), edge_.self.rank, said.reads, edge_.peer.rank));
  }
  const std::shared_ptr<Gpu>& gpu = context_.arena->gpu();
  if (edge_.self.pid_hash == edge_.peer.pid_hash) {
    CCL_TRY(theirs_.memory, GpuMemory::find(*gpu, said.memory));
    if (!theirs_.memory) {
      return refuse(Errc::peer_lost,
                    fmt::format("rank {} has no such memory any more (its end was destroyed); keep "
                                "both ends until both connect",
                                edge_.peer.rank));
    }
  } else {
    theirs_.memory = GpuMemory::mapped(*gpu, said.memory);
    if (!theirs_.memory) {
      Fd fd;
      if (said.memory.handles != 0 && edge_.self.host_hash == edge_.peer.host_hash) {
        const unsigned end = unsigned(edge_.side != EdgeSide::sender);
        CCL_TRY(fd, fetch_fd(context_, edge_, P2pTransport::name, said.name,
                             proof_of(context_, said.nonce, edge_.id, end)));
      }
      CCL_TRY(theirs_.memory, GpuMemory::map(gpu, said.memory, fd, edge_.peer.rank));
    }
  }
  theirs_.offset = said.offset;
  const std::size_t bytes = theirs_.memory->name().bytes;
  if (said.offset > bytes || bytes - said.offset < theirs_bytes_) {
    return refuse(Errc::mismatch,
                  fmt::format("the ends of edge {} do not match (rank {} made {} bytes, {} are "
                              "wanted)",
                              edge_.id, edge_.peer.rank, bytes - said.offset, theirs_bytes_));
  }
  if (probed_words_ == 0) return {};
  return probe(*gpu);
}

Result<void> P2pMapping::probe(const Gpu& gpu) const {
  // The owner of a wire's block may already wait for steps. Ends of a peer view probe one block at
  // the same time and must use different words.
  const std::size_t word = 1 + std::size_t(edge_.self.rank) % probed_words_;
  std::byte* const at = theirs_.at() + word * sizeof(Word);
  const Word zero = 0;
  Word token = 0x5ca1ab1e'00000000u + Word(edge_.self.rank), back = 0;
  CCL_CHECK(gpu.put(at, &token, sizeof token));
  CCL_CHECK(gpu.get(&back, at, sizeof back));
  CCL_CHECK(gpu.put(at, &zero, sizeof zero));
  if (back == token) return {};
  return fail(edge_error(edge_, P2pTransport::name, Errc::not_supported,
                         fmt::format("memory of rank {} on device {} does not keep what is written "
                                     "to it (IOMMU or ACS may be in the way); set "
                                     "CCL_P2P_DISABLE=1 to go through host memory",
                                     edge_.peer.rank, edge_.peer.device)));
}

}  // namespace ccl::detail
