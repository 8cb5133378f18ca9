#pragma once

#include <ccl/detail/lanes/host_memory.hpp>
#include <ccl/detail/transport/zero_copy.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "transport/ib/paths.hpp"
#include "transport/ib/slot_table.hpp"
#include "transport/ib/task.hpp"
#include <arpa/inet.h>

namespace ccl::detail {

/// Receiver of steps over queue pairs, which it plans. `Notes`: times of the steps.
template <class Notes>
class IbReceiver final : public IbTask {
 public:
  explicit IbReceiver(std::shared_ptr<IbLink> link)
      : IbTask{std::move(link), Fd{}}, immediate_{link_->edge.shape.slot_bytes} {
    for (const Wire& wire : link_->wires) {
      Channel channel{{link_->transfers(), link_->edge, wire, int(channels_.size()), 0}};
      channel.wire = wire;
      channel.missing.resize(std::size_t(wire.slot_count));
      channel.landings.resize(std::size_t(wire.slot_count));
      channel.lands.resize(std::size_t(wire.slot_count));
      channel.freed.resize(std::size_t(wire.slot_count));
      channels_.push_back(std::move(channel));
    }
  }

 private:
  struct Channel {
    explicit Channel(Notes its) : notes{std::move(its)} {}
    Wire wire;
    std::size_t first = 0, pairs = 0, parts = 1;  // of `pairs_`
    Word received = 0;                            // steps, all parts of them
    Word offered = 0;                             // slots that the sender knows to be free
    Word first_offered = 0;                       // over these queue pairs
    bool deferred = false;                        // an offer that can wait was deferred
    std::vector<std::size_t> missing;             // parts, by slot
    std::vector<Word> freed;                      // by slot: see `freed_by`
    std::vector<ZeroCopy::Landing> landings;      // by slot: of steps that have not arrived
    std::vector<bool> lands;                      // by slot: the last table line names a landing
    IbSlotTable slot_table;
    Word flushing = 0, flushed = 0;                     // steps, if they go to GPU memory
    std::size_t reads = 0;                              // in flight, one for each of `writers`
    std::set<std::pair<const IbDevice*, int>> writers;  // ports by which steps have come
    [[no_unique_address]] Notes notes;
  };

  bool sends() const override { return false; }

  void count(ProxyCounters& counters) override {
    counters.steps += std::exchange(steps_, 0);
    counters.bytes += std::exchange(bytes_, 0);
    counters.registered_bytes += std::exchange(registered_bytes_, 0);
  }
  bool move(ProxyCounters&) override {
    bool moved = false;
    for (std::size_t c = 0; c < channels_.size() && state_ == State::running; ++c) {
      moved = offer_slots(c) || moved;
    }
    if (state_ == State::running && rest_after_last()) return true;
    return moved;
  }
  bool could_move() const override {
    return std::any_of(channels_.begin(), channels_.end(),
                       [](const Channel& channel) { return must_offer(channel); });
  }
  bool waits_for_lanes() const override { return link_->polled && !ending(); }
  bool finished() const override { return true; }
  bool needs_peer() const override { return false; }
  void let_go() override {
    for (Channel& channel : channels_) {
      std::fill(channel.landings.begin(), channel.landings.end(), ZeroCopy::Landing{});
    }
  }

  void arrive() override {
    if (auto socket = link_->arriving.take(0); socket) {
      line_ = IbControlSocket{std::move(socket)};
      rested_ = false;
      all_.watch(line_.fd(), in_);
      listen_to_line();
    } else if (link_->sender_is_late()) {
      give_up(Errc::timed_out,
              fmt::format("{} has not connected (its process is stopped or it cannot reach this "
                          "host); start all ranks, or raise CCL_INIT_TIMEOUT",
                          peer_text()));
    }
  }

  /// Accounts for the free slots that steps of the reverse edge have reported.
  void note_report(std::size_t c) {
    Channel& channel = channels_[c];
    if (!link_->freed[c].may) return;
    for (; channel.offered < link_->freed[c].until; ++channel.offered) {
      const Word index = channel.offered % Word(channel.wire.slot_count);
      channel.missing[index] = channel.parts;
      channel.landings[index] = {};
    }
    link_->freed[c].offered = channel.offered;
  }
  /// Fills a table line: with the slot of the step, or with its place in registered memory.
  void describe(std::size_t c, Word step, IbSlot& line) {
    Channel& channel = channels_[c];
    const Word index = step % Word(channel.wire.slot_count);
    line.tag = std::uint32_t(c);
    ZeroCopy::Landing& landing = channel.landings[index];
    landing = channel.wire.zero_copy != nullptr ? channel.wire.zero_copy->landing(step)
                                                : ZeroCopy::Landing{};
    if (landing.memory != nullptr && !put_keys(channel, *landing.memory, line)) landing = {};
    channel.lands[index] = landing.memory != nullptr;
    line.lands = channel.lands[index] ? 1 : 0;
    if (channel.lands[index]) {
      line.address = reinterpret_cast<std::uint64_t>(landing.at);
      line.bytes = std::uint32_t(landing.bytes);
    } else {
      line.address = reinterpret_cast<std::uint64_t>(channel.wire.slot(step));
      line.bytes = std::uint32_t(link_->edge.shape.slot_bytes);
      for (std::size_t p = 0; p < ports_.size(); ++p) line.keys[p] = slot_memory_[p]->remote_key();
    }
    line.step = step + 1;
  }
  /// Puts the keys of registered memory for the ports of the channel into a line. Returns false if
  /// a device cannot register it.
  bool put_keys(const Channel& channel, RegisteredMemory& memory, IbSlot& line) const {
    for (std::size_t p = channel.first; p < channel.first + channel.pairs; ++p) {
      const auto registered = link_->user_memory(memory, port_of(pairs_[p]));
      if (registered == nullptr) return false;
      line.keys[own_port(pairs_[p])] = registered->remote_key();
    }
    return true;
  }
  static Word free_until(const Channel& channel) {
    return HostMemory::load_credit(channel.wire.drained) + Word(channel.wire.slot_count);
  }
  /// True if the sender is nearly out of slots.
  static bool must_offer(const Channel& channel) {
    return channel.offered - channel.received <= Word(channel.wire.slot_count / 4) &&
           free_until(channel) > channel.offered && channel.slot_table.has_room();
  }
  /// Half of the slots, which are adjacent, share a write that costs as much as one of a small
  /// step. Returns the step after the last of them.
  static Word next_half(const Channel& channel) {
    const Word half = Word(std::max(channel.wire.slot_count / 2, 1));
    return (channel.offered / half + 1) * half;
  }
  static bool may_offer(const Channel& channel) {
    return free_until(channel) >= next_half(channel) && channel.slot_table.has_room();
  }

  bool offer_slots(std::size_t c) {
    Channel& channel = channels_[c];
    note_report(c);
    if (!must_offer(channel)) {
      // A thread that has just drained a slot may have posted an answer. The answer goes first, so
      // the offer waits a round.
      channel.deferred = may_offer(channel) && !channel.deferred;
      if (channel.deferred || !may_offer(channel)) return false;
    }
    // Beyond a half, other slots will be free soon.
    const Word until = must_offer(channel) ? free_until(channel) : next_half(channel);
    const Word count = Word(channel.wire.slot_count);
    Pair& pair = pairs_[channel.first];
    const IbPortCard& to = peers_ports_[std::size_t(peer_port(pair))];
    const std::uint32_t key = board_memory_[std::size_t(own_port(pair))]->local_key();
    IbSlot* const draft = link_->slots(int(c));
    while (channel.offered < until && channel.slot_table.has_room()) {
      const Word first = channel.offered % count;
      const Word together =
          std::min({until - channel.offered, count - first, Word(IbSlotTable::slots_per_write)});
      for (Word n = 0; n < together; ++n) {
        describe(c, channel.offered + n, draft[first + n]);
        channel.missing[first + n] = channel.parts;
      }
      const std::uint64_t there = slot_table_ + (std::uint64_t(c) * count + first) * sizeof(IbSlot);
      if (const int code =
              channel.slot_table.write(*pair.qp, c, draft + first, together, key, there, to.key);
          code != 0) {
        trouble(
            fmt::format("free slots cannot be reported to {} on queue pair {} of {} ({})",
                        peer_text(), pair.qp->number(), port_of(pair).text(), std::strerror(code)),
            true);
        return true;
      }
      channel.offered += together;
    }
    link_->freed[c].offered = channel.offered;
    // An older line serves for a step that only the reverse edge reports, if it names a slot.
    link_->freed[c].may =
        channel.offered >= channel.first_offered + count &&
        std::find(channel.lands.begin(), channel.lands.end(), true) == channel.lands.end();
    return true;
  }

  void completed(const ibv_wc& completion) override {
    if (IbSlotTable::is_of_a_board(completion)) {
      Channel& channel = channels_[IbSlotTable::channel_of(completion)];
      if (completion.status == IBV_WC_SUCCESS) {
        channel.slot_table.completed(completion);
      } else {
        trouble(pairs_[channel.first], completion, "the write of free slots");
      }
      return;
    }
    if (IbFlush::is_one(completion)) return flushed(completion);
    const Word low = completion.wr_id & (~Word(0) >> 16);
    const std::size_t p = completion.wr_id >> 48;
    if (p >= pairs_.size()) return;
    Pair& pair = pairs_[p];
    --posted_receives_[p];
    if (completion.status != IBV_WC_SUCCESS) {
      if (!draining_) trouble(pair, completion, fmt::format("the receive of step {}", low));
      return;
    }
    Channel& channel = channels_[std::size_t(pair.channel)];
    const Word slots = Word(channel.wire.slot_count);
    const Word bytes = immediate_.bytes(ntohl(completion.imm_data));
    note_report(std::size_t(pair.channel));
    const ZeroCopy::Landing& landing = channel.landings[low % slots];
    const Index most = landing.memory != nullptr ? landing.bytes : link_->edge.shape.slot_bytes;
    if (completion.opcode != IBV_WC_RECV_RDMA_WITH_IMM || low < channel.received ||
        low >= channel.offered || bytes > Word(most) ||
        (landing.memory != nullptr && bytes != Word(most)) || channel.missing[low % slots] == 0) {
      if (!draining_) {
        reject(fmt::format("step is {} of {} bytes, not from {} to {} of at most {}", low, bytes,
                           channel.received, channel.offered, most));
      }
      return;
    }
    channel.wire.sizes[low % slots] = bytes | (landing.memory != nullptr ? ZeroCopy::mark : 0);
    channel.freed[low % slots] = immediate_.freed(ntohl(completion.imm_data));
    --channel.missing[low % slots];
    channel.notes.begin(low, channel.notes.now());
    const Word before = channel.received;
    Word freed = 0;
    while (channel.received < channel.offered && channel.missing[channel.received % slots] == 0) {
      const Word size = channel.wire.sizes[channel.received % slots] & ~ZeroCopy::mark;
      bytes_ += size;
      ZeroCopy::Landing& arrived = channel.landings[channel.received % slots];
      if (std::exchange(arrived, {}).memory != nullptr) registered_bytes_ += size;
      freed += channel.freed[channel.received % slots];
      channel.notes.end(channel.received, size, channel.notes.now());
      ++channel.received;
    }
    const auto back = freed > 0 ? link_->mate() : nullptr;
    if (back != nullptr && std::size_t(pair.channel) < back->freed.size()) {
      back->freed[std::size_t(pair.channel)].until += freed;
    }
    steps_ += channel.received - before;
    advanced_ = advanced_ || channel.received != before;
    // Its place in the queue goes to the next step there, before that slot is offered.
    if (!draining_) receive(p, low + slots);
    if (channel.received != before) show(std::size_t(pair.channel));
  }

  /// Posts to the lanes the steps that have been received and, for GPU memory, flushed.
  void show(std::size_t c) {
    Channel& channel = channels_[c];
    if (!link_->flushes()) {
      HostMemory::store_release(channel.wire.posted, channel.received);
      return;
    }
    if (draining_ || channel.reads > 0 || channel.flushed == channel.received) return;
    channel.flushing = channel.received;
    const auto at = reinterpret_cast<std::uint64_t>(channel.wire.slot(channel.received - 1));
    for (const auto& [n, flush] : flushes_) {
      if (channel.writers.count({ports_[n].device.get(), ports_[n].number}) == 0) continue;
      const int code = flush->read(c, at, slot_memory_[n]->remote_key(), link_->flush_landing(),
                                   board_memory_[n]->local_key());
      if (code != 0) {
        trouble(fmt::format("GPU memory cannot be flushed over {} ({})", ports_[n].text(),
                            std::strerror(code)),
                true);
        return;
      }
      ++channel.reads;
    }
  }
  void flushed(const ibv_wc& completion) {
    const std::size_t c = IbFlush::channel_of(completion);
    if (c >= channels_.size()) return;
    Channel& channel = channels_[c];
    if (completion.status != IBV_WC_SUCCESS) {
      if (draining_) return;
      trouble(fmt::format("the flush of GPU memory for {} ended with {}", peer_text(),
                          explain(completion.status).name),
              true);
      return;
    }
    if (channel.reads == 0 || --channel.reads > 0) return;
    channel.flushed = channel.flushing;
    HostMemory::store_release(channel.wire.posted, channel.flushed);
    show(c);
  }

  /// Posts the receive of a part of `step`. A queue pair uses receives in the order of posting: a
  /// receive that could not be posted would shift all later ones.
  void receive(std::size_t p, Word step) {
    if (in_trouble()) return;
    if (const int code = post_receive(p, step); code != 0) cannot_receive(pairs_[p], code);
  }
  int post_receive(std::size_t p, Word step) {
    ibv_recv_wr request{}, *bad = nullptr;
    request.wr_id = Word(p) << 48 | step;
    const int code = ibv_post_recv(pairs_[p].qp->get(), &request, &bad);
    if (code == 0) ++posted_receives_[p];
    return code;
  }

  /// Part of the sender's offer that the plan goes by.
  struct Offer {
    int qps = 0;
    bool split = false;
  };

  void readiness(const IbMessage& message) override;
  /// Handles all data that arrived before the queue pairs end: the sender may have its completions.
  void drain();
  template <class Any, class Take>
  void poll_while(Any any, Take take);
  /// A sender that leaves has completions for all its steps.
  void take_arrived() override;
  /// Handles the sender's offer: decides on queue pairs, makes this end's, and sends the plan.
  Result<void> plan(ControlReader& body);
  /// Plans the queue pairs of channel `c`, which begin at `first`, and resets its counts.
  IbChannelPlan plan_channel(std::size_t c, const Offer& offer, std::size_t paths,
                             std::size_t first);
  /// Makes room for the completions of the channels' queue pairs on these paths, and makes the
  /// flushes of GPU memory by the ports `used`.
  Result<void> open_completions(const std::vector<std::vector<IbPath>>& paths,
                                const std::set<std::uint32_t>& used);
  IbQpSize qp_size() const {
    return {IbSlotTable::max_writes + 1, link_->edge.shape.slot_count + 1,
            IbSlotTable::slots_per_write * int(sizeof(IbSlot))};
  }
  /// Makes the queue pairs of channel `c` and posts their receives.
  Result<void> make_pairs(std::size_t c, const std::vector<IbPath>& paths,
                          std::vector<IbPair>& planned);
  /// Handles the sender's report that its queue pairs work: connects this end's.
  Result<void> go(ControlReader& body);
  /// Ends the queue pairs if the sender is idle, once its last steps are here.
  bool rest_after_last();
  /// Only the sender makes offers.
  void make_anew(const std::string& why) override;

  const IbImmediate immediate_;
  std::vector<Channel> channels_;
  std::uint64_t slot_table_ = 0;  // address of the sender's table
  Word steps_ = 0, bytes_ = 0, registered_bytes_ = 0;
  bool draining_ = false;
  std::vector<Word> last_steps_;  // by channel, of a sender that is idle; empty: it is not
  std::vector<std::size_t> posted_receives_;  // one for each of `pairs_`
};

}  // namespace ccl::detail
