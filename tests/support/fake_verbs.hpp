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
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/numa.hpp"
#include "support/fake_devices.hpp"
#include "transport/ib/verbs/verbs.hpp"
#include <sys/eventfd.h>
#include <unistd.h>

namespace ccl::test {

/// Devices with queues, which copy what is written.
class FakeVerbs final : public FakeDevices {
 public:
  explicit FakeVerbs(int devices, bool infiniband = false)
      : FakeVerbs{names_of(devices), infiniband} {}
  explicit FakeVerbs(const std::vector<std::string>& names, bool infiniband = false)
      : FakeDevices{names, infiniband} {
    the = this;
    fill_queue_calls();
    detail::use_verbs(&calls_);
  }
  ~FakeVerbs() {
    detail::use_verbs(nullptr);
    the = nullptr;
  }

  std::atomic<int> queues{0}, channels{0};  // that are there
  std::vector<QpSettings> connected;        // queue pairs that reached RTS, in that order
  /// Lets the next look see all completions that are delayed.
  void end_delays() {
    const std::lock_guard lock{mutex};
    faults.delay_polls = 0;
    for (auto& [number, pair] : pairs_) {
      for (Completion& completion : pair->queue->done) completion.polls_left = 0;
    }
  }
  /// Number of queue pairs in the error state.
  int in_error() {
    const std::lock_guard lock{mutex};
    return int(std::count_if(pairs_.begin(), pairs_.end(),
                             [](const auto& each) { return each.second->state == IBV_QPS_ERR; }));
  }
  /// Completes the oldest receive of a queue pair, as a write of a peer that says anything in its
  /// immediate. Returns false if no queue pair has a receive.
  bool announce(std::uint32_t immediate, ibv_wc_opcode opcode = IBV_WC_RECV_RDMA_WITH_IMM) {
    const std::lock_guard lock{mutex};
    for (auto& [number, pair] : pairs_) {
      if (pair->receives.empty() || pair->state != IBV_QPS_RTS) continue;
      complete(*pair, pair->receives.front(), IBV_WC_SUCCESS, opcode, immediate);
      pair->receives.pop_front();
      return true;
    }
    return false;
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
  struct Completion {
    ibv_wc wc;
    int polls_left;
  };
  struct Channel {
    ibv_comp_channel self{};
    std::deque<ibv_cq*> events{};
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
  /// On its way through a device to a GPU's memory.
  struct Late {
    std::uint64_t to;
    std::vector<std::byte> data;
  };

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
    if (queue.done.size() > std::size_t(queue.self.cqe)) ++faults.overruns;
    if (!std::exchange(queue.armed, false)) return;
    Channel& channel = *reinterpret_cast<Channel*>(queue.self.channel);
    channel.events.push_back(&queue.self);
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
  /// Notes the CPUs of a thread that polls, once for each device: threads poll all the time, and a
  /// proxy's thread chooses its CPUs before.
  static void note_cpus(Device& device) {
    thread_local std::set<const Device*> known;
    if (!known.insert(&device).second) return;
    for (const int cpu : detail::allowed_cpus()) device.cpus.insert(cpu);
  }
  static int poll_cq(ibv_cq* cq, int most, ibv_wc* to) {
    std::this_thread::sleep_for(std::chrono::milliseconds{the->stall_ms_.exchange(0)});
    const std::lock_guard lock{the->mutex};
    if (the->faults.max_at_once > 0) most = std::min(most, the->faults.max_at_once);
    note_cpus(*of(cq->context).device);
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

  void add_queue_calls(ibv_context_ops& calls) override {
    calls.post_send = post_send;
    calls.post_recv = post_recv;
    calls.poll_cq = poll_cq;
    calls.req_notify_cq = req_notify_cq;
  }

  void fill_queue_calls() {
    calls_.create_comp_channel = [](ibv_context* context) -> ibv_comp_channel* {
      if (the->refuses(the->faults.refuse_channel)) return nullptr;
      auto* const channel = new Channel;
      channel->self.context = context;
      channel->self.fd = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
      ++the->held_;
      ++the->channels;
      return &channel->self;
    };
    calls_.destroy_comp_channel = [](ibv_comp_channel* channel) {
      ::close(channel->fd);
      delete reinterpret_cast<Channel*>(channel);
      --the->held_;
      --the->channels;
      return 0;
    };
    calls_.create_cq = [](ibv_context* context, int entries, void*, ibv_comp_channel* channel,
                          int) -> ibv_cq* {
      if (the->refuses(the->faults.refuse_queue)) return nullptr;
      auto* const queue = new Queue;
      queue->self.context = context;
      queue->self.channel = channel;
      queue->self.cqe = entries;
      ++the->held_;
      ++the->queues;
      return &queue->self;
    };
    calls_.destroy_cq = [](ibv_cq* cq) {
      const std::lock_guard lock{the->mutex};
      if (cq->channel != nullptr) std::erase(reinterpret_cast<Channel*>(cq->channel)->events, cq);
      delete reinterpret_cast<Queue*>(cq);
      --the->held_;
      --the->queues;
      return 0;
    };
    calls_.get_cq_event = [](ibv_comp_channel* channel, ibv_cq** cq, void**) {
      const std::lock_guard lock{the->mutex};
      auto& events = reinterpret_cast<Channel*>(channel)->events;
      *cq = events.empty() ? nullptr : events.front();
      if (*cq != nullptr) events.pop_front();
      eventfd_t value = 0;
      if (events.empty()) ::eventfd_read(channel->fd, &value);
      return *cq != nullptr ? 0 : -1;
    };
    calls_.ack_cq_events = [](ibv_cq*, unsigned) {};
    calls_.create_qp = [](ibv_pd* pd, ibv_qp_init_attr* attributes) -> ibv_qp* {
      if (the->refuses(the->faults.refuse_pair)) return nullptr;
      const std::lock_guard lock{the->mutex};
      auto* const pair = new Pair;
      pair->self.context = pd->context;
      pair->self.qp_num = the->number();
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
      the->free_numbers_.push_back(qp->qp_num);
      // The device has no more to do for it: all its completions are there.
      for (Completion& completion : reinterpret_cast<Pair*>(qp)->queue->done) {
        if (completion.wc.qp_num == qp->qp_num) completion.polls_left = 0;
      }
      delete reinterpret_cast<Pair*>(qp);
      --the->held_;
      return 0;
    };
  }

  /// A number for a queue pair. With `reuse_numbers` it is that of the last one that has ended.
  std::uint32_t number() {
    if (!faults.reuse_numbers || free_numbers_.empty()) return ++last_;
    const std::uint32_t number = free_numbers_.back();
    free_numbers_.pop_back();
    ++faults.reused_numbers;
    return number;
  }

  std::map<std::uint32_t, Pair*> pairs_;  // by number
  std::vector<std::uint32_t> free_numbers_;
  std::map<Device*, std::vector<Late>> late_;
  std::atomic<int> stall_ms_{0};
  std::mt19937 random_{7};
};

}  // namespace ccl::test
