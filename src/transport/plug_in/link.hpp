#pragma once

#include <ccl/detail/transport/zero_copy.hpp>

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "transport/gpu_memory.hpp"
#include "transport/handshake_fields.hpp"
#include "transport/plug_in/channels.hpp"
#include "transport/proxied/connecting_link.hpp"

namespace ccl::detail {

/// Types of messages between the ends, beside the plug-in's connections.
enum class PlugInControl : std::uint32_t {
  listens = 1,  // receiver: the handles of its channels
  ending,       // sender: number of steps sent on each channel; receiver: number of receives begun
  refused,      // either end: it has failed
  close_notify  // sender: it closes without an error
};
using PlugInControlSocket = ControlSocket<PlugInControl>;

/// One end of a connection over a network plug-in, shared by its owner and its task. Each channel
/// is a connection of the plug-in.
struct PlugInLink : ConnectingLink, ZeroCopy::Accesses {
  static constexpr const char* name = "plugin";
  PlugInLink() : ConnectingLink{name} {}
  ~PlugInLink();

  std::shared_ptr<NetChannels> channels;
  std::vector<NetHandle> handles;    // by channel; the receiver's
  GpuPiece gpu_slots;                // of all channels; without an owner: the slots are in `memory`
  Fd dma_buf;                        // of `gpu_slots`, if the devices take it
  std::deque<ZeroCopy> zero_copies;  // by channel; empty if the lanes are a GPU's

  /// True if received data must be flushed before the GPU is notified.
  bool flushes = false;
  bool is_on_gpu() const { return gpu_slots.owner != nullptr; }

  Result<void> prepare();
  void prepare_wires();
  std::size_t lines() const { return 1; }
  void write_fields(Handshake&, HandshakeCursor&) const {}
  Result<void> read_fields(const Handshake&, HandshakeCursor&) { return {}; }
  static Result<void> receive(const std::shared_ptr<PlugInLink>& link);
  static Result<void> send(const std::shared_ptr<PlugInLink>& link, std::size_t line,
                           net::SecureSocket socket);
  /// The sender has the handles of the receiver, so `connect` is what is missing.
  std::atomic<bool> has_handles{false};
  /// Error: the sender has no connection at the limit.
  Error late() const;
  Result<void> wait_connected(const net::Deadline& deadline);
  void wake() { context.proxy->wake(); }
  void works() {
    channels->works();
    ConnectingLink::works();
  }
  void end() override { channels->end_access(); }

 private:
  /// Begins to listen for each channel, within half of the limit of creation.
  Result<void> listen(const std::shared_ptr<NetContext>& net);
  Result<void> choose_devices(const NetContext& net);
  /// Places the slots in GPU memory if topology and devices allow it.
  Result<void> place_on_gpu(const NetContext& net);
  /// Returns why the slots cannot lie in GPU memory, or an empty text.
  Result<std::string> bars_gpu_memory(const NetContext& net) const;
};

std::shared_ptr<ProxyTask> make_plug_in_sender(std::shared_ptr<PlugInLink> link,
                                               net::SecureSocket socket);
std::shared_ptr<ProxyTask> make_plug_in_receiver(std::shared_ptr<PlugInLink> link);

}  // namespace ccl::detail
