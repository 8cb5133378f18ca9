#pragma once

#include <ccl/detail/runtime/proxy_engine.hpp>

#include <atomic>
#include <bit>
#include <memory>
#include <mutex>
#include <vector>

#include "transport/ib/gpu_memory.hpp"
#include "transport/ib/queue_pair.hpp"
#include "transport/proxied/reverse_link.hpp"
#include "transport/proxied/link.hpp"
#include "net/socket.hpp"

namespace ccl::detail {

/// A free slot, as the receiver writes it to the sender's board: one line of memory, which lands
/// whole. `step` says for which step the slot is, plus one.
struct IbSlot {
  std::uint64_t address;
  std::uint32_t bytes;
  std::uint32_t tag;                  // the channel
  std::uint32_t keys[max_ib_ports];  // of the receiver's ports
  std::uint64_t unused;
  Word step;
};
static_assert(sizeof(IbSlot) == 64);

/// What an immediate says of a step: its bytes and, in the bits that no size of these slots needs,
/// how many further slots of the edge back are free. Steps are received once each, so that the
/// sum of it is exact, whatever is lost and sent again.
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

/// Of a channel of an edge whose ends have the edge back, too (see `IbLink::mate`): slots that were
/// told to be free by what the edge back carries. Counts steps as `drained` does; touched by the
/// tasks of the two edges alone, which one engine drives.
struct IbCreditReturn {
  Word until = 0;    // told or, at the sender, heard: slots of all steps before it
  bool may = false;  // the receiver: each slot has been on the board of these queue pairs
};

/// One end of a connection, shared by its owner and its task.
struct IbLink : ProxiedLink, ReverseLink<IbLink> {
  static constexpr const char* name = "ib";
  enum class State { connecting, works, failed };

  IbTuning tuning;
  Mapping slot_table;  // IbSlots of all channels: the sender's; at the receiver its draft. One more
  std::unique_ptr<IbGpuSlots> gpu_slots;  // null: the slots lie in `memory`
  std::vector<IbCreditReturn> freed;             // by channel

  Result<void> prepare();
  std::size_t lines() const { return 1; }
  void tell(Handshake&, HandshakeCursor&) const {}
  Result<void> hear(const Handshake&, HandshakeCursor&) { return {}; }
  static Result<void> receive(const std::shared_ptr<IbLink>& link);
  static Result<void> send(const std::shared_ptr<IbLink>& link, std::size_t line, Fd socket);
  /// Until the queue pairs work.
  Result<void> wait_connected(const net::Deadline& deadline);
  void wake() { context.proxy->wake(); }

  State state() const { return state_.load(std::memory_order_acquire); }
  void works() { state_.store(State::works, std::memory_order_release); }
  /// The first failure; `tell_all`: the communicator fails with it.
  void fail_with(Error error, bool tell_all);
  Error error() const;
  IbSlot* slots(int channel) const {
    return reinterpret_cast<IbSlot*>(slot_table.base()) +
           std::size_t(channel) * std::size_t(edge.shape.slot_count);
  }
  /// What devices may do with slots, the other end's by remote access.
  unsigned slot_access(bool of_gpu) const;
  /// Whether what has come must be read once before the GPU is told of it.
  bool flushes() const {
    return gpu_slots != nullptr && tuning.flush && edge.side == EdgeSide::receiver;
  }
  /// Where such reads go, and nobody looks.
  std::byte* flush_landing() const {
    return reinterpret_cast<std::byte*>(slots(edge.shape.channels));
  }

 private:
  Result<void> place_on_gpu();
  std::atomic<State> state_{State::connecting};
  mutable std::mutex mutex_;
  Error error_;
};

std::shared_ptr<ProxyTask> make_ib_sender(std::shared_ptr<IbLink> link, Fd socket);
std::shared_ptr<ProxyTask> make_ib_receiver(std::shared_ptr<IbLink> link);

}  // namespace ccl::detail
