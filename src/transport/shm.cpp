#include <ccl/comm/log.hpp>
#include <ccl/detail/runtime/settings.hpp>
#include <ccl/detail/transport/zero_copy.hpp>
#include <ccl/transport/shm.hpp>

#include <fmt/format.h>

#include <atomic>
#include <cstring>
#include <deque>
#include <memory>
#include <string_view>

#include "base/io/fd.hpp"
#include "base/io/mapping.hpp"
#include "base/io/os_error.hpp"
#include "base/numa.hpp"
#include "base/random.hpp"
#include "gpu/host_pin.hpp"
#include "gpu/memory.hpp"
#include "settings/report.hpp"
#include "transport/edge_error.hpp"
#include "transport/fd_server.hpp"
#include "transport/handshake_fields.hpp"
#include "transport/wire_layout.hpp"
#include <unistd.h>

namespace ccl {
namespace detail {

struct ShmEnd {
  TransportContext context;
  Edge edge;
  WireLayout layout;
  Nonce nonce{};  // the receiver's: the sender proves that it has received it
  FdOffer offer;
  Mapping mapping;
  HostPin pin;  // on a GPU rank
  LendingChoice::Rule rule = LendingChoice::Rule::by_time;
  bool lends = false;                // lanes may copy from the sender's memory
  Word word = 0;                     // the sender's; the receiver reads it by its address
  std::deque<ZeroCopy> zero_copies;  // of each channel

  auto refuse(Errc code, std::string what, int os_code = 0) const {
    return fail(edge_error(edge, ShmTransport::name, code, std::move(what), os_code));
  }
  auto refuse_errno(Errc code, const char* what, int os_code) const {
    return refuse(code, fmt::format("{} ({})", what, std::strerror(os_code)), os_code);
  }

  /// Receiver: makes the memory and offers it to the sender.
  Result<void> make() {
    auto made = shareable_memory("ccl", layout.bytes());
    if (!made) return refuse(made.error().code, made.error().what, made.error().os_code);
    Fd memory = *std::move(made);
    CCL_TRY(mapping, Mapping::of(memory, layout.bytes()));
    // That of a CPU rank is the node of its NICs, which do not reach this memory.
    if (context.arena != nullptr) prefer_node(mapping.base(), mapping.bytes(), context.numa);
    CCL_CHECK(fill_random(&nonce, sizeof nonce));
    CCL_TRY(offer,
            FdOffer::make(proof_of(context, nonce, edge.id, 0), edge.shape, std::move(memory)));
    return {};
  }

  /// Sender: fetches the memory from the receiver's process.
  Result<void> fetch(const Handshake& theirs) {
    HandshakeCursor cursor;
    const auto nonce_of_peer = cursor.get<Nonce>(theirs);
    const auto from = cursor.get<UnixName>(theirs);
    CCL_TRY(const Fd memory, fetch_fd(context, edge, ShmTransport::name, from,
                                      proof_of(context, nonce_of_peer, edge.id, 0)));
    if (!keeps_size(memory, layout.bytes())) {
      return refuse(
          Errc::mismatch,
          fmt::format("the receiver's memory of edge {} is not what was agreed on", edge.id));
    }
    CCL_TRY(mapping, Mapping::of(memory, layout.bytes()));
    return {};
  }

  /// Sender: fills the word by which the receiver knows its process.
  Result<void> begin_lending() {
    CCL_TRY(const Index given, setting_integer("CMA_ENABLE"));
    if (given == 2) rule = LendingChoice::Rule::always;
    lends = given != 0 && edge.self.device < 0 && edge.peer.device < 0;
    return lends ? fill_random(&word, sizeof word) : Result<void>{};
  }
  /// Permits the sender to lend, if this process can read the sender's. `word` and `process` are
  /// the sender's.
  void lend(std::vector<Wire>& wires, const PeerProcess& process) {
    if (!lends) return;
    const bool receives = edge.side == EdgeSide::receiver;
    if (receives) {
      Word found = 0;
      const iovec place{&found, sizeof found};
      lends = process.value != 0 && process.read(process.word, &place, 1) == 0;
      log_info(LogPart::shm, "edge {}: rank {} {} memory of rank {}", edge.id, edge.self.rank,
               lends ? "copies from" : "cannot read", edge.peer.rank);
      if (!lends) return;
    }
    for (std::size_t channel = 0; channel < wires.size(); ++channel) {
      const auto words = layout.lending(mapping.base(), int(channel));
      wires[channel].zero_copy =
          &zero_copies.emplace_back(!receives, process, words.may_lend, words.taken_back, rule);
      if (receives) std::atomic_ref<Word>{*words.may_lend}.store(1);
    }
  }

  /// Pins the memory for a GPU, whose lanes access it over PCIe.
  Result<void> let_gpu_in() {
    auto made = HostPin::make(context.arena->gpu(), mapping.base(), mapping.bytes());
    if (!made) return refuse(made.error().code, made.error().what, made.error().os_code);
    pin = *std::move(made);
    return {};
  }
};

}  // namespace detail

Result<void> ShmTransport::can_connect(const PeerInfo& from, const PeerInfo& to) {
  const auto refuse = [&](std::string_view why) {
    return fail(Errc::no_transport, fmt::format("shm does not connect rank {} to rank {} ({})",
                                                from.rank, to.rank, why));
  };
  CCL_TRY(const bool disabled, detail::setting_flag("SHM_DISABLE"));
  if (disabled) return refuse(fmt::format("{} is 1", detail::variable_of("SHM_DISABLE")));
  if (from.host_hash != to.host_hash) return refuse("they are on different hosts; socket would");
  if (const auto why = detail::no_common_memory(from, to); !why.empty()) return refuse(why);
  return {};
}

EdgeTransport ShmTransport::edge_transport(const PeerInfo& from, const PeerInfo& to) {
  // A warp's stores cross PCIe in pieces of any size, but words stay whole.
  const bool pcie = from.device >= 0 || to.device >= 0;
  return {name, Medium::host_memory, pcie ? int(sizeof(Word)) : atomic_line_bytes};
}

Result<ShmTransport::End> ShmTransport::setup(TransportContext& context, const Edge& edge) {
  End end;
  end.end_ = std::make_shared<detail::ShmEnd>();
  end.end_->context = context;
  end.end_->edge = edge;
  CCL_TRY(end.end_->layout, detail::WireLayout::of(edge.shape));
  if (edge.side == EdgeSide::receiver) CCL_CHECK(end.end_->make());
  CCL_CHECK(end.end_->begin_lending());
  return end;
}

Handshake ShmTransport::End::handshake() const {
  Handshake mine{};
  detail::HandshakeCursor cursor;
  cursor.put(mine, end_->nonce);
  cursor.put(mine, end_->offer.name());
  cursor.put(mine, Word(::getpid()));
  cursor.put(mine, reinterpret_cast<Word>(&end_->word));
  cursor.put(mine, end_->word);
  return mine;
}

Result<Connection> ShmTransport::End::connect(const Handshake& theirs) {
  if (end_->mapping.base() == nullptr) CCL_CHECK(end_->fetch(theirs));
  Connection connection;
  connection.line_bytes = edge_transport(end_->edge.self, end_->edge.peer).line_bytes;
  std::byte* base = end_->mapping.base();
  if (end_->context.arena != nullptr) {
    if (end_->pin.on_device() == nullptr) CCL_CHECK(end_->let_gpu_in());
    base = end_->pin.on_device();
  }
  connection.wires = end_->layout.wires(base, end_->edge.side, false);
  detail::HandshakeCursor cursor;
  (void)cursor.get<detail::Nonce>(theirs);
  (void)cursor.get<detail::UnixName>(theirs);
  const auto process = cursor.get<Word>(theirs), word = cursor.get<Word>(theirs);
  end_->lend(connection.wires,
             {int(process), reinterpret_cast<const void*>(word), cursor.get<Word>(theirs)});
  connection.owner = end_;
  connection.transport = name;
  log_info(LogPart::shm, "edge {}: rank {} {} rank {} by shared memory of {} bytes", end_->edge.id,
           end_->edge.self.rank,
           end_->edge.side == EdgeSide::receiver ? "receives from" : "sends to",
           end_->edge.peer.rank, end_->mapping.bytes());
  return connection;
}

}  // namespace ccl
