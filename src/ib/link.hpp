#pragma once

#include <ccl/proxy.hpp>
#include <ccl/status.hpp>
#include <ccl/transport/transport.hpp>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <vector>

#include "ib/queue_pair.hpp"
#include "transport/wire_memory.hpp"

namespace ccl::detail {

/// A free slot, as the receiver writes it to the sender's board: one line of memory, which lands
/// whole. `step` says for which step the slot is, plus one.
struct IbSlot {
  std::uint64_t address;
  std::uint32_t bytes;
  std::uint32_t tag;                  // the channel
  std::uint32_t keys[most_ib_ports];  // of the receiver's ports
  std::uint64_t unused;
  Word step;
};
static_assert(sizeof(IbSlot) == 64);

/// One end of a connection, shared by its owner and its task.
struct IbLink {
  enum class State { connecting, works, failed };

  Edge edge;
  TransportContext context;
  IbTuning tuning;
  Mapping memory;           // the slots, and the counts beside them
  std::vector<Wire> wires;  // as the proxy sees them
  Mapping board;        // channels * slot_count IbSlots: the sender's; at the receiver its draft
  bool polled = false;  // the lanes are a GPU's: they post and cannot call
  std::atomic<bool> closing{false};  // the owner is gone
  std::atomic<int> arriving{-1};     // the receiver's socket, from the listening thread
  std::chrono::steady_clock::time_point deadline{};

  State state() const { return state_.load(std::memory_order_acquire); }
  void works() { state_.store(State::works, std::memory_order_release); }
  /// The first failure; `tell`: the communicator fails with it.
  void fail_with(Error error, bool tell);
  Error error() const;
  bool healthy() const { return context.status == nullptr || context.status->ok(); }
  IbSlot* slots(int channel) const {
    return reinterpret_cast<IbSlot*>(board.base()) +
           std::size_t(channel) * std::size_t(edge.shape.slot_count);
  }
  ~IbLink() { Fd{arriving.exchange(-1)}; }

 private:
  std::atomic<State> state_{State::connecting};
  mutable std::mutex mutex_;
  Error error_;
};

std::shared_ptr<ProxyTask> make_ib_sender(std::shared_ptr<IbLink> link, Fd socket);
std::shared_ptr<ProxyTask> make_ib_receiver(std::shared_ptr<IbLink> link);

}  // namespace ccl::detail
