#include <ccl/comm/log.hpp>
#include <ccl/detail/lanes/host_memory.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "base/field_check.hpp"
#include "transport/ib/paths.hpp"
#include "transport/ib/slot_table.hpp"
#include "transport/ib/task.hpp"
#include <arpa/inet.h>

namespace ccl::detail {
namespace {

constexpr auto drain_limit = std::chrono::milliseconds{200};

/// `Notes`: times of the steps.
template <class Notes>
class IbReceiver final : public IbTask {
 public:
  explicit IbReceiver(std::shared_ptr<IbLink> link)
      : IbTask{std::move(link), Fd{}}, immediate_{link_->edge.shape.slot_bytes} {
    for (const Wire& wire : link_->wires) {
      Channel channel{{link_->transfers(), link_->edge, int(channels_.size()), 0}};
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
      watch(socket.get());
      line_ = IbControlSocket{std::move(socket)};
      listen_to_line();
    } else if (std::chrono::steady_clock::now() > link_->deadline) {
      give_up(Errc::timed_out,
              fmt::format("{} has not connected (its process is stopped or it cannot reach this "
                          "host); start all ranks, or raise the deadline",
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
    if (const auto back = freed > 0 ? link_->mate() : nullptr; back != nullptr) {
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

  void readiness(const IbMessage& message) override {
    ControlReader body{message.body};
    switch (message.say) {
      case IbControlType::offer:
        if (auto done = plan(body); !done) refuse(done.error());
        break;
      case IbControlType::ready:
        if (auto done = go(body); !done) refuse(done.error());
        break;
      default:
        break;
    }
  }

  /// Handles all data that arrived before the queue pairs end: the sender may have its completions.
  void drain() {
    draining_ = true;
    for (const Pair& pair : pairs_) pair.qp->stop();
    const auto any = [this] {
      return std::any_of(posted_receives_.begin(), posted_receives_.end(),
                         [](std::size_t count) { return count > 0; });
    };
    poll_while(any, [this](const ibv_wc& completion) {
      if (!IbSlotTable::is_of_a_board(completion)) completed(completion);
    });
    draining_ = false;
  }
  template <class Any, class Take>
  void poll_while(Any any, Take take) {
    const auto end = std::chrono::steady_clock::now() + drain_limit;
    ibv_wc done[32];
    bool came = true;  // a thread that had no core for so long still takes what has arrived
    while (any() && (came || std::chrono::steady_clock::now() < end)) {
      came = false;
      for (const auto& queue : queues_) {
        const int count = queue->poll(done, 32);
        for (int n = 0; n < count; ++n) take(done[n]);
        came = came || count > 0;
      }
    }
  }
  /// A sender that leaves has completions for all its steps.
  void take_arrived() override {
    if (pairs_.empty()) return;
    drain();
    if (!link_->flushes()) return;  // the lanes have all of it
    for (std::size_t c = 0; c < channels_.size(); ++c) show(c);
    const auto any = [this] {
      return std::any_of(channels_.begin(), channels_.end(), [](const Channel& channel) {
        return channel.flushed != channel.received;
      });
    };
    poll_while(any, [this](const ibv_wc& completion) {
      if (IbFlush::is_one(completion)) flushed(completion);
    });
    if (any()) {
      give_up(Errc::network, fmt::format("what {} sent before it left cannot be flushed to GPU "
                                         "memory",
                                         peer_text()));
    }
  }
  /// Part of the sender's offer that the plan goes by.
  struct Offer {
    int qps = 0;
    bool split = false;
  };

  /// Handles the sender's offer: decides on queue pairs, makes this end's, and sends the plan.
  Result<void> plan(ControlReader& body) {
    const auto round = body.get<std::uint32_t>();
    if (round <= round_) return {};
    const bool again = round_ > 0;
    round_ = round;
    slot_table_ = body.get<std::uint64_t>();
    Offer offer;
    offer.qps = body.get<std::int32_t>();
    const auto split = body.get<std::int32_t>();
    auto theirs = body.get_all<IbPortCard>();
    const auto their_nics = body.get_all<std::int32_t>();
    auto bad = body.get_all<IbBadPath>();
    const std::string why =
        FieldCheck{}
            .in_range("queue pairs of a port", offer.qps, 1, 64)
            .flag("split of steps", split)
            .part("ports", wrong_cards(theirs))
            .in_range("number of NICs", their_nics.size(), channels_.size(), channels_.size())
            .part("bad paths", wrong_paths(bad))
            .require(body.good(), "its end is missing")
            .why();
    if (!why.empty()) {
      return fail(Errc::mismatch, fmt::format("the sender's offer is not one of ib ({})", why));
    }
    offer.split = split != 0 || link_->tuning.split;
    bad_paths_ = std::move(bad);
    if (again && !pairs_.empty()) drain();
    close_pairs();
    posted_receives_.clear();
    state_ = State::making;
    set_deadline();
    peers_ports_ = std::move(theirs);
    CCL_CHECK(take_ports());
    std::vector<std::vector<IbPath>> all_paths;
    std::vector<IbChannelPlan> plans;
    std::size_t total = 0;
    for (std::size_t c = 0; c < channels_.size(); ++c) {
      all_paths.push_back(
          choose_paths(c, {their_nics[c], nics_[c]}, peers_ports_, ports_, bad_paths_));
      if (all_paths.back().empty()) {
        return fail(Errc::network, "no port of the sender is of the kind of one of the receiver's");
      }
      plans.push_back(plan_channel(c, offer, all_paths.back().size(), total));
      total += channels_[c].pairs;
    }
    // Data that came over other ports before a failure must be flushed by their devices.
    std::set<std::uint32_t> used;
    for (std::size_t c = 0; c < channels_.size(); ++c) {
      auto& writers = channels_[c].writers;
      const auto writer = [&](std::uint32_t n) {
        return std::pair<const IbDevice*, int>{ports_[n].device.get(), ports_[n].number};
      };
      for (const IbPath& path : all_paths[c]) writers.insert(writer(path.second));
      for (std::uint32_t n = 0; n < ports_.size(); ++n) {
        if (link_->flushes() && writers.count(writer(n)) != 0) used.insert(n);
      }
      for (const IbPath& path : all_paths[c]) used.insert(path.second);
    }
    CCL_CHECK(open_completions(int(total), used));
    std::vector<IbPair> planned;
    for (std::size_t c = 0; c < channels_.size(); ++c) {
      CCL_CHECK(make_pairs(c, all_paths[c], planned));
      if constexpr (Notes::wanted) {
        Channel& channel = channels_[c];
        channel.notes.use_networks(networks_of(channel.first, channel.pairs, channel.parts));
      }
    }
    if (!open_pairs()) return {};
    ControlWriter answer;
    answer.put(round_);
    answer.put_all(cards(slot_memory_));
    answer.put_all(plans);
    answer.put_all(planned);
    line_.send(IbControlType::plan, answer.body);
    return {};
  }

  /// Plans the queue pairs of channel `c`, which begin at `first`, and resets its counts.
  IbChannelPlan plan_channel(std::size_t c, const Offer& offer, std::size_t paths,
                             std::size_t first) {
    const auto per_path = std::size_t(std::max(offer.qps, link_->tuning.qps_per_port));
    const auto slots = std::size_t(link_->edge.shape.slot_count);
    Channel& channel = channels_[c];
    channel.parts = paths;
    // Groups take turns by the low bits of the step, so that slots and turns fit.
    std::size_t groups = 1;
    while (!offer.split && groups * 2 <= per_path && groups * 2 <= slots) groups *= 2;
    channel.pairs = channel.parts * (offer.split ? per_path : groups);
    if (offer.split) channel.parts = channel.pairs;
    channel.first = first;
    channel.offered = channel.first_offered = channel.received;
    link_->freed[c].may = false;
    link_->freed[c].offered = channel.offered;
    std::fill(channel.landings.begin(), channel.landings.end(), ZeroCopy::Landing{});
    std::fill(channel.lands.begin(), channel.lands.end(), false);
    channel.slot_table.restart();
    channel.reads = 0;
    return {std::uint32_t(channel.pairs), std::uint32_t(channel.parts), channel.received};
  }

  /// Opens the completion queues for `pairs` queue pairs on these ports, and the flushes of GPU
  /// memory.
  Result<void> open_completions(int pairs, const std::set<std::uint32_t>& used) {
    const int slots = link_->edge.shape.slot_count;
    CCL_CHECK(open_queues(
        pairs * (slots + IbSlotTable::max_writes + 2) + int(channels_.size() * used.size()) + 16,
        used));
    if (!link_->flushes()) return {};
    for (const std::uint32_t n : used) {
      CCL_TRY(flushes_[n],
              IbFlush::make(ports_[n], queue_of(n), int(channels_.size()) + 1, link_->tuning));
    }
    return {};
  }

  /// Makes the queue pairs of channel `c` and posts their receives.
  Result<void> make_pairs(std::size_t c, const std::vector<IbPath>& paths,
                          std::vector<IbPair>& planned) {
    const int slots = link_->edge.shape.slot_count;
    const Channel& channel = channels_[c];
    const std::size_t groups = channel.pairs / channel.parts;
    for (std::size_t n = 0; n < channel.pairs; ++n) {
      const auto [from, to] = paths[n % paths.size()];
      CCL_TRY(auto qp, IbQp::make(ports_[to], queue_of(to),
                                  {IbSlotTable::max_writes + 1, slots + 1,
                                   IbSlotTable::slots_per_write * int(sizeof(IbSlot))},
                                  link_->tuning));
      const IbPair mine{from, to, qp->number(), qp->psn()};
      planned.push_back(mine);
      pairs_.push_back({std::move(qp), int(c), mine, {}});
      // One receive for each of its next steps, up to the number that can be in flight.
      const Word group = Word(n / channel.parts), all = Word(groups);
      Word step = channel.received + (group + all - channel.received % all) % all;
      posted_receives_.push_back(0);
      for (std::size_t k = 0; k < std::size_t(slots) / groups; ++k, step += all) {
        if (const int code = post_receive(pairs_.size() - 1, step); code != 0) {
          return fail(Errc::network, fmt::format("receives cannot be posted on {} ({})",
                                                 ports_[to].text(), std::strerror(code)));
        }
      }
    }
    return {};
  }

  /// Handles the sender's report that its queue pairs work: connects this end's.
  Result<void> go(ControlReader& body) {
    if (body.get<std::uint32_t>() != round_ || state_ != State::making) return {};
    if (link_->is_closed_to_peer()) {
      end_pairs();
      return {};
    }
    const auto theirs = body.get_all<IbPair>();
    if (!body.good() || theirs.size() != pairs_.size()) {
      return fail(Errc::mismatch, "the sender's queue pairs are not those of the plan");
    }
    for (std::size_t n = 0; n < pairs_.size(); ++n) {
      Pair& pair = pairs_[n];
      pair.theirs = theirs[n];
      CCL_CHECK(pair.qp->connect(ports_[pair.mine.receiver_port],
                                 peers_ports_[pair.mine.sender_port], pair.theirs.number,
                                 pair.theirs.psn, link_->tuning));
    }
    ControlWriter answer;
    answer.put(round_);
    line_.send(IbControlType::go, answer.body);
    state_ = State::running;
    link_->works();
    for (std::size_t c = 0; c < channels_.size(); ++c) show(c);  // data from before the failure
    return {};
  }

  /// Only the sender makes offers.
  void make_anew(const std::string& why) override {
    state_ = State::making;
    set_deadline();
    ControlWriter body;
    body.put(round_);
    body.put_all(bad_paths_);
    body.put_all(std::vector<char>(why.begin(), why.end()));
    line_.send(IbControlType::broken, body.body);
  }

  const IbImmediate immediate_;
  std::vector<Channel> channels_;
  std::uint64_t slot_table_ = 0;  // address of the sender's table
  Word steps_ = 0, bytes_ = 0, registered_bytes_ = 0;
  bool draining_ = false;
  std::vector<std::size_t> posted_receives_;  // one for each of `pairs_`
};

}  // namespace

std::shared_ptr<ProxyTask> make_ib_receiver(std::shared_ptr<IbLink> link) {
  if (link->transfers() != nullptr)
    return std::make_shared<IbReceiver<TransferNotes>>(std::move(link));
  return std::make_shared<IbReceiver<NoTransferNotes>>(std::move(link));
}

}  // namespace ccl::detail
