#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "transport/plug_in/task.hpp"

namespace ccl::detail {
namespace {

class PlugInSender final : public PlugInTask {
 public:
  PlugInSender(std::shared_ptr<PlugInLink> link, net::SecureSocket socket)
      : PlugInTask{std::move(link), std::move(socket)}, handles_(channels_.size()) {
    state_ = State::making;
    goes_first = true;
    // The error of this end names the function, so it must come before that of the waiting thread.
    constexpr double part = 0.9;
    deadline_ = net::Deadline::after(part * link_->context.deadline_s).at();
  }

 private:
  bool sends() const override { return true; }
  bool peer_leaves() const override { return !receives_.empty(); }
  static Word posted(const Channel& channel) {
    return HostMemory::load_acquire(channel.wire.posted);
  }
  bool needs_peer() const override {
    return std::any_of(channels_.begin(), channels_.end(),
                       [](const Channel& channel) { return channel.begun < posted(channel); });
  }
  bool finished() const override {
    return std::all_of(channels_.begin(), channels_.end(),
                       [](const Channel& channel) { return channel.done >= posted(channel); });
  }
  bool could_move() const override {
    return std::any_of(channels_.begin(), channels_.end(), [](const Channel& channel) {
      return channel.begun < posted(channel) && channel.has_room() && !channel.blocked;
    });
  }

  void on_message(const PlugInControlSocket::Message& message) override {
    if (message.say == PlugInControl::listens) return take_handles(message);
    if (message.say != PlugInControl::ending)
      return reject("the receiver sends what a sender does");
    receives_ = read_counts(message);
    for (std::size_t c = 0; c < receives_.size(); ++c) {
      if (channels_[c].begun > receives_[c]) return lost("it closed its end of the connection", 0);
    }
  }
  void take_handles(const PlugInControlSocket::Message& message) {
    ControlReader body{message.body};
    const auto handles = body.get_all<NetHandle>();
    if (!body.good() || handles.size() != channels_.size() || link_->has_handles) {
      return reject(
          fmt::format("it listens on {} channels, not {}", handles.size(), channels_.size()));
    }
    handles_ = handles;
    link_->has_handles = true;
  }

  bool make() override {
    bool moved = false, all = link_->has_handles;
    for (std::size_t c = 0; c < channels_.size() && link_->has_handles; ++c) {
      NetChannel& channel = objects(c);
      if (channel.comm == nullptr) {
        const int result = call("connect", c, [&] {
          return plug_in().connect(link_->channels->context().get(), channel.device, handles_[c],
                                   &channel.comm);
        });
        if (result != net_abi::success) {
          channel.comm = nullptr;
          broke("connect", result, fmt::format("for channel {}", c));
          return true;
        }
        if (channel.comm != nullptr) {
          if (!register_slots(c)) return true;
          moved = true;
        }
      }
      all = all && channel.comm != nullptr;
    }
    if (all) {
      state_ = State::running;
      link_->works();
      return true;
    }
    if (std::chrono::steady_clock::now() > deadline_) {
      give_up(link_->late());
    }
    return moved;
  }

  bool move(ProxyCounters& counters) override {
    bool moved = false;
    for (std::size_t c = 0; c < channels_.size() && state_ == State::running; ++c) {
      moved = complete(channels_[c]) || moved;
      if (state_ != State::running || !begin(c, counters)) continue;
      moved = true;
      // Many plug-ins are done at once, and then nobody needs to poll for it.
      if (state_ == State::running) (void)complete(channels_[c]);
    }
    return state_ == State::running && !receives_.empty() ? finish() || moved : moved;
  }
  /// Returns slots whose steps are sent to the lanes.
  bool complete(Channel& channel) {
    const Word before = channel.done;
    Index bytes = 0;
    for (; channel.under_way() > 0 && test(channel, bytes); ++channel.done) {
      if (channel.notes && channel.done < posted(channel)) {
        const Word size = channel.size_of(channel.done) & ~ZeroCopy::mark;
        channel.notes->end(channel.done, size, channel.notes->now());
      }
      if (is_lent(channel, channel.done)) channel.wire.zero_copy->give_back(channel.done);
    }
    if (channel.done == before) return false;
    HostMemory::store_release(channel.wire.drained, std::min(channel.done, posted(channel)));
    return true;
  }
  bool begin(std::size_t c, ProxyCounters& counters) {
    Channel& channel = channels_[c];
    const Word until = posted(channel), before = channel.begun;
    if (channel.begun < until && !receives_.empty() && channel.begun >= receives_[c]) {
      lost("it closed its end of the connection", 0);
      return true;
    }
    if (channel.notes) channel.notes->posted(until);
    while (channel.begun < until && channel.has_room() && !channel.revoked()) {
      const Word step = channel.begun;
      const Source from = source(c, step);
      const bool lent = is_lent(channel, step);
      const Word bytes = channel.size_of(step) & ~ZeroCopy::mark;
      if (from.at == nullptr || !send(c, from, std::size_t(bytes))) break;
      if (channel.notes) channel.notes->begin(step, channel.notes->now());
      ++counters.steps;
      counters.bytes += bytes;
      if (lent) counters.registered_bytes += bytes;
    }
    return channel.begun != before;
  }
  /// True if the step is in a registered buffer.
  static bool is_lent(const Channel& channel, Word step) {
    return channel.wire.zero_copy != nullptr && channel.size_of(step) >= ZeroCopy::mark;
  }
  struct Source {
    void* at = nullptr;
    void* handle = nullptr;
  };
  /// Place of a step. A step whose memory the plug-in cannot register is copied to its slot. None
  /// if the lanes have revoked it.
  Source source(std::size_t c, Word step) {
    Channel& channel = channels_[c];
    const Source slot{channel.wire.slot(step), objects(c).slots};
    if (!is_lent(channel, step)) return slot;
    ZeroCopy& past = *channel.wire.zero_copy;
    if (void* const known = link_->channels->user_memory(*past.lent_memory(step), c)) {
      return {past.place(step), known};
    }
    const ZeroCopy::Use use{&past};
    if (!use.allowed()) return {};
    Word& size = channel.size_of(step);
    size &= ~ZeroCopy::mark;
    std::memcpy(slot.at, past.place(step), std::size_t(size));
    past.give_back(step);
    return slot;
  }
  /// Begins to send the next step. Returns false if that is not possible now.
  bool send(std::size_t c, const Source& from, std::size_t bytes) {
    Channel& channel = channels_[c];
    void*& request = channel.request(channel.begun);
    const int result = call("isend", c, [&] {
      return plug_in().isend(objects(c).comm, from.at, bytes, from.handle,
                             events_of(c, channel.begun), &request);
    });
    if (result != net_abi::success) {
      broke("isend", result, fmt::format("for step {} of {} bytes", channel.begun, bytes));
      return false;
    }
    channel.blocked = request == nullptr;
    if (!channel.blocked) ++channel.begun;
    return !channel.blocked;
  }

  /// Answers the receives beyond the last step by empty messages, and ends when they are done.
  bool finish() {
    bool moved = false, all = true;
    for (std::size_t c = 0; c < channels_.size(); ++c) {
      Channel& channel = channels_[c];
      while (channel.begun < receives_[c] && channel.has_room()) {
        if (!send(c, {channel.wire.slot(0), objects(c).slots}, 0)) break;
        moved = true;
      }
      if (state_ == State::over) return true;
      all = all && channel.done >= receives_[c];
    }
    if (all) part();
    return moved || all;
  }
  void part() {
    if (control_.open()) control_.send(PlugInControl::close_notify);
    left_ = true;
    end();
  }

  void let_go() override {
    for (Channel& channel : channels_) {
      if (channel.wire.zero_copy == nullptr) continue;
      channel.wire.zero_copy->close();
      const Word until = posted(channel);
      for (Word step = channel.done; step < until; ++step) {
        channel.wire.zero_copy->give_back(step);
      }
    }
  }

  /// Reports the steps sent, so that the receiver answers with the receives that it has begun.
  void leave() override {
    if (state_ == State::making) {  // a peer that has its part already would take this for a loss
      if (std::chrono::steady_clock::now() > leave_by()) end();
      return;
    }
    if (needs_peer()) return;  // the engine sets the limit
    if (!std::exchange(said_, true)) {
      ControlWriter body;
      body.put_all(begun());
      control_.send(PlugInControl::ending, body.body);
    }
    const bool waits = receives_.empty() && any_under_way();
    if (!waits && std::chrono::steady_clock::now() > leave_by()) part();
  }

  std::vector<NetHandle> handles_;
  std::vector<Word> receives_;  // by channel: begun by a peer that leaves
  bool said_ = false;           // how far this end has come
};

}  // namespace

std::shared_ptr<ProxyTask> make_plug_in_sender(std::shared_ptr<PlugInLink> link,
                                               net::SecureSocket socket) {
  return std::make_shared<PlugInSender>(std::move(link), std::move(socket));
}

}  // namespace ccl::detail
