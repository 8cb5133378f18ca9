#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "transport/plug_in/task.hpp"

namespace ccl::detail {
namespace {

class PlugInReceiver final : public PlugInTask {
 public:
  explicit PlugInReceiver(std::shared_ptr<PlugInLink> link) : PlugInTask{std::move(link), {}} {
    for (Channel& channel : channels_) channel.landings.resize(channel.requests.size());
    flushes_.resize(channels_.size());
  }

 private:
  bool sends() const override { return false; }
  bool needs_peer() const override { return false; }
  bool finished() const override { return true; }
  static Word free_until(const Channel& channel) {
    return HostMemory::load_credit(channel.wire.drained) + Word(channel.wire.slot_count);
  }
  bool may_begin(const Channel& channel) const {
    return channel.begun < std::min(free_until(channel), last_step(channel)) &&
           channel.has_room() && !channel.revoked();
  }
  bool could_move() const override {
    return !stopped_ &&
           std::any_of(channels_.begin(), channels_.end(), [this](const Channel& channel) {
             return may_begin(channel) && !channel.blocked;
           });
  }

  void arrive() override {
    if (auto socket = link_->arriving.take(0); socket) {
      control_ = PlugInControlSocket{std::move(socket)};
      ControlWriter body;
      body.put_all(link_->handles);
      control_.send(PlugInControl::listens, body.body);
      state_ = State::making;
      deadline_ = net::Deadline::after(link_->context.deadline_s).at();
    } else if (std::chrono::steady_clock::now() > deadline_) {
      give_up(Errc::timed_out,
              fmt::format("{} has not connected (its process is stopped or it cannot reach this "
                          "host); start all ranks, or raise CCL_INIT_TIMEOUT",
                          peer_text()));
    }
  }

  bool make() override {
    bool moved = false, all = true;
    for (std::size_t c = 0; c < channels_.size(); ++c) {
      NetChannel& channel = objects(c);
      if (channel.comm == nullptr) {
        const int result =
            call("accept", c, [&] { return plug_in().accept(channel.listener, &channel.comm); });
        if (result != net_abi::success) {
          channel.comm = nullptr;
          broke("accept", result, fmt::format("for channel {}", c));
          return true;
        }
        if (channel.comm != nullptr) {
          if (!register_slots(c) || !close_listener(c)) return true;
          moved = true;
        }
      }
      all = all && channel.comm != nullptr;
    }
    if (all) {
      state_ = State::running;
      link_->works();
      stop_after_last();  // the sender may have left already
      return true;
    }
    if (std::chrono::steady_clock::now() > deadline_) {
      give_up(Errc::timed_out,
              fmt::format("accept of the {} has made no connection from {} within {:.3g} s; check "
                          "the network, or raise CCL_INIT_TIMEOUT",
                          plug_in().text(), peer_text(), link_->context.deadline_s));
    }
    return moved;
  }
  bool close_listener(std::size_t c) {
    void* const listener = std::exchange(objects(c).listener, nullptr);
    const int result = call("closeListen", c, [&] { return plug_in().close_listen(listener); });
    if (result == net_abi::success) return true;
    broke("closeListen", result, fmt::format("for channel {}", c));
    return false;
  }

  bool move(ProxyCounters& counters) override {
    bool moved = false;
    for (std::size_t c = 0; c < channels_.size() && state_ == State::running; ++c) {
      moved = complete(channels_[c], counters) || moved;
      if (state_ == State::running && link_->flushes) moved = flush(c) || moved;
      if (state_ == State::running && !stopped_) moved = begin(c) || moved;
    }
    if (state_ == State::running) stop_after_last();
    if (state_ == State::running && stopped_ && is_idle()) end();
    return moved;
  }
  bool complete(Channel& channel, ProxyCounters& counters) {
    const Word before = channel.done;
    Index bytes = 0;
    while (channel.under_way() > 0 && test(channel, bytes)) {
      const ZeroCopy::Landing landing = std::exchange(landing_of(channel, channel.done), {});
      const bool landed = landing.memory != nullptr;
      if (channel.done < last_step(channel) && !fits(channel.done, bytes, landing)) return true;
      channel.size_of(channel.done) = Word(bytes) | (landed ? ZeroCopy::mark : 0);
      if (channel.notes && channel.done < last_step(channel)) {
        channel.notes->end(channel.done, Word(bytes), channel.notes->now());
      }
      counters.bytes += Word(bytes);
      if (landed) counters.registered_bytes += Word(bytes);
      ++channel.done;
    }
    if (channel.done == before) return false;
    const Word steps = std::min(channel.done, last_step(channel));
    counters.steps += std::max(steps, before) - before;
    if (!link_->flushes) {
      HostMemory::store_release(channel.wire.posted, std::max(steps, before));
    }
    return true;
  }
  /// True if no receive and no flush is under way.
  bool is_idle() const {
    return !any_under_way() && std::none_of(flushes_.begin(), flushes_.end(), [](const Flush& one) {
      return one.request != nullptr;
    });
  }
  /// Flushes the steps of a channel that are in GPU memory, one after the other, and posts them.
  bool flush(std::size_t c) {
    Channel& channel = channels_[c];
    Flush& at = flushes_[c];
    const Word before = at.done;
    const Word until = std::min(channel.done, last_step(channel));
    while (at.done < until) {
      if (at.request == nullptr && !at.begun) {
        const Word bytes = channel.size_of(at.done) & ~ZeroCopy::mark;
        if (bytes > 0) {
          const int result = call("iflush", c, [&] {
            return plug_in().iflush(objects(c).comm, channel.wire.slot(at.done), std::size_t(bytes),
                                    objects(c).slots, &at.request);
          });
          if (result != net_abi::success) {
            broke("iflush", result, fmt::format("for step {}", at.done));
            return true;
          }
        }
        at.begun = true;
      }
      if (at.request != nullptr) {
        bool done = false;
        Index ignored = 0;
        const int result =
            call("test", c, [&] { return plug_in().test(at.request, done, ignored); });
        if (result != net_abi::success) {
          broke("test", result, fmt::format("for the flush of step {}", at.done));
          return true;
        }
        if (!done) break;
      }
      at = {nullptr, false, at.done + 1};
    }
    if (at.done == before) return false;
    HostMemory::store_release(channel.wire.posted, at.done);
    return true;
  }
  static ZeroCopy::Landing& landing_of(Channel& channel, Word step) {
    return channel.landings[channel.index(step)];
  }
  /// False, after an error, if a step does not have the size of its place.
  bool fits(Word step, Index bytes, const ZeroCopy::Landing& landing) {
    const Index most = link_->edge.shape.slot_bytes;
    if (bytes < 0 || bytes > most) {
      give_up(Errc::network,
              fmt::format("test of the {} gave {} bytes for step {} from {}, whose slot has {}",
                          plug_in().text(), bytes, step, peer_text(), most));
      return false;
    }
    if (landing.memory == nullptr || bytes == landing.bytes) return true;
    give_up(Errc::mismatch,
            fmt::format("step {} from {} has {} bytes, and {} are received; pass the same sizes to "
                        "the calls of both ranks",
                        step, peer_text(), bytes, landing.bytes));
    return false;
  }
  /// Number of steps that the peer has sent, if it leaves. Messages beyond it are empty.
  Word last_step(const Channel& channel) const {
    return sent_.empty() ? ~Word(0) : sent_[index_of(channel)];
  }
  bool begin(std::size_t c) {
    Channel& channel = channels_[c];
    const Word before = channel.begun;
    while (may_begin(channel)) {
      const Word step = channel.begun;
      ZeroCopy::Landing landing;
      if (channel.wire.zero_copy != nullptr) landing = channel.wire.zero_copy->landing(step);
      void* handle =
          landing.memory == nullptr ? nullptr : link_->channels->user_memory(*landing.memory, c);
      if (handle == nullptr) {
        landing = {};
        handle = objects(c).slots;
      }
      const bool lands = landing.memory != nullptr;
      void*& request = channel.request(step);
      void* const at = lands ? landing.at : static_cast<void*>(channel.wire.slot(step));
      const auto bytes = std::size_t(lands ? landing.bytes : link_->edge.shape.slot_bytes);
      const int result = call("irecv", c, [&] {
        return plug_in().irecv(objects(c).comm, at, bytes, handle, events_of(c, step), &request);
      });
      if (result != net_abi::success) {
        broke("irecv", result, fmt::format("for step {}", step));
        return true;
      }
      channel.blocked = request == nullptr;
      if (channel.blocked) break;
      landing_of(channel, step) = std::move(landing);
      ++channel.begun;
    }
    return channel.begun != before;
  }
  void let_go() override {
    for (Channel& channel : channels_) {
      for (ZeroCopy::Landing& landing : channel.landings) landing = {};
    }
  }

  void on_message(const PlugInControlSocket::Message& message) override {
    if (message.say != PlugInControl::ending || !sent_.empty()) {
      return reject("the sender sends what a receiver does, or twice what it sends once");
    }
    sent_ = read_counts(message);
    if (state_ == State::running) stop_after_last();
  }
  /// Stops once the last steps of a sender that leaves are begun. A plug-in may have taken them
  /// before there were receives for them.
  void stop_after_last() {
    const bool all =
        std::all_of(channels_.begin(), channels_.end(),
                    [this](const Channel& channel) { return channel.begun >= last_step(channel); });
    if (all && !sent_.empty()) stop();
  }
  /// Begins no more receives, and reports how many it has begun.
  void stop() {
    if (std::exchange(stopped_, true)) return;
    ControlWriter body;
    body.put_all(begun());
    control_.send(PlugInControl::ending, body.body);
  }
  void leave() override {
    if (state_ == State::waiting) return end();
    // A sender may have its part of a connection that this end has not accepted yet.
    if (state_ == State::making && std::chrono::steady_clock::now() < leave_by()) return;
    stop();
    if (is_idle() || std::chrono::steady_clock::now() > leave_by()) end();
  }

  /// Progress of the flushes of a channel.
  struct Flush {
    void* request = nullptr;
    bool begun = false;  // that of the next step
    Word done = 0;       // steps
  };
  std::vector<Flush> flushes_;  // by channel
  bool stopped_ = false;
  std::vector<Word> sent_;  // by channel: by a peer that leaves; empty: it does not
};

}  // namespace

std::shared_ptr<ProxyTask> make_plug_in_receiver(std::shared_ptr<PlugInLink> link) {
  return std::make_shared<PlugInReceiver>(std::move(link));
}

}  // namespace ccl::detail
