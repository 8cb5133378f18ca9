#include <ccl/transport/loopback.hpp>

#include <fmt/format.h>

#include <array>
#include <map>
#include <mutex>

#include "base/fork_mutex.hpp"
#include "base/io/mapping.hpp"
#include "base/made_once.hpp"
#include "base/random.hpp"
#include "transport/edge_error.hpp"
#include "transport/handshake_fields.hpp"
#include "transport/wire_layout.hpp"

namespace ccl {
namespace detail {
namespace {
using Token = std::array<Word, 2>;

/// Listening ends of this process, by token: a handshake's token is looked up, never dereferenced.
struct PendingEnds {
  std::map<Token, std::weak_ptr<LoopbackMemory>> listening;
  ForkMutex mutex{[this] { renew(listening); }};
  static PendingEnds& instance() {
    static constinit MadeOnce<PendingEnds> one;
    return one.get();
  }
  /// Identifies this copy of ccl: a process has several if libraries contain one each.
  static Word copy() { return reinterpret_cast<Word>(&instance()); }
};
}  // namespace

struct LoopbackMemory {
  Mapping mapping;
  WireLayout layout;
  WireShape shape;
  unsigned long long edge_id = 0;
  Token token{};
  ~LoopbackMemory() {
    PendingEnds& pending_ends = PendingEnds::instance();
    const std::lock_guard lock{pending_ends.mutex};
    pending_ends.listening.erase(token);
  }
};
}  // namespace detail

Result<void> LoopbackTransport::can_connect(const PeerInfo& from, const PeerInfo& to) {
  if (from.device >= 0 || to.device >= 0) {
    return fail(Errc::no_transport,
                fmt::format("loopback does not connect rank {} to rank {} (it is for CPU ranks); "
                            "p2p or shm would",
                            from.rank, to.rank));
  }
  if (from.pid_hash == to.pid_hash) return {};
  return fail(Errc::no_transport,
              fmt::format("loopback does not connect rank {} to rank {} (they are in different "
                          "processes); shm or socket would",
                          from.rank, to.rank));
}

Result<LoopbackTransport::End> LoopbackTransport::setup(TransportContext&, const Edge& edge) {
  End end;
  end.edge_ = edge;
  CCL_TRY(const auto layout, detail::WireLayout::of(edge.shape));
  if (edge.side == EdgeSide::sender) return end;
  auto memory = std::make_shared<detail::LoopbackMemory>();
  CCL_TRY(memory->mapping, detail::Mapping::anonymous(layout.bytes()));
  CCL_CHECK(detail::fill_random(&memory->token, sizeof memory->token));
  memory->layout = layout;
  memory->shape = edge.shape;
  memory->edge_id = edge.id;
  detail::PendingEnds& pending_ends = detail::PendingEnds::instance();
  const std::lock_guard lock{pending_ends.mutex};
  pending_ends.listening[memory->token] = memory;
  end.memory_ = std::move(memory);
  return end;
}

Handshake LoopbackTransport::End::handshake() const {
  Handshake mine{};
  detail::HandshakeCursor cursor;
  if (memory_) {
    cursor.put(mine, memory_->token);
    cursor.put(mine, detail::PendingEnds::copy());
  }
  return mine;
}

Result<Connection> LoopbackTransport::End::connect(const Handshake& theirs) {
  const auto refuse = [this](Errc code, std::string why) {
    return fail(detail::edge_error(edge_, name, code, std::move(why)));
  };
  if (edge_.side == EdgeSide::sender && !memory_) {
    detail::HandshakeCursor cursor;
    const auto token = cursor.get<detail::Token>(theirs);
    const auto copy = cursor.get<Word>(theirs);
    if (copy != 0 && copy != detail::PendingEnds::copy()) {
      return refuse(Errc::no_transport,
                    fmt::format("rank {} is in this process and uses another copy of ccl (that of "
                                "another library); let both link one shared library of ccl, or set "
                                "CCL_TRANSPORT=shm",
                                edge_.peer.rank));
    }
    detail::PendingEnds& pending_ends = detail::PendingEnds::instance();
    std::shared_ptr<detail::LoopbackMemory> memory;  // released after the lock: it takes it, too
    const std::lock_guard lock{pending_ends.mutex};
    const auto found = pending_ends.listening.find(token);
    if (found != pending_ends.listening.end()) memory = found->second.lock();
    if (!memory) {
      return refuse(Errc::peer_lost,
                    fmt::format("rank {} listens no more (its end was destroyed, or the handshake "
                                "is not from this process); keep both ends until both connect",
                                edge_.peer.rank));
    }
    if (memory->edge_id != edge_.id) {
      return refuse(Errc::mismatch, "the handshake is that of another edge");
    }
    if (memory->shape != edge_.shape) {
      return refuse(Errc::mismatch, detail::differing_shapes(edge_, memory->shape));
    }
    memory_ = std::move(memory);
  }
  Connection connection;
  connection.wires = memory_->layout.wires(memory_->mapping.base(), edge_.side, false);
  connection.owner = memory_;
  connection.transport = name;
  return connection;
}

}  // namespace ccl
