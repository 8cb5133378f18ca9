#pragma once

// Emulated RDMA devices for tests in one process. Writes are copies, and every fault of a device
// happens on demand. It is a layer at the boundary of the verbs calls, and the library contains
// nothing of it.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/numa.hpp"
#include "transport/ib/verbs.hpp"
#include <arpa/inet.h>
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
  bool lose_gpu_writes = false;  // what devices write to a GPU's memory does not arrive

  int sends = 0, receives = 0, writes = 0, board_writes = 0, polls = 0;
  int flushes = 0, late_writes = 0, inline_writes = 0;
  int failed_sends = 0, failed_receives = 0, failed_polls = 0;
  int forgeries = 0, delayed = 0, reordered = 0;
};

/// Settings of a queue pair on its way to RTS.
struct QpSettings {
  ibv_gid to{};
  int gid_index = 0, service_level = 0, traffic_class = 0, mtu = 0;
  int timeout = 0, retry_count = 0, pkey_index = 0;
};

class FakeVerbs {
 public:
  explicit FakeVerbs(int devices, bool infiniband = false)
      : FakeVerbs{names_of(devices), infiniband} {}
  explicit FakeVerbs(const std::vector<std::string>& names, bool infiniband = false)
      : infiniband_{infiniband} {
    the = this;
    for (const std::string& name : names) {
      auto device = std::make_unique<Device>();
      name.copy(device->self.name, sizeof device->self.name - 1);
      device->number = int(devices_.size());
      devices_.push_back(std::move(device));
    }
    fill_table();
    detail::use_verbs(&calls_);
  }
  ~FakeVerbs() {
    detail::use_verbs(nullptr);
    the = nullptr;
  }

  Faults faults;  // under `mutex` while something runs
  std::mutex mutex;
  int regions_made = 0, dma_bufs_made = 0;
  std::vector<QpSettings> connected;  // queue pairs that reached RTS, in that order
  std::vector<unsigned> accesses;     // of regions, as they were made
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
  /// CPUs on which threads that poll a device may run.
  std::set<int> cpus_of(int device) {
    const std::lock_guard lock{mutex};
    return devices_[std::size_t(device)]->cpus;
  }
  /// Queue pairs, completion queues, regions and contexts that were not given back.
  int held() const { return held_; }
  void take_down(int device) {
    const std::lock_guard lock{mutex};
    devices_[std::size_t(device)]->down = true;
    for (Context* context : contexts_) {
      if (context->device->number != device) continue;
      context->events.push_back(IBV_EVENT_PORT_ERR);
      ::eventfd_write(context->self.async_fd, 1);
    }
  }
  /// Puts a connected queue pair into the error state, as a device may: the oldest but `older`.
  bool break_one(int older = 0) {
    const std::lock_guard lock{mutex};
    for (auto& [number, qp] : pairs_) {
      if (qp->state != IBV_QPS_RTS || older-- > 0) continue;
      enter_error(*qp);
      return true;
    }
    return false;
  }

 private:
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
  struct Completion {
    ibv_wc wc;
    int polls_left;
  };
  struct Channel {
    ibv_comp_channel self{};
    ibv_cq* queue = nullptr;
    int events = 0;
  };
  struct Queue {
    ibv_cq self{};
    std::deque<Completion> done;
    bool armed = false;
  };
  struct Pair {
    ibv_qp self{};
    Queue* queue = nullptr;
    ibv_qp_state state = IBV_QPS_RESET;
    std::uint32_t to = 0;
    std::deque<std::uint64_t> receives;
    bool waits_to_connect = true;
    QpSettings settings;
  };
  struct Region {
    ibv_mr self{};
    unsigned access = 0;
    bool of_gpu = false;
  };
  /// On its way through a device to a GPU's memory.
  struct Late {
    std::uint64_t to;
    std::vector<std::byte> data;
  };

  static std::vector<std::string> names_of(int devices) {
    std::vector<std::string> names;
    for (int n = 0; n < devices; ++n) names.push_back("fake_" + std::to_string(n));
    return names;
  }
  void count(const Pair& pair, const ibv_send_wr& request) {
    const auto found = pairs_.find(pair.to);
    const bool to_itself = pair.to == pair.self.qp_num;
    if (request.num_sge == 0 || found == pairs_.end() || to_itself) return;
    of(pair.self.context).device->traffic.sent += request.sg_list[0].length;
    if (const auto from = regions_.find(request.sg_list[0].lkey); from != regions_.end()) {
      of(pair.self.context).device->sources.insert(from->second->self.addr);
    }
    of(found->second->self.context).device->traffic.received += request.sg_list[0].length;
  }

  static inline FakeVerbs* the = nullptr;
  static Context& of(ibv_context* context) { return *reinterpret_cast<Context*>(context); }

  void complete(Pair& pair, std::uint64_t id, ibv_wc_status status, ibv_wc_opcode opcode,
                std::uint32_t immediate = 0) {
    Completion completion{};
    completion.wc.wr_id = id;
    completion.wc.status = status;
    completion.wc.opcode = opcode;
    completion.wc.imm_data = immediate;
    completion.wc.qp_num = pair.self.qp_num;
    completion.wc.vendor_err = status == IBV_WC_SUCCESS ? 0 : 0x51;
    if (faults.delay_polls > 0) {
      completion.polls_left = int(random_() % unsigned(faults.delay_polls + 1));
      if (completion.polls_left > 0) ++faults.delayed;
    }
    Queue& queue = *pair.queue;
    queue.done.push_back(completion);
    if (!std::exchange(queue.armed, false)) return;
    Channel& channel = *reinterpret_cast<Channel*>(queue.self.channel);
    ++channel.events;
    ::eventfd_write(channel.self.fd, 1);
  }
  void enter_error(Pair& pair) {
    pair.state = IBV_QPS_ERR;
    for (const auto id : pair.receives) complete(pair, id, IBV_WC_WR_FLUSH_ERR, IBV_WC_RECV);
    pair.receives.clear();
  }

  /// Boards are read while they are written: word by word, in order.
  static void copy(std::uint64_t to, std::uint64_t from, std::uint32_t bytes) {
    if (bytes > 256 || bytes % 8 != 0 || to % 8 != 0 || from % 8 != 0) {
      std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
      return;
    }
    for (std::uint32_t at = 0; at < bytes; at += 8) {
      std::uint64_t word = 0;
      std::memcpy(&word, reinterpret_cast<const void*>(from + at), 8);
      std::atomic_ref<std::uint64_t>{*reinterpret_cast<std::uint64_t*>(to + at)}.store(
          word, std::memory_order_release);
    }
  }

  ibv_wc_status write(Pair& pair, const ibv_send_wr& request) {
    const auto found = pairs_.find(pair.to);
    if (found == pairs_.end() || of(pair.self.context).device->down ||
        of(found->second->self.context).device->down || found->second->state < IBV_QPS_RTR ||
        found->second->state == IBV_QPS_ERR) {
      return IBV_WC_RETRY_EXC_ERR;
    }
    Pair& peer = *found->second;
    if (request.num_sge > 0) {
      const ibv_sge& place = request.sg_list[0];
      if ((request.send_flags & IBV_SEND_INLINE) == 0 &&
          !covers(place.lkey, place.addr, place.length, 0)) {
        return IBV_WC_LOC_PROT_ERR;
      }
      if (!covers(request.wr.rdma.rkey, request.wr.rdma.remote_addr, place.length,
                  IBV_ACCESS_REMOTE_WRITE)) {
        return IBV_WC_REM_ACCESS_ERR;
      }
      if ((request.send_flags & IBV_SEND_INLINE) != 0) ++faults.inline_writes;
      if (regions_[request.wr.rdma.rkey]->of_gpu) {  // not visible before a read
        const auto* const from = reinterpret_cast<const std::byte*>(place.addr);
        late_[of(peer.self.context).device].push_back(
            {request.wr.rdma.remote_addr, {from, from + place.length}});
        ++faults.late_writes;
      } else {
        copy(request.wr.rdma.remote_addr, place.addr, place.length);
      }
    }
    if (request.opcode != IBV_WR_RDMA_WRITE_WITH_IMM) return IBV_WC_SUCCESS;
    if (peer.receives.empty()) return IBV_WC_RNR_RETRY_EXC_ERR;
    complete(peer, peer.receives.front(), IBV_WC_SUCCESS, IBV_WC_RECV_RDMA_WITH_IMM,
             request.imm_data);
    peer.receives.pop_front();
    return IBV_WC_SUCCESS;
  }
  /// A queue pair to its own port: what the device has on its way arrives first.
  ibv_wc_status read(Pair& pair, const ibv_send_wr& request) {
    const ibv_sge& place = request.sg_list[0];
    if (faults.refuse_flush || pair.to != pair.self.qp_num) return IBV_WC_REM_OP_ERR;
    if (!covers(place.lkey, place.addr, place.length, IBV_ACCESS_LOCAL_WRITE)) {
      return IBV_WC_LOC_PROT_ERR;
    }
    if (!covers(request.wr.rdma.rkey, request.wr.rdma.remote_addr, place.length,
                IBV_ACCESS_REMOTE_READ)) {
      return IBV_WC_REM_ACCESS_ERR;
    }
    faults.flushes += regions_[request.wr.rdma.rkey]->of_gpu;
    if (faults.lose_gpu_writes) late_[of(pair.self.context).device].clear();
    for (const Late& late : late_[of(pair.self.context).device]) {
      std::memcpy(reinterpret_cast<void*>(late.to), late.data.data(), late.data.size());
    }
    late_[of(pair.self.context).device].clear();
    copy(place.addr, request.wr.rdma.remote_addr, place.length);
    return IBV_WC_SUCCESS;
  }
  bool is_mute(const Pair& pair) const {
    const int first = faults.mute_reads_from;
    return first >= 0 && of(pair.self.context).device->number >= first;
  }
  bool covers(std::uint32_t key, std::uint64_t at, std::uint32_t bytes, unsigned access) const {
    const auto found = regions_.find(key);
    if (found == regions_.end()) return false;
    const auto begin = reinterpret_cast<std::uint64_t>(found->second->self.addr);
    return at >= begin && at + bytes <= begin + found->second->self.length &&
           (found->second->access & access) == access;
  }

  static int post_send(ibv_qp* qp, ibv_send_wr* request, ibv_send_wr** bad) {
    const std::lock_guard lock{the->mutex};
    Faults& faults = the->faults;
    Pair& pair = *reinterpret_cast<Pair*>(qp);
    if (++faults.sends == faults.fail_send_at) {
      ++faults.failed_sends;
      *bad = request;
      return ENOMEM;
    }
    for (; request != nullptr; request = request->next) {
      if (pair.state == IBV_QPS_ERR) {
        the->complete(pair, request->wr_id, IBV_WC_WR_FLUSH_ERR, IBV_WC_RDMA_WRITE);
        continue;
      }
      const bool of_board = request->wr_id >> 63 != 0;
      const bool announces = !of_board && request->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
      faults.writes += announces ? 1 : 0;
      faults.board_writes += of_board ? 1 : 0;
      const bool forged =
          (announces && (faults.writes == faults.forge_at ||
                         (faults.forge_every > 0 && faults.writes % faults.forge_every == 0))) ||
          (of_board && faults.board_writes == faults.forge_board_at);
      ibv_wc_status status = IBV_WC_SUCCESS;
      if (request->opcode == IBV_WR_RDMA_READ) {
        if (the->is_mute(pair)) continue;
        status = the->read(pair, *request);
      } else if (!forged || faults.forged_arrives) {
        status = the->write(pair, *request);
        if (status == IBV_WC_SUCCESS && !of_board) the->count(pair, *request);
      }
      if (forged) {
        ++faults.forgeries;
        status = faults.forged;
      }
      if (status != IBV_WC_SUCCESS || (request->send_flags & IBV_SEND_SIGNALED) != 0) {
        the->complete(pair, request->wr_id, status, IBV_WC_RDMA_WRITE);
      }
      if (status != IBV_WC_SUCCESS) the->enter_error(pair);
    }
    return 0;
  }
  static int post_recv(ibv_qp* qp, ibv_recv_wr* request, ibv_recv_wr** bad) {
    const std::lock_guard lock{the->mutex};
    Pair& pair = *reinterpret_cast<Pair*>(qp);
    if (!pair.waits_to_connect && ++the->faults.receives == the->faults.fail_receive_at) {
      ++the->faults.failed_receives;
      *bad = request;
      return ENOMEM;
    }
    for (; request != nullptr; request = request->next) {
      if (pair.state == IBV_QPS_ERR) {
        the->complete(pair, request->wr_id, IBV_WC_WR_FLUSH_ERR, IBV_WC_RECV);
      } else {
        pair.receives.push_back(request->wr_id);
      }
    }
    return 0;
  }
  static int poll_cq(ibv_cq* cq, int most, ibv_wc* to) {
    std::this_thread::sleep_for(std::chrono::milliseconds{the->stall_ms_.exchange(0)});
    const std::lock_guard lock{the->mutex};
    if (the->faults.max_at_once > 0) most = std::min(most, the->faults.max_at_once);
    for (const int cpu : detail::allowed_cpus()) of(cq->context).device->cpus.insert(cpu);
    auto& done = reinterpret_cast<Queue*>(cq)->done;
    if (++the->faults.polls == the->faults.fail_poll_at) {
      ++the->faults.failed_polls;
      return -1;
    }
    int count = 0;
    for (Completion& completion : done) completion.polls_left -= completion.polls_left > 0 ? 1 : 0;
    while (count < most && !done.empty()) {
      // The first completion of each queue pair can be next.
      std::vector<std::size_t> first;
      std::vector<std::uint32_t> seen;
      for (std::size_t n = 0; n < done.size(); ++n) {
        if (std::find(seen.begin(), seen.end(), done[n].wc.qp_num) != seen.end()) continue;
        seen.push_back(done[n].wc.qp_num);
        if (done[n].polls_left == 0) first.push_back(n);
        if (!the->faults.reorder) break;
      }
      if (first.empty()) break;
      const std::size_t pick = first[the->random_() % first.size()];
      if (pick != 0) ++the->faults.reordered;
      to[count++] = done[pick].wc;
      done.erase(done.begin() + std::ptrdiff_t(pick));
    }
    return count;
  }
  static int req_notify_cq(ibv_cq* cq, int) {
    const std::lock_guard lock{the->mutex};
    reinterpret_cast<Queue*>(cq)->armed = true;
    return 0;
  }

  bool refuses(const bool& fault) {
    const std::lock_guard lock{mutex};
    if (fault) errno = ENOMEM;
    return fault;
  }

  void fill_table() {
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
      context->self.ops.post_send = post_send;
      context->self.ops.post_recv = post_recv;
      context->self.ops.poll_cq = poll_cq;
      context->self.ops.req_notify_cq = req_notify_cq;
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
      if (refused != 0 || fd < 0 || offset != 0) {
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
    calls_.create_comp_channel = [](ibv_context* context) -> ibv_comp_channel* {
      if (the->refuses(the->faults.refuse_channel)) return nullptr;
      auto* const channel = new Channel;
      channel->self.context = context;
      channel->self.fd = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
      ++the->held_;
      return &channel->self;
    };
    calls_.destroy_comp_channel = [](ibv_comp_channel* channel) {
      ::close(channel->fd);
      delete reinterpret_cast<Channel*>(channel);
      --the->held_;
      return 0;
    };
    calls_.create_cq = [](ibv_context* context, int entries, void*, ibv_comp_channel* channel,
                          int) -> ibv_cq* {
      if (the->refuses(the->faults.refuse_queue)) return nullptr;
      auto* const queue = new Queue;
      queue->self.context = context;
      queue->self.channel = channel;
      queue->self.cqe = entries;
      reinterpret_cast<Channel*>(channel)->queue = &queue->self;
      ++the->held_;
      return &queue->self;
    };
    calls_.destroy_cq = [](ibv_cq* cq) {
      delete reinterpret_cast<Queue*>(cq);
      --the->held_;
      return 0;
    };
    calls_.get_cq_event = [](ibv_comp_channel* channel, ibv_cq** cq, void**) {
      const std::lock_guard lock{the->mutex};
      Channel& of_channel = *reinterpret_cast<Channel*>(channel);
      if (of_channel.events == 0) return -1;
      if (--of_channel.events == 0) {
        eventfd_t value = 0;
        ::eventfd_read(channel->fd, &value);
      }
      *cq = of_channel.queue;
      return 0;
    };
    calls_.ack_cq_events = [](ibv_cq*, unsigned) {};
    calls_.create_qp = [](ibv_pd* pd, ibv_qp_init_attr* attributes) -> ibv_qp* {
      if (the->refuses(the->faults.refuse_pair)) return nullptr;
      const std::lock_guard lock{the->mutex};
      auto* const pair = new Pair;
      pair->self.context = pd->context;
      pair->self.qp_num = ++the->last_;
      pair->queue = reinterpret_cast<Queue*>(attributes->send_cq);
      the->pairs_[pair->self.qp_num] = pair;
      ++the->held_;
      return &pair->self;
    };
    calls_.modify_qp = [](ibv_qp* qp, ibv_qp_attr* to, int) -> int {
      const std::lock_guard lock{the->mutex};
      Pair& pair = *reinterpret_cast<Pair*>(qp);
      if (to->qp_state == IBV_QPS_RTR && the->faults.refuse_rtr) return EHOSTUNREACH;
      if (to->qp_state == IBV_QPS_RTS && the->faults.refuse_rts) return EINVAL;
      if (to->qp_state == IBV_QPS_INIT) pair.settings.pkey_index = to->pkey_index;
      if (to->qp_state == IBV_QPS_RTR) {
        pair.to = to->dest_qp_num;
        pair.settings.to = to->ah_attr.grh.dgid;
        pair.settings.gid_index = to->ah_attr.grh.sgid_index;
        pair.settings.traffic_class = to->ah_attr.grh.traffic_class;
        pair.settings.service_level = to->ah_attr.sl;
        pair.settings.mtu = to->path_mtu;
      }
      if (to->qp_state == IBV_QPS_RTS) {
        pair.settings.timeout = to->timeout;
        pair.settings.retry_count = to->retry_cnt;
        the->connected.push_back(pair.settings);
      }
      if (to->qp_state == IBV_QPS_ERR) {
        the->stall_ms_ = the->faults.stall_ms;
        the->enter_error(pair);
      } else {
        pair.state = to->qp_state;
        pair.waits_to_connect = to->qp_state == IBV_QPS_INIT;
      }
      return 0;
    };
    calls_.destroy_qp = [](ibv_qp* qp) {
      const std::lock_guard lock{the->mutex};
      the->pairs_.erase(qp->qp_num);
      delete reinterpret_cast<Pair*>(qp);
      --the->held_;
      return 0;
    };
  }

  detail::Verbs calls_;
  bool infiniband_;
  std::vector<std::unique_ptr<Device>> devices_;
  std::vector<Context*> contexts_;
  std::map<std::uint32_t, Pair*> pairs_;      // by number
  std::map<std::uint32_t, Region*> regions_;  // by key
  std::uint32_t last_ = 100;
  int subnet_ = 9;
  unsigned gid_index_ = 0;
  std::map<Device*, std::vector<Late>> late_;
  std::vector<std::pair<std::byte*, std::size_t>> gpu_memory_;
  std::atomic<int> held_{0}, stall_ms_{0};
  std::mt19937 random_{7};
};

}  // namespace ccl::test
