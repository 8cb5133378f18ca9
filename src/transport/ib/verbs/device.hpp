#pragma once

#include <ccl/types/result.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "transport/ib/verbs/presence.hpp"
#include "transport/ib/verbs/verbs.hpp"

namespace ccl::detail {

class IbDevice;

/// Registration of memory that a device may read and write. Does not own the memory.
class IbMemory {
 public:
  IbMemory(std::shared_ptr<IbDevice> device, ibv_mr* region)
      : device_{std::move(device)}, region_{region} {}
  ~IbMemory();
  IbMemory(const IbMemory&) = delete;
  IbMemory& operator=(const IbMemory&) = delete;
  std::uint32_t local_key() const { return region_->lkey; }
  std::uint32_t remote_key() const { return region_->rkey; }

 private:
  std::shared_ptr<IbDevice> device_;
  ibv_mr* region_;
};

/// An open device, shared by all connections of the process that use it.
class IbDevice : public std::enable_shared_from_this<IbDevice> {
 public:
  IbDevice(const Verbs& calls, ibv_context* context, ibv_pd* pd, std::string name);
  ~IbDevice();
  IbDevice(const IbDevice&) = delete;
  IbDevice& operator=(const IbDevice&) = delete;

  const Verbs& calls() const { return calls_; }
  ibv_context* context() const { return context_; }
  ibv_pd* pd() const { return pd_; }
  const std::string& name() const { return name_; }
  int async_fd() const { return context_->async_fd; }

  /// Registers whole pages. A range that is registered already with the same access is shared.
  Result<std::shared_ptr<IbMemory>> memory(void* at, std::size_t bytes, unsigned access);
  /// Registers whole pages of a user's memory. Never shared: the registration of a range pins the
  /// pages of its time, and the user may have mapped others there since.
  Result<std::shared_ptr<IbMemory>> user_memory(void* at, std::size_t bytes, unsigned access);
  /// Registers memory of a DMA-BUF from its byte `offset` on. `at` is its address in requests.
  Result<std::shared_ptr<IbMemory>> dma_buf_memory(int fd, std::size_t offset, void* at,
                                                   std::size_t bytes, unsigned access);
  /// Reads pending events of the device's ports. Never blocks.
  void read_events();
  /// Number of events that may affect a connection: ports that went up or down, and fatal errors.
  unsigned events() const { return events_.load(std::memory_order_acquire); }
  /// True if the device has failed as a whole: it must be opened anew.
  bool is_dead() const { return dead_.load(std::memory_order_acquire); }
  /// Queries the device.
  ibv_port_attr port(int number) const;
  bool port_is_active(int number) const { return port(number).state == IBV_PORT_ACTIVE; }

 private:
  struct Registered {
    std::uintptr_t begin, end;
    unsigned access;
    std::weak_ptr<IbMemory> memory;
  };
  const Verbs& calls_;
  ibv_context* context_;
  ibv_pd* pd_;
  std::string name_;
  Result<ibv_mr*> register_pages(std::uintptr_t begin, std::uintptr_t end, unsigned access);
  std::atomic<unsigned> events_{0};
  std::atomic<bool> dead_{false};
  std::mutex events_mutex_, memory_mutex_;
  std::vector<Registered> registered_;
};

/// A port that connections may use, with its own address.
struct IbPort {
  std::shared_ptr<IbDevice> device;
  int number = 1;
  int nic = 0;       // the same for ports of one card, over which steps are striped
  int of_ports = 1;  // that the device has
  int distance = 0;  // of the NIC from the slots, as in `EdgeNics`
  bool infiniband = false;
  std::uint16_t lid = 0;
  int mtu = IBV_MTU_1024;
  int gid_index = 0;
  ibv_gid gid{};

  /// Returns "mlx5_0 port 1".
  std::string text() const;
};

constexpr std::size_t max_ib_ports = 8;  // of one connection

struct IbPorts {
  std::vector<IbPort> ports;
  IbAbsence absence = IbAbsence::none;
  std::string why;       // text, if there are no ports
  std::string left_out;  // text: unusable ports beside the usable ones
};

/// Finds the active ports that CCL_IB_HCA allows, with their current GIDs.
Result<IbPorts> find_ib_ports();

}  // namespace ccl::detail
