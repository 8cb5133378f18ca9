#pragma once

// RDMA devices of `FakeVerbs` (fake_verbs.hpp), without their queues.
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "transport/ib/verbs/verbs.hpp"
#include <sys/eventfd.h>
#include <unistd.h>

namespace ccl::test {

/// Faults to inject, and their counts. Numbers count from 1; 0: never.
struct Faults {
  int fail_send_at = 0;     // the n-th call of post_send with data
  int fail_receive_at = 0;  // the n-th call of post_recv, counted after those before connecting
  int forge_at = 0;         // the n-th write with immediate ends with `forged`
  int forge_every = 0;      // each n-th
  ibv_wc_status forged = IBV_WC_RETRY_EXC_ERR;
  bool forged_arrives = false;  // the data is there all the same, only the answer was lost
  int forge_board_at = 0;       // the n-th write of free slots
  int fail_poll_at = 0;         // the n-th look at a completion queue
  int max_at_once = 0;          // completions of one poll, at most; 0: as many as requested
  int stall_ms = 0;             // the next look after a queue pair was stopped takes so long
  int delay_polls = 0;          // completions are seen after so many looks, at random
  bool reorder = false;         // those of different queue pairs overtake each other
  bool refuse_memory = false, refuse_rtr = false, refuse_rts = false;
  bool refuse_channel = false, refuse_queue = false, refuse_pair = false;
  int refuse_dma_buf = 0;        // an errno
  int refuse_dma_buf_of = -1;    // the device that refuses; -1: all
  bool refuse_flush = false;     // reads end with an error
  int mute_reads_from = -1;      // reads of devices from this one on do not complete; -1: all do
  bool reuse_numbers = false;    // a queue pair gets the number of the last that has ended
  bool lose_gpu_writes = false;  // what devices write to a GPU's memory does not arrive

  int sends = 0, receives = 0, writes = 0, board_writes = 0, polls = 0;
  int flushes = 0, late_writes = 0, inline_writes = 0;
  int failed_sends = 0, failed_receives = 0, failed_polls = 0;
  int forgeries = 0, delayed = 0, reordered = 0;
  int overruns = 0;  // completions for which a queue had no entry
  int reused_numbers = 0;
};

/// Settings of a queue pair on its way to RTS.
struct QpSettings {
  ibv_gid to{};
  int gid_index = 0, service_level = 0, traffic_class = 0, mtu = 0;
  int timeout = 0, retry_count = 0, pkey_index = 0;
};

/// RDMA devices, their ports, and memory that is registered with them: the part of `FakeVerbs`
/// without queues.
class FakeDevices {
 public:
  Faults faults;  // under `mutex` while something runs
  std::mutex mutex;
  int regions_made = 0, dma_bufs_made = 0;
  std::vector<unsigned> accesses;  // of regions, as they were made
  /// MTU of each port, in the order of devices; 4096 for the rest.
  std::vector<ibv_mtu> mtus;
  /// GID index of each port, in the order of devices; for the rest see `readdress`.
  std::vector<unsigned> gid_indexes;
  /// Gives the ports other GIDs at another index: 10.`subnet`.0.n.
  void readdress(int subnet, unsigned index) {
    const std::lock_guard lock{mutex};
    subnet_ = subnet;
    gid_index_ = index;
  }
  /// Registrations of this memory go to a GPU's, as with nvidia-peermem.
  void stand_for_gpu(std::byte* at, std::size_t bytes) {
    const std::lock_guard lock{mutex};
    gpu_memory_.emplace_back(at, bytes);
  }
  /// Bytes of steps that left a device and arrived at it, in the order of devices.
  struct Traffic {
    std::uint64_t sent = 0, received = 0;
  };
  std::vector<Traffic> traffic() {
    const std::lock_guard lock{mutex};
    std::vector<Traffic> all;
    for (const auto& device : devices_) all.push_back(device->traffic);
    return all;
  }
  /// First bytes of the regions from which a device has sent steps.
  std::set<const void*> sources(int device) {
    const std::lock_guard lock{mutex};
    return devices_[std::size_t(device)]->sources;
  }
  void forget_sources() {
    const std::lock_guard lock{mutex};
    for (const auto& device : devices_) device->sources.clear();
  }
  /// CPUs on which threads that poll a device may run, as of their first poll.
  std::set<int> cpus_of(int device) {
    const std::lock_guard lock{mutex};
    return devices_[std::size_t(device)]->cpus;
  }
  /// Queue pairs, completion queues, regions and contexts that were not given back.
  int held() const { return held_; }
  /// Bytes of the registration with this key; 0: there is none.
  std::size_t registered_bytes(std::uint32_t key) {
    const std::lock_guard lock{mutex};
    const auto found = regions_.find(key);
    return found == regions_.end() ? 0 : found->second->self.length;
  }
  void take_down(int device) {
    const std::lock_guard lock{mutex};
    devices_[std::size_t(device)]->down = true;
    for (Context* context : contexts_) {
      if (context->device->number != device) continue;
      context->events.push_back(IBV_EVENT_PORT_ERR);
      ::eventfd_write(context->self.async_fd, 1);
    }
  }

 protected:
  struct Device {
    ibv_device self{};
    int number = 0;
    bool down = false;
    Traffic traffic{};
    std::set<const void*> sources{};
    std::set<int> cpus{};
  };
  struct Context {
    ibv_context self{};
    Device* device = nullptr;
    std::deque<ibv_event_type> events;
  };
  struct Region {
    ibv_mr self{};
    unsigned access = 0;
    bool of_gpu = false;
  };

  FakeDevices(const std::vector<std::string>& names, bool infiniband) : infiniband_{infiniband} {
    the = this;
    for (const std::string& name : names) {
      auto device = std::make_unique<Device>();
      name.copy(device->self.name, sizeof device->self.name - 1);
      device->number = int(devices_.size());
      devices_.push_back(std::move(device));
    }
    fill_device_calls();
  }
  ~FakeDevices() { the = nullptr; }
  FakeDevices(const FakeDevices&) = delete;
  /// Adds the calls that a context has for its queues.
  virtual void add_queue_calls(ibv_context_ops& calls) = 0;

  static std::vector<std::string> names_of(int devices) {
    std::vector<std::string> names;
    for (int n = 0; n < devices; ++n) names.push_back("fake_" + std::to_string(n));
    return names;
  }

  static Context& of(ibv_context* context) { return *reinterpret_cast<Context*>(context); }
  bool covers(std::uint32_t key, std::uint64_t at, std::uint32_t bytes, unsigned access) const {
    const auto found = regions_.find(key);
    if (found == regions_.end()) return false;
    const auto begin = reinterpret_cast<std::uint64_t>(found->second->self.addr);
    return at >= begin && at + bytes <= begin + found->second->self.length &&
           (found->second->access & access) == access;
  }

  bool refuses(const bool& fault) {
    const std::lock_guard lock{mutex};
    if (fault) errno = ENOMEM;
    return fault;
  }

  detail::Verbs calls_;
  std::map<std::uint32_t, Region*> regions_;  // by key
  std::uint32_t last_ = 100;                  // number of a region or a queue pair
  std::atomic<int> held_{0};

 private:
  static inline FakeDevices* the = nullptr;

  void fill_device_calls() {
    calls_.fork_init = [] { return 0; };
    calls_.get_device_list = [](int* count) {
      *count = int(the->devices_.size());
      auto** const list = new ibv_device*[the->devices_.size()];
      for (std::size_t n = 0; n < the->devices_.size(); ++n) list[n] = &the->devices_[n]->self;
      return list;
    };
    calls_.free_device_list = [](ibv_device** list) { delete[] list; };
    calls_.open_device = [](ibv_device* device) {
      const std::lock_guard lock{the->mutex};
      auto* const context = new Context;
      context->device = reinterpret_cast<Device*>(device);
      context->self.device = device;
      context->self.async_fd = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
      the->add_queue_calls(context->self.ops);
      the->contexts_.push_back(context);
      ++the->held_;
      return &context->self;
    };
    calls_.close_device = [](ibv_context* context) {
      const std::lock_guard lock{the->mutex};
      std::erase(the->contexts_, &of(context));
      ::close(context->async_fd);
      delete &of(context);
      --the->held_;
      return 0;
    };
    calls_.query_device = [](ibv_context*, ibv_device_attr* attributes) {
      attributes->phys_port_cnt = 1;
      return 0;
    };
    calls_.query_port = [](ibv_context* context, std::uint8_t, _compat_ibv_port_attr* to) {
      const std::lock_guard lock{the->mutex};
      auto* const attributes = reinterpret_cast<ibv_port_attr*>(to);
      attributes->state = of(context).device->down ? IBV_PORT_DOWN : IBV_PORT_ACTIVE;
      const auto number = std::size_t(of(context).device->number);
      attributes->active_mtu = number < the->mtus.size() ? the->mtus[number] : IBV_MTU_4096;
      attributes->lid = std::uint16_t(1 + of(context).device->number);
      attributes->link_layer =
          the->infiniband_ ? IBV_LINK_LAYER_INFINIBAND : IBV_LINK_LAYER_ETHERNET;
      return 0;
    };
    calls_.query_gid_table = [](ibv_context* context, ibv_gid_entry* entries, std::size_t most,
                                std::uint32_t, std::size_t) -> ssize_t {
      if (most < 1) return 0;
      const std::lock_guard lock{the->mutex};
      entries[0] = {};
      entries[0].port_num = 1;
      const auto number = std::size_t(of(context).device->number);
      const bool own = number < the->gid_indexes.size();
      entries[0].gid_index = own ? the->gid_indexes[number] : the->gid_index_;
      entries[0].gid_type = the->infiniband_ ? IBV_GID_TYPE_IB : IBV_GID_TYPE_ROCE_V2;
      const std::uint8_t raw[16] = {0,    0,
                                    0,    0,
                                    0,    0,
                                    0,    0,
                                    0,    0,
                                    0xff, 0xff,
                                    10,   std::uint8_t(the->subnet_),
                                    0,    std::uint8_t(1 + of(context).device->number)};
      std::memcpy(entries[0].gid.raw, raw, sizeof raw);
      return 1;
    };
    calls_.get_async_event = [](ibv_context* context, ibv_async_event* event) {
      const std::lock_guard lock{the->mutex};
      if (of(context).events.empty()) return -1;
      event->event_type = of(context).events.front();
      event->element.port_num = 1;
      of(context).events.pop_front();
      eventfd_t value = 0;
      if (of(context).events.empty()) ::eventfd_read(context->async_fd, &value);
      return 0;
    };
    calls_.ack_async_event = [](ibv_async_event*) {};
    calls_.alloc_pd = [](ibv_context* context) {
      ++the->held_;
      return new ibv_pd{context, 0};
    };
    calls_.dealloc_pd = [](ibv_pd* pd) {
      --the->held_;
      delete pd;
      return 0;
    };
    calls_.reg_mr = [](ibv_pd* pd, void* at, std::size_t bytes, std::uint64_t,
                       unsigned access) -> ibv_mr* {
      const std::lock_guard lock{the->mutex};
      if (the->faults.refuse_memory) {
        errno = ENOMEM;
        return nullptr;
      }
      auto* const region = new Region;
      region->self.context = pd->context;
      region->self.addr = at;
      region->self.length = bytes;
      region->self.lkey = region->self.rkey = ++the->last_;
      region->access = access;
      for (const auto& [begin, size] : the->gpu_memory_) {
        region->of_gpu = region->of_gpu || (at >= begin && at < begin + size);
      }
      the->regions_[the->last_] = region;
      the->accesses.push_back(access);
      ++the->regions_made;
      ++the->held_;
      return &region->self;
    };
    calls_.reg_dmabuf_mr = [](ibv_pd* pd, std::uint64_t offset, std::size_t bytes,
                              std::uint64_t iova, int fd, int access) -> ibv_mr* {
      int refused = 0;
      {
        const std::lock_guard lock{the->mutex};
        const int device = reinterpret_cast<Context*>(pd->context)->device->number;
        const bool meant =
            the->faults.refuse_dma_buf_of < 0 || the->faults.refuse_dma_buf_of == device;
        if (meant) refused = the->faults.refuse_dma_buf;
      }
      if (refused != 0 || fd < 0 || offset % 4096 != iova % 4096) {
        errno = refused != 0 ? refused : EBADF;
        return nullptr;
      }
      ibv_mr* const made =
          the->calls_.reg_mr(pd, reinterpret_cast<void*>(iova), bytes, iova, unsigned(access));
      const std::lock_guard lock{the->mutex};
      if (made != nullptr) {
        reinterpret_cast<Region*>(made)->of_gpu = true;
        ++the->dma_bufs_made;
      }
      return made;
    };
    calls_.dereg_mr = [](ibv_mr* mr) {
      const std::lock_guard lock{the->mutex};
      the->regions_.erase(mr->lkey);
      delete reinterpret_cast<Region*>(mr);
      --the->held_;
      return 0;
    };
  }

  bool infiniband_;
  std::vector<std::unique_ptr<Device>> devices_;
  std::vector<Context*> contexts_;
  int subnet_ = 9;
  unsigned gid_index_ = 0;
  std::vector<std::pair<std::byte*, std::size_t>> gpu_memory_;
};

}  // namespace ccl::test
