#include <ccl/host_memory.hpp>
#include <ccl/log.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "ib/task.hpp"
#include <arpa/inet.h>

namespace ccl::detail {
namespace {

constexpr int slots_per_write = 4;  // of a board
constexpr int board_writes = 64;    // under way on a queue pair
constexpr int board_signal_every = 8;
constexpr Word board_id = Word(1) << 63;
constexpr auto drain_limit = std::chrono::milliseconds{200};

class IbReceiver final : public IbTask {
 public:
  explicit IbReceiver(std::shared_ptr<IbLink> link) : IbTask{std::move(link), Fd{}} {
    for (const Wire& wire : link_->wires) {
      Channel channel;
      channel.wire = wire;
      channel.missing.resize(std::size_t(wire.slot_count));
      channels_.push_back(std::move(channel));
    }
  }

 private:
  struct Channel {
    Wire wire;
    std::size_t first = 0, pairs = 0, parts = 1;  // of `pairs_`
    Word received = 0;                            // steps, all parts of them
    Word offered = 0;                             // slots that the board knows
    std::vector<std::size_t> missing;             // parts, by slot
    Word board_posted = 0, board_done = 0;        // writes to the board
  };

  bool sends() const override { return false; }

  bool move(ProxyCounters& counters) override {
    bool moved = false;
    counters.steps += std::exchange(steps_, 0);
    counters.bytes += std::exchange(bytes_, 0);
    for (std::size_t c = 0; c < channels_.size() && state_ == State::running; ++c) {
      moved = offer_slots(c) || moved;
    }
    return moved;
  }
  bool could_move() const override {
    return std::any_of(channels_.begin(), channels_.end(),
                       [this](const Channel& channel) { return wants_to_offer(channel); });
  }
  bool waits_for_lanes() const override { return link_->polled && !ending(); }
  bool finished() const override { return true; }
  bool needs_peer() const override { return false; }

  void arrive() override {
    if (Fd socket{link_->arriving.exchange(-1)}; socket) {
      watch(socket.get());
      line_ = IbLine{std::move(socket)};
      listen_to_line();
    } else if (std::chrono::steady_clock::now() > link_->deadline) {
      give_up(Errc::timed_out,
              fmt::format("{} has not connected (its process is stopped or it cannot reach this "
                          "host); start all ranks, or raise the deadline",
                          peer_text()));
    }
  }

  static Word free_until(const Channel& channel) {
    return HostMemory::load_credit(channel.wire.drained) + Word(channel.wire.slot_count);
  }
  /// Several slots share a write while the sender has others to go on with.
  static bool wants_to_offer(const Channel& channel) {
    const Word few = Word(channel.wire.slot_count / 4);
    const Word free = free_until(channel) - channel.offered;
    return free > 0 && (free >= few || channel.offered - channel.received <= few) &&
           channel.board_posted - channel.board_done < board_writes;
  }

  bool offer_slots(std::size_t c) {
    Channel& channel = channels_[c];
    if (!wants_to_offer(channel)) return false;
    const Word until = free_until(channel);
    const Word count = Word(channel.wire.slot_count);
    Pair& pair = pairs_[channel.first];
    const IbPortCard& to = peers_ports_[std::size_t(peer_port(pair))];
    const std::uint32_t key = board_memory_[std::size_t(own_port(pair))]->local_key();
    IbSlot* const draft = link_->slots(int(c));
    while (channel.offered < until && channel.board_posted - channel.board_done < board_writes) {
      const Word first = channel.offered % count;
      const Word together =
          std::min({until - channel.offered, count - first, Word(slots_per_write)});
      for (Word n = 0; n < together; ++n) {
        IbSlot& slot = draft[first + n];
        const Word step = channel.offered + n;
        slot.address = reinterpret_cast<std::uint64_t>(channel.wire.slot(step));
        slot.bytes = std::uint32_t(link_->edge.shape.slot_bytes);
        slot.tag = std::uint32_t(c);
        for (std::size_t p = 0; p < ports_.size(); ++p) {
          slot.keys[p] = slot_memory_[p]->remote_key();
        }
        slot.step = step + 1;
        channel.missing[first + n] = channel.parts;
      }
      ibv_sge place{reinterpret_cast<std::uint64_t>(draft + first),
                    std::uint32_t(together * sizeof(IbSlot)), key};
      ibv_send_wr request{};
      request.wr_id = board_id | Word(c) << 48 | (channel.board_posted & (~Word(0) >> 16));
      request.sg_list = &place;
      request.num_sge = 1;
      request.opcode = IBV_WR_RDMA_WRITE;
      request.wr.rdma.remote_addr = board_ + (std::uint64_t(c) * count + first) * sizeof(IbSlot);
      request.wr.rdma.rkey = to.key;
      if (Index(place.length) <= pair.qp->inline_bytes()) request.send_flags |= IBV_SEND_INLINE;
      if (channel.board_posted % board_signal_every == board_signal_every - 1) {
        request.send_flags |= IBV_SEND_SIGNALED;
      }
      ibv_send_wr* bad = nullptr;
      if (const int code = ibv_post_send(pair.qp->get(), &request, &bad); code != 0) {
        trouble(fmt::format("free slots cannot be told to {} on queue pair {} of {} ({})",
                            peer_text(), pair.qp->number(),
                            ports_[std::size_t(own_port(pair))].text(), std::strerror(code)),
                true);
        return true;
      }
      ++channel.board_posted;
      channel.offered += together;
    }
    return true;
  }

  void completed(const ibv_wc& completion) override {
    const Word low = completion.wr_id & (~Word(0) >> 16);
    if ((completion.wr_id & board_id) != 0) {
      Channel& channel = channels_[std::size_t(completion.wr_id >> 48 & 0x7fff)];
      if (completion.status == IBV_WC_SUCCESS) {
        channel.board_done = low + 1;
      } else {
        trouble(pairs_[channel.first], completion, "the write of free slots");
      }
      return;
    }
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
    const Word bytes = ntohl(completion.imm_data);
    if (completion.opcode != IBV_WC_RECV_RDMA_WITH_IMM || low < channel.received ||
        low >= channel.offered || bytes > Word(link_->edge.shape.slot_bytes) ||
        channel.missing[low % slots] == 0) {
      if (!draining_) {
        give_up(Errc::internal,
                fmt::format("step {} of {} bytes came where steps {} to {} were due", low, bytes,
                            channel.received, channel.offered));
      }
      return;
    }
    channel.wire.sizes[low % slots] = bytes;
    --channel.missing[low % slots];
    const Word before = channel.received;
    while (channel.received < channel.offered && channel.missing[channel.received % slots] == 0) {
      bytes_ += channel.wire.sizes[channel.received % slots];
      ++channel.received;
    }
    steps_ += channel.received - before;
    advanced_ = advanced_ || channel.received != before;
    // Its place in the queue goes to the step that comes there next, before that slot is offered.
    if (!draining_) receive(p, low + slots);
    if (channel.received != before)
      HostMemory::store_release(channel.wire.posted, channel.received);
  }

  /// Posts the receive of a part of `step`.
  void receive(std::size_t p, Word step) {
    ibv_recv_wr request{}, *bad = nullptr;
    request.wr_id = Word(p) << 48 | step;
    const int code = ibv_post_recv(pairs_[p].qp->get(), &request, &bad);
    if (code == 0) {
      ++posted_receives_[p];
      return;
    }
    trouble(fmt::format("receives from {} cannot be posted on queue pair {} of {} ({})",
                        peer_text(), pairs_[p].qp->number(),
                        ports_[std::size_t(own_port(pairs_[p]))].text(), std::strerror(code)),
            true);
  }

  void heard(const IbMessage& message) override {
    IbReader body{message.body};
    switch (message.say) {
      case IbSay::offer:
        if (auto done = plan(body); !done) refuse(done.error());
        break;
      case IbSay::ready:
        if (auto done = go(body); !done) refuse(done.error());
        break;
      default:
        break;
    }
  }

  /// Whatever arrived before the queue pairs end counts: the sender may have been told so.
  void drain() {
    draining_ = true;
    for (const Pair& pair : pairs_) pair.qp->stop();
    const auto any = [this] {
      return std::any_of(posted_receives_.begin(), posted_receives_.end(),
                         [](std::size_t count) { return count > 0; });
    };
    const auto end = std::chrono::steady_clock::now() + drain_limit;
    ibv_wc done[32];
    while (any() && std::chrono::steady_clock::now() < end) {
      for (const auto& queue : queues_) {
        const int count = queue->poll(done, 32);
        for (int n = 0; n < count; ++n) {
          if ((done[n].wr_id & board_id) == 0) completed(done[n]);
        }
      }
    }
    draining_ = false;
  }
  /// Ports of the sender and of ours between which queue pairs of channel `c` go. One card of each,
  /// in turn; several ports of a card side by side.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> paths(
      std::size_t c, const std::vector<IbPortCard>& theirs) const {
    std::vector<std::int32_t> their_nics, my_nics;
    const auto note = [](std::vector<std::int32_t>& nics, std::int32_t nic) {
      if (std::find(nics.begin(), nics.end(), nic) == nics.end()) nics.push_back(nic);
    };
    for (const IbPortCard& card : theirs) note(their_nics, card.nic);
    for (const IbPort& port : ports_) note(my_nics, port.nic);
    std::vector<std::uint32_t> from, to;
    for (std::uint32_t n = 0; n < theirs.size(); ++n) {
      if (theirs[n].nic == their_nics[c % their_nics.size()]) from.push_back(n);
    }
    for (std::uint32_t n = 0; n < ports_.size(); ++n) {
      if (ports_[n].nic == my_nics[c % my_nics.size()]) to.push_back(n);
    }
    using Path = std::pair<std::uint32_t, std::uint32_t>;
    std::vector<Path> side_by_side, every;
    for (std::size_t n = 0; n < std::max(from.size(), to.size()); ++n) {
      side_by_side.emplace_back(from[n % from.size()], to[n % to.size()]);
    }
    for (std::uint32_t s = 0; s < theirs.size(); ++s) {
      for (std::uint32_t r = 0; r < ports_.size(); ++r) every.emplace_back(s, r);
    }
    const auto kind_fits = [&](const Path& path) {
      return (theirs[path.first].infiniband != 0) == ports_[path.second].infiniband;
    };
    const auto is_bad = [&](const Path& path) {
      const std::string mine = ports_[path.second].text();
      return std::any_of(bad_paths_.begin(), bad_paths_.end(), [&](const IbBadPath& bad) {
        return mine == bad.receiver && std::string_view{theirs[path.first].where} == bad.sender;
      });
    };
    const auto only = [](std::vector<Path> some, const auto& good) {
      std::erase_if(some, [&](const Path& path) { return !good(path); });
      return some;
    };
    side_by_side = only(side_by_side, kind_fits);
    every = only(every, kind_fits);
    const auto well = [&](const Path& path) { return !is_bad(path); };
    if (auto some = only(side_by_side, well); !some.empty()) return some;
    if (auto some = only(every, well); !some.empty()) return {some.front()};
    return side_by_side.empty() && !every.empty() ? std::vector<Path>{every.front()} : side_by_side;
  }

  /// The sender's offer: decides which queue pairs there will be, makes ours, and says so.
  Result<void> plan(IbReader& body) {
    const auto round = body.get<std::uint32_t>();
    if (round <= round_) return {};
    const bool again = round_ > 0;
    round_ = round;
    board_ = body.get<std::uint64_t>();
    const auto qps = body.get<std::int32_t>();
    const bool split = body.get<std::int32_t>() != 0 || link_->tuning.split;
    auto theirs = body.get_all<IbPortCard>();
    bad_paths_ = body.get_all<IbBadPath>();
    if (!body.good() || theirs.empty() || theirs.size() > most_ib_ports || qps < 1 || qps > 64) {
      return fail(Errc::mismatch, "the sender's offer is not one of ib");
    }
    if (again && !pairs_.empty()) drain();
    close_pairs();
    posted_receives_.clear();
    state_ = State::making;
    set_deadline();
    peers_ports_ = std::move(theirs);
    CCL_CHECK(take_ports());
    const auto per_path = std::size_t(std::max(qps, link_->tuning.qps_per_port));
    const int slots = link_->edge.shape.slot_count;
    std::vector<std::vector<std::pair<std::uint32_t, std::uint32_t>>> all_paths;
    std::vector<IbChannelPlan> plans;
    std::size_t total = 0;
    for (std::size_t c = 0; c < channels_.size(); ++c) {
      all_paths.push_back(paths(c, peers_ports_));
      if (all_paths.back().empty()) {
        return fail(Errc::network, "no port of the sender is of the kind of one of the receiver's");
      }
      Channel& channel = channels_[c];
      channel.parts = all_paths.back().size();
      // Groups take turns by the low bits of the step, so that slots and turns fit.
      std::size_t groups = 1;
      while (!split && groups * 2 <= per_path && groups * 2 <= std::size_t(slots)) groups *= 2;
      channel.pairs = channel.parts * (split ? per_path : groups);
      if (split) channel.parts = channel.pairs;
      channel.first = total;
      total += channel.pairs;
      channel.offered = channel.received;
      channel.board_posted = channel.board_done = 0;
      plans.push_back(
          {std::uint32_t(channel.pairs), std::uint32_t(channel.parts), channel.received});
    }
    CCL_CHECK(open_queues(int(total) * (slots + board_writes + 2) + 16));
    std::vector<IbPair> planned;
    for (std::size_t c = 0; c < channels_.size(); ++c) {
      const Channel& channel = channels_[c];
      const auto& ways = all_paths[c];
      const std::size_t groups = channel.pairs / channel.parts;
      for (std::size_t n = 0; n < channel.pairs; ++n) {
        const auto [from, to] = ways[n % ways.size()];
        CCL_TRY(auto qp,
                IbQp::make(ports_[to], queue_of(to),
                           {board_writes + 1, slots + 1, slots_per_write * int(sizeof(IbSlot))},
                           link_->tuning));
        const IbPair mine{from, to, qp->number(), qp->psn()};
        planned.push_back(mine);
        pairs_.push_back({std::move(qp), int(c), mine, {}});
        // Its steps from here on, as many as there can be under way.
        const Word group = Word(n / channel.parts), all = Word(groups);
        Word step = channel.received + (group + all - channel.received % all) % all;
        posted_receives_.push_back(std::size_t(slots) / groups);
        for (std::size_t k = 0; k < posted_receives_.back(); ++k, step += all) {
          ibv_recv_wr request{}, *bad = nullptr;
          request.wr_id = Word(pairs_.size() - 1) << 48 | step;
          if (const int code = ibv_post_recv(pairs_.back().qp->get(), &request, &bad); code != 0) {
            return fail(Errc::network, fmt::format("receives cannot be posted on {} ({})",
                                                   ports_[to].text(), std::strerror(code)));
          }
        }
      }
    }
    std::vector<IbPortCard> cards;
    for (std::size_t n = 0; n < ports_.size(); ++n) {
      cards.push_back(IbPortCard::of(ports_[n]));
      cards.back().key = slot_memory_[n]->remote_key();
    }
    IbWriter answer;
    answer.put(round_);
    answer.put_all(cards);
    answer.put_all(plans);
    answer.put_all(planned);
    line_.send(IbSay::plan, answer.body);
    return {};
  }

  /// The sender's queue pairs work: so do ours now.
  Result<void> go(IbReader& body) {
    if (body.get<std::uint32_t>() != round_ || state_ != State::making) return {};
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
    IbWriter answer;
    answer.put(round_);
    line_.send(IbSay::go, answer.body);
    state_ = State::running;
    link_->works();
    return {};
  }

  /// Only the sender makes offers.
  void make_anew(const std::string& why) override {
    state_ = State::making;
    set_deadline();
    IbWriter body;
    body.put(round_);
    body.put_all(bad_paths_);
    body.put_all(std::vector<char>(why.begin(), why.end()));
    line_.send(IbSay::broken, body.body);
  }

  std::vector<Channel> channels_;
  std::uint64_t board_ = 0;  // the sender's address of it
  Word steps_ = 0, bytes_ = 0;
  bool draining_ = false;
  std::vector<std::size_t> posted_receives_;  // one for each of `pairs_`
};

}  // namespace

std::shared_ptr<ProxyTask> make_ib_receiver(std::shared_ptr<IbLink> link) {
  return std::make_shared<IbReceiver>(std::move(link));
}

}  // namespace ccl::detail
