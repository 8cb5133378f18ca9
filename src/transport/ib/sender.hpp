#pragma once

#include <ccl/detail/lanes/host_memory.hpp>
#include <ccl/detail/transport/zero_copy.hpp>
#include <ccl/types/word.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "transport/ib/slot_table.hpp"
#include "transport/ib/task.hpp"
#include "transport/registered_memory.hpp"
#include <arpa/inet.h>

namespace ccl::detail {

/// Sender of steps over queue pairs. `Notes`: times of the steps.
template <class Notes>
class IbSender final : public IbTask {
  static constexpr Index signal_bytes = 16 << 10;  // of a piece that gets a completion of its own

 public:
  IbSender(std::shared_ptr<IbLink> link, net::SecureSocket socket)
      : IbTask{std::move(link), std::move(socket)}, immediate_{link_->edge.shape.slot_bytes} {
    for (const Wire& wire : link_->wires) {
      Channel& channel = channels_.emplace_back(
          Notes{link_->transfers(), link_->edge, wire, int(channels_.size()), 0});
      channel.wire = wire;
      channel.freed.resize(std::size_t(wire.slot_count));
    }
  }

  /// Sends the first offer; the caller handles errors.
  Result<void> start() { return offer(); }

 private:
  struct Channel {
    explicit Channel(Notes its) : notes{std::move(its)} {}
    Wire wire;
    std::size_t first = 0, pairs = 0, parts = 1;  // of `pairs_`
    Word next = 0;                                // step to transmit
    Word done = 0;                                // steps that have arrived
    std::vector<Word> freed;                      // by slot: see `freed_by`
    Word reported = 0;                            // steps that have their `freed`
    [[no_unique_address]] Notes notes;
  };
  /// Requests of a queue pair that one call posts, and their progress.
  struct Chain {
    std::vector<ibv_send_wr> requests;
    std::vector<ibv_sge> places;
    std::size_t count = 0;
    Word undone = 0;  // the first of its steps without a completion
    bool announces = false;
  };

  bool sends() const override { return true; }

  /// Opens a late connection when a step needs it.
  void arrive() override {
    if (link_->late_calls == nullptr || !needs_peer()) return;
    auto opened = link_->late_calls->open(0);
    if (!opened) return cannot_open(std::move(opened).error());
    if (!*opened) return;
    line_ = IbControlSocket{*std::move(opened)};
    rested_ = false;
    fresh_ = true;
    since_ = std::chrono::steady_clock::now();
    all_.watch(line_.fd(), in_);
    if (auto started = start(); !started) refuse(started.error());
  }

  bool move(ProxyCounters& counters) override {
    if (left_ && needs_peer()) {
      lost("it closed its end of the connection", 0);
      return true;
    }
    bool moved = false;
    for (std::size_t c = 0; c < channels_.size() && state_ == State::running; ++c) {
      moved = transmit(c, counters) || moved;
    }
    if (!moved && state_ == State::running && is_idle()) ask_for_rest();
    return moved;
  }
  bool could_move() const override {
    if (resting_) return false;
    for (std::size_t c = 0; c < channels_.size(); ++c) {
      if (posted(channels_[c]) && !revoked(channels_[c]) && slot_is_free(c)) return true;
    }
    return false;
  }
  bool waits_for_lanes() const override { return link_->polled && !ending(); }
  bool needs_peer() const override {
    return std::any_of(channels_.begin(), channels_.end(), posted);
  }
  void return_sent() override {
    for (Channel& channel : channels_) {
      if (channel.done < channel.next) return_steps(channel, channel.next);
    }
  }
  void let_go() override {
    for (Channel& channel : channels_) {
      if (channel.wire.zero_copy == nullptr) continue;
      channel.wire.zero_copy->close();
      const Word posted = HostMemory::load_acquire(channel.wire.posted);
      for (Word step = channel.done; step < posted; ++step) channel.wire.zero_copy->give_back(step);
    }
  }
  bool finished() const override {
    return std::all_of(channels_.begin(), channels_.end(), [](const Channel& channel) {
      return channel.done == HostMemory::load_acquire(channel.wire.posted);
    });
  }

  /// True if no step has come for a while, so that the queue pairs may end.
  bool is_idle() {
    if (link_->idle_s == 0 || resting_ || ending()) return false;
    const auto now = std::chrono::steady_clock::now();
    const Word steps = steps_done();
    if (!finished() || std::exchange(seen_, steps) != steps) since_ = now;
    return now - since_ > std::chrono::duration<double>(link_->idle_s);
  }
  Word steps_done() const {
    return std::accumulate(channels_.begin(), channels_.end(), Word{0},
                           [](Word all, const Channel& channel) { return all + channel.done; });
  }
  /// Asks the receiver to end its queue pairs once it has all steps. What lanes post meanwhile goes
  /// over others.
  void ask_for_rest() {
    ControlWriter body;
    body.put(round_);
    std::vector<Word> steps;
    for (const Channel& channel : channels_) steps.push_back(channel.done);
    body.put_all(steps);
    line_.send(IbControlType::rest, body.body);
    resting_ = true;
  }

  static bool posted(const Channel& channel) {
    return channel.next < HostMemory::load_acquire(channel.wire.posted);
  }
  static bool revoked(const Channel& channel) {
    return channel.wire.zero_copy != nullptr && channel.wire.zero_copy->revoked();
  }
  const IbSlot& slot_on_board(std::size_t c) const {
    const Channel& channel = channels_[c];
    return link_->slots(int(c))[channel.next & Word(channel.wire.slot_count - 1)];
  }
  bool slot_is_free(std::size_t c) const {
    const Word next = channels_[c].next;
    const IbSlot& slot = slot_on_board(c);
    const Word on_board = HostMemory::load_acquire(&slot.step);
    // A slot's address never changes, so an older line serves; without any line the address is
    // unknown. An older line that names a user's memory does not serve.
    if (on_board == next + 1) return true;
    return on_board != 0 && link_->freed[c].until > next &&
           HostMemory::load_relaxed(&slot.lands) == 0;
  }

  /// Free slots of the reverse edge that `step` reports: the same number if it is sent again.
  Word freed_by(std::size_t c, Word step, IbLink* back) {
    Channel& channel = channels_[c];
    Word& freed = channel.freed[step & Word(channel.wire.slot_count - 1)];
    if (step < channel.reported) return freed;
    channel.reported = step + 1;
    freed = 0;
    if (back == nullptr || c >= back->freed.size() || !back->freed[c].may) return freed;
    const Wire& wire = back->wires[c];
    Word& until = back->freed[c].until;
    const Word now = HostMemory::load_credit(wire.drained) + Word(wire.slot_count);
    const Word most = std::min(now - until, immediate_.max_freed());
    while (freed < most && !back->lands(c, until + freed)) ++freed;  // a table line names the place
    until += freed;
    return freed;
  }

  bool transmit(std::size_t c, ProxyCounters& counters) {
    Channel& channel = channels_[c];
    const Word before = channel.next;
    if (!posted(channel) || revoked(channel) || resting_) return false;
    if (Notes::wanted) channel.notes.posted(HostMemory::load_acquire(channel.wire.posted));
    const auto back = link_->mate();
    while (posted(channel) && slot_is_free(c)) {
      const Word step = channel.next;
      const IbSlot& to = slot_on_board(c);
      const std::size_t groups = channel.pairs / channel.parts;
      const std::size_t first = channel.first + step % groups * channel.parts;
      const std::byte* const source = source_of(channel, step, first);
      if (source == nullptr) break;
      const Index bytes = bytes_of(channel, step);
      if (bytes > Index(to.bytes) || (to.lands != 0 && bytes != Index(to.bytes))) {
        misfit(step, bytes, to);
        return true;
      }
      const Index part = div_up(div_up(bytes, Index(channel.parts)), Index(128)) * 128;
      const std::uint32_t mentions = immediate_.of(Word(bytes), freed_by(c, step, back.get()));
      for (std::size_t p = 0; p < channel.parts; ++p) {
        const Index from = std::min(part * Index(p), bytes);
        add(first + p, step, source + from, std::min(part, bytes - from),
            to.address + std::uint64_t(from), to, mentions);
      }
      channel.notes.posted(step + 1);
      channel.notes.begin(step, channel.notes.now(), Word(bytes));
      ++channel.next;
      ++counters.steps;
      counters.bytes += Word(bytes);
      if (is_lent(channel, step)) counters.registered_bytes += Word(bytes);
    }
    if (channel.next == before) return false;
    for (std::size_t p = channel.first; p < channel.first + channel.pairs; ++p) {
      if (!post(p)) return true;
    }
    return true;
  }

  static Word& size_of(const Channel& channel, Word step) {
    return channel.wire.sizes[step & Word(channel.wire.slot_count - 1)];
  }
  static Index bytes_of(const Channel& channel, Word step) {
    return Index(size_of(channel, step) & ~ZeroCopy::mark);
  }
  /// True if the step is in the user's memory.
  static bool is_lent(const Channel& channel, Word step) {
    return channel.wire.zero_copy != nullptr && size_of(channel, step) >= ZeroCopy::mark;
  }
  /// Returns the place of a step, whose queue pairs begin at `first`: its slot or the user's
  /// memory. A step whose memory a device cannot register is copied to its slot. Returns null if
  /// the lanes have revoked it.
  const std::byte* source_of(const Channel& channel, Word step, std::size_t first) {
    auto* const slot = reinterpret_cast<std::byte*>(channel.wire.slot(step));
    if (!is_lent(channel, step)) return slot;
    ZeroCopy& past = *channel.wire.zero_copy;
    bool all = true;
    for (std::size_t p = first; p < first + channel.parts && all; ++p) {
      all = link_->user_memory(*past.lent_memory(step), port_of(pairs_[p])) != nullptr;
    }
    if (all) return past.place(step);
    const ZeroCopy::Use use{&past};
    if (!use.allowed()) return nullptr;
    const Index bytes = bytes_of(channel, step);
    std::memcpy(slot, past.place(step), std::size_t(bytes));
    size_of(channel, step) = Word(bytes);
    past.give_back(step);
    return slot;
  }
  std::uint32_t key_of(const Channel& channel, Word step, std::size_t port) const {
    if (!is_lent(channel, step)) return slot_memory_[port]->local_key();
    return link_->user_memory(*channel.wire.zero_copy->lent_memory(step), ports_[port])
        ->local_key();
  }
  void misfit(Word step, Index bytes, const IbSlot& to) {
    if (to.lands == 0) {
      give_up(Errc::internal, fmt::format("step {} of {} bytes does not fit into a slot of {}",
                                          step, bytes, to.bytes));
      return;
    }
    give_up(Errc::mismatch, fmt::format("step {} has {} bytes, and {} receives {}; pass the same "
                                        "sizes to the calls of both ranks",
                                        step, bytes, peer_text(), to.bytes));
  }

  /// Posts data, then its announcement: one request, or two if the network may reorder them.
  void add(std::size_t p, Word step, const std::byte* from, Index bytes, std::uint64_t to,
           const IbSlot& slot, std::uint32_t mentions) {
    Pair& pair = pairs_[p];
    Chain& chain = chains_[p];
    const Channel& channel = channels_[std::size_t(pair.channel)];
    const bool lent = is_lent(channel, step);
    const std::uint32_t key = key_of(channel, step, std::size_t(own_port(pair)));
    const auto next = [&]() -> ibv_send_wr& {
      ibv_send_wr& request = chain.requests[chain.count];
      ibv_sge& place = chain.places[chain.count++];
      request = {};
      place = {reinterpret_cast<std::uint64_t>(from), std::uint32_t(bytes), key};
      request.wr_id = Word(p) << 48 | step;
      request.sg_list = &place;
      request.num_sge = bytes > 0 ? 1 : 0;
      request.wr.rdma.remote_addr = to;
      request.wr.rdma.rkey = slot.keys[peer_port(pair)];
      // The CPU cannot read a GPU's memory, and lanes that fail cannot end its reads of a user's.
      const bool readable = link_->gpu_slots == nullptr && !lent;
      if (readable && bytes > 0 && bytes <= pair.qp->inline_bytes()) {
        request.send_flags = IBV_SEND_INLINE;
      }
      return request;
    };
    const bool apart = chain.announces && bytes > 0 && bytes >= link_->tuning.announce_bytes;
    const bool large = bytes >= signal_bytes;
    if (apart) {
      next().opcode = IBV_WR_RDMA_WRITE;
      bytes = 0;
    }
    ibv_send_wr& last = next();
    last.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    last.imm_data = htonl(mentions);
    if (large) last.send_flags |= IBV_SEND_SIGNALED;
  }

  bool post(std::size_t p) {
    Chain& chain = chains_[p];
    if (chain.count == 0) return true;
    for (std::size_t n = 0; n + 1 < chain.count; ++n) {
      chain.requests[n].next = &chain.requests[n + 1];
    }
    chain.requests[chain.count - 1].send_flags |= IBV_SEND_SIGNALED;
    ibv_send_wr* bad = nullptr;
    const int code = ibv_post_send(pairs_[p].qp->get(), chain.requests.data(), &bad);
    chain.count = 0;
    if (code == 0) return true;
    trouble(fmt::format("writes from {} to {} cannot be posted on queue pair {} ({}{})",
                        port_of(pairs_[p]).text(), peer_text(), pairs_[p].qp->number(),
                        std::strerror(code), code == ENOMEM ? "; its send queue is full" : ""),
            true);
    return false;
  }

  /// Handles a notification: some slots are in the table, which `transmit` reads.
  void news(const ibv_wc& completion) {
    const std::size_t c = IbSlotTable::channel_of(completion);
    if (c >= channels_.size()) return;
    const Pair& pair = pairs_[channels_[c].first];
    if (completion.status != IBV_WC_SUCCESS) {
      trouble(pair, completion, "the wait for free slots");
    } else if (const int code = IbSlotTable::receive(*pair.qp, c); code != 0) {
      cannot_receive(pair, code);
    }
  }

  void completed(const ibv_wc& completion) override {
    if (IbSlotTable::is_of_a_board(completion)) return news(completion);
    const std::size_t p = completion.wr_id >> 48;
    const Word step = completion.wr_id & (~Word(0) >> 16);
    if (p >= pairs_.size()) return;
    const Pair& pair = pairs_[p];
    Channel& channel = channels_[std::size_t(pair.channel)];
    if (completion.status != IBV_WC_SUCCESS) {
      trouble(pair, completion,
              fmt::format("the write of step {} (of {} bytes, channel {})", step,
                          bytes_of(channel, step), pair.channel));
      return;
    }
    // Completions are in the order of posting: all earlier requests of this queue pair have
    // arrived.
    const Word groups = Word(channel.pairs / channel.parts);
    chains_[p].undone = std::max(chains_[p].undone, step + groups);
    Word done = channel.next;
    for (std::size_t n = channel.first; n < channel.first + channel.pairs; ++n) {
      done = std::min(done, chains_[n].undone);
    }
    if (done <= channel.done) return;
    advanced_ = true;
    return_steps(channel, done);
  }
  /// Returns the steps before `done` to the lanes.
  static void return_steps(Channel& channel, Word done) {
    for (; channel.done < done; ++channel.done) {
      if (Notes::wanted) {
        channel.notes.end(channel.done, Word(bytes_of(channel, channel.done)), channel.notes.now());
      }
      if (is_lent(channel, channel.done)) channel.wire.zero_copy->give_back(channel.done);
    }
    HostMemory::store_release(channel.wire.drained, done);
  }

  Result<void> offer();
  void make_anew(const std::string&) override;
  void readiness(const IbMessage& message) override;
  std::string paths() const;
  /// Handles the receiver's plan: makes the queue pairs that it lists.
  Result<void> follow(ControlReader& body);

  const IbImmediate immediate_;
  std::vector<Channel> channels_;
  std::vector<Chain> chains_;  // one for each of `pairs_`
  bool resting_ = false;       // the receiver is to end its queue pairs, too
  bool fresh_ = false;         // the offer is that of a new line
  Word seen_ = 0;              // steps that had arrived at the last look for idleness
  std::chrono::steady_clock::time_point since_{};  // none has come
};

}  // namespace ccl::detail
