#pragma once

#include <ccl/transport/transport.hpp>

#include <memory>
#include <string>
#include <vector>

#include "transport/plug_in/net_plug_in.hpp"

namespace ccl::detail {

/// State of the network plug-in for one communicator of this process.
class NetContext {
 public:
  /// Returns the communicator's context. Makes it first, within the limit of creation.
  static Result<std::shared_ptr<NetContext>> of(const TransportContext& context);
  /// Initializes the plug-in for a communicator.
  static Result<std::shared_ptr<NetContext>> make(std::shared_ptr<const NetPlugIn> plug_in,
                                                  std::uint64_t communicator);
  /// Finalizes the plug-in, unless this process was forked from the one that made the context.
  ~NetContext();
  NetContext(const NetContext&) = delete;

  const NetPlugIn& plug_in() const { return *plug_in_; }
  void* get() const { return context_; }
  const std::vector<NetDevice>& devices() const { return devices_; }
  /// False in a forked child, which must leave the objects of its parent alone.
  bool is_ours() const;

 private:
  explicit NetContext(std::shared_ptr<const NetPlugIn> plug_in);
  Result<void> begin(std::uint64_t communicator);

  const std::shared_ptr<const NetPlugIn> plug_in_;
  const int process_;
  bool begun_ = false;
  void* context_ = nullptr;
  std::vector<NetDevice> devices_;
};

/// Devices for the channels of one end: by the NICs that the topology names, else those nearest to
/// the GPU, else all, in turn from `first` on. `gpu_path`: the GPU's place below /sys, or empty.
std::vector<int> choose_net_devices(const std::vector<NetDevice>& devices, const EdgeNics& nics,
                                    int channels, const std::string& gpu_path, int first);

}  // namespace ccl::detail
