#pragma once

#include <ccl/detail/runtime/proxy_engine.hpp>
#include <ccl/detail/transport/zero_copy.hpp>

#include <algorithm>
#include <atomic>
#include <bit>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/io/mapping.hpp"
#include "net/socket.hpp"
#include "transport/handshake_fields.hpp"
#include "transport/ib/completions.hpp"
#include "transport/ib/gpu/memory.hpp"
#include "transport/ib/verbs/queue_pair.hpp"
#include "transport/proxied/connecting_link.hpp"
#include "transport/proxied/reverse_link.hpp"

namespace ccl::detail {

/// A free slot, as the receiver writes it to the sender's table: one line of memory that lands
/// whole. `step` is the step of the slot, plus one.
struct IbSlot {
  std::uint64_t address;
  std::uint32_t bytes;
  std::uint32_t tag;                 // the channel
  std::uint32_t keys[max_ib_ports];  // for each of the receiver's ports
  Word lands;                        // 1: in place of the slot, registered memory for this step
  Word step;
};
static_assert(sizeof(IbSlot) == 64);

/// Immediate of a step: its bytes and, in the bits that no size of these slots needs, the number of
/// further free slots of the reverse edge. Steps are received once each, so that number's sum is
/// exact even after retransmission.
class IbImmediate {
 public:
  explicit IbImmediate(Index slot_bytes) : bits_{int(std::bit_width(Word(slot_bytes)))} {}
  Word max_freed() const { return (Word{1} << (32 - bits_)) - 1; }  // 0: no bit is left
  std::uint32_t of(Word bytes, Word freed) const { return std::uint32_t(freed << bits_ | bytes); }
  Word bytes(std::uint32_t value) const { return value & ((Word{1} << bits_) - 1); }
  Word freed(std::uint32_t value) const { return Word{value} >> bits_; }

 private:
  int bits_;
};

/// Free slots of a channel that the data of the reverse edge reports (see `IbLink::mate`). Counts
/// steps as `drained` does. Only the tasks of the two edges use it, and one engine runs both.
struct IbCreditReturn {
  Word until = 0;    // reported or, at the sender, received: slots of all steps before it
  Word offered = 0;  // the receiver: steps before it are reported or in the table
  bool may = false;  // the receiver: each slot has been in the table of these queue pairs
};

/// One end of a connection, shared by its owner and its task.
struct IbLink : ConnectingLink, ReverseLink<IbLink>, ZeroCopy::Accesses {
  static constexpr const char* name = "ib";
  static constexpr bool may_open_late = true;
  IbLink() : ConnectingLink{name} {}

  IbTuning tuning;
  std::shared_ptr<IbCompletions> completions;  // shared by all edges of the engine
  Mapping slot_table;  // IbSlots of all channels: the sender's, or the receiver's draft; one more
  std::unique_ptr<IbGpuSlots> gpu_slots;         // null: the slots are in `memory`
  std::vector<std::shared_ptr<IbDevice>> tried;  // open, so that a trial that failed counts
  std::vector<std::shared_ptr<IbDevice>> unfit;  // cannot serve `gpu_slots`, and do not stand by
  std::vector<IbCreditReturn> freed;             // by channel
  std::deque<ZeroCopy> zero_copies;              // by channel; empty if the lanes are a GPU's

  Result<void> prepare();
  void prepare_wires();
  std::size_t lines() const { return 1; }
  void write_fields(Handshake&, HandshakeCursor&) const {}
  Result<void> read_fields(const Handshake&, HandshakeCursor&) { return {}; }
  static Result<void> receive(const std::shared_ptr<IbLink>& link);
  static Result<void> send(const std::shared_ptr<IbLink>& link, std::size_t line,
                           net::SecureSocket socket);
  void wake() { context.proxy->wake(); }

  IbSlot* slots(int channel) const {
    return reinterpret_cast<IbSlot*>(slot_table.base()) +
           std::size_t(channel) * std::size_t(edge.shape.slot_count);
  }
  /// Access rights of devices to slots, which the other end uses remotely.
  unsigned slot_access(bool of_gpu) const;
  /// Access rights of devices to registered buffers, equal at both ends so that these share them.
  unsigned buffer_access() const {
    return unsigned(IBV_ACCESS_LOCAL_WRITE) | unsigned(IBV_ACCESS_REMOTE_WRITE) |
           (tuning.relaxed ? unsigned(IBV_ACCESS_RELAXED_ORDERING) : 0u);
  }
  /// Returns the registration of a user's memory with the port's device; null, after a log line, if
  /// the device cannot register it.
  std::shared_ptr<IbMemory> user_memory(RegisteredMemory& memory, const IbPort& port) const;
  /// True if a table line must name the place of the step in registered memory.
  bool lands(std::size_t channel, Word step) const {
    return step >= freed[channel].offered && channel < zero_copies.size() &&
           zero_copies[channel].landing(step).memory != nullptr;
  }
  /// Names the queue pairs of this end; false if no more may be made.
  bool open_to_peer(std::vector<IbQp*> pairs);
  /// Ends the accesses of the peer and of the NICs to the user's memory, for ever. Any thread.
  void close_to_peer();
  void end() override { close_to_peer(); }
  bool is_closed_to_peer() const { return closed_.load(std::memory_order_acquire); }
  /// True if received data must be read once before the GPU is notified.
  bool flushes() const {
    return gpu_slots != nullptr && tuning.flush && edge.side == EdgeSide::receiver;
  }
  /// Target of such reads; its content is not used.
  std::byte* flush_landing() const {
    return reinterpret_cast<std::byte*>(slots(edge.shape.channels));
  }

 private:
  Result<void> place_on_gpu();
  /// Lets a port read or write `gpu_slots`, once for each device and GPU, in at most `left_s`,
  /// which becomes less. Returns what went wrong.
  std::string trial(const IbPort& port, double& left_s);
  double trial_limit_s() const { return std::min(context.deadline_s, 5.0); }
  /// Tries ports that only stand by, which do not decide. Those that cannot serve `gpu_slots` are
  /// left out, and those for whose trials no time is left.
  void try_standby(std::span<const IbPort> ports);
  /// Logs why the slots lie in host memory.
  void stage(const std::string& why) const;
  std::mutex pairs_mutex_;
  std::vector<IbQp*> pairs_;
  std::atomic<bool> closed_{false};  // to the peer
};

std::shared_ptr<ProxyTask> make_ib_sender(std::shared_ptr<IbLink> link, net::SecureSocket socket);
std::shared_ptr<ProxyTask> make_ib_receiver(std::shared_ptr<IbLink> link);

}  // namespace ccl::detail
