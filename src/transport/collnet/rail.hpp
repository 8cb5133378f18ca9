#pragma once

#include <ccl/transport/transport.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/io/mapping.hpp"
#include "gpu/host_pin.hpp"
#include "proxy/library_calls.hpp"
#include "transport/collnet/context.hpp"

namespace ccl::detail::collnet {

/// Bytes of one listener, for `connect`.
using RailHandle = std::array<std::byte, handle_bytes>;

/// A head's end of the network on one channel: the wire to the network, the wire from it, and their
/// memory, which the plug-in has registered. The rail's group has one head of each host.
struct Rail {
  std::shared_ptr<Context> network;
  TransportContext context;
  int rank = 0, channel = 0, device = 0;
  std::string host;
  int host_index = 0;   // in the group
  RailHandle handle{};  // of the listener
  void* listener = nullptr;
  void* group = nullptr;
  void* up_memory = nullptr;  // registrations
  void* down_memory = nullptr;
  Mapping memory;
  std::shared_ptr<LibraryCalls> calls;  // of the task
  Wire up, down;                        // of the proxy
  bool polled = false;                  // the lanes are a GPU's, and cannot call
  std::atomic<bool> closing{false};     // the composition has ended

  Rail() = default;
  Rail(const Rail&) = delete;
  Rail& operator=(const Rail&) = delete;
  /// Gives all back to the plug-in. Waits for it, at most some seconds.
  ~Rail();
  bool healthy() const { return context.status == nullptr || !context.failed(); }
  /// Fails the communicator: a function of the plug-in has returned `code`.
  void fail_with(const char* function, int code) const;
  /// Fails the communicator if the composition has not ended: a function of the plug-in has not
  /// returned for `seconds`. Returns the error.
  Error left_in_call(const char* function, double seconds) const;
  /// Error of this rank and network.
  Error annotated(Error error) const;
};

/// Wires of one channel for the lanes, and their owner.
struct RailWires {
  Wire up, down;
  std::shared_ptr<void> owner;
};

/// Rails of one composition on a head. Each function runs the plug-in's calls with a deadline.
class Rails {
 public:
  struct Request {
    std::shared_ptr<Context> network;
    TransportContext context;
    int rank = 0, device = 0;
    std::string host;
    WireShape shape;  // of each wire; one channel
  };
  /// Makes the memory of each channel, and listens.
  static Result<Rails> listen(const Request& request, std::span<const int> channels);
  const std::vector<std::shared_ptr<Rail>>& all() const { return rails_; }
  /// Connects the groups, channel by channel. `handles`: of each channel, those of all heads by
  /// host. `host`: index of this one.
  Result<void> connect(const std::vector<std::vector<RailHandle>>& handles, int host);
  /// Gives the steps of all channels to the proxy. Returns the lanes' wires, by channel as listed.
  Result<std::vector<RailWires>> start();

 private:
  std::vector<std::shared_ptr<Rail>> rails_;
  std::vector<RailWires> lanes_;
  double limit_s_ = 0;
};

/// Returns the task that drives the steps of a rail.
std::shared_ptr<ProxyTask> make_rail_task(std::shared_ptr<Rail> rail);

}  // namespace ccl::detail::collnet
