#pragma once

#include <ccl/algo/pairwise.hpp>
#include <ccl/detail/lanes/host_lanes.hpp>
#include <ccl/detail/wire/context.hpp>

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace ccl::detail {

/// A step of a channel, as its algorithm took it: the channel's wires and the number of bytes.
struct SimStep {
  static constexpr int most = 4;
  std::int16_t in[most] = {-1, -1, -1, -1}, out[most] = {-1, -1, -1, -1};
  Index bytes = 0;
  double counted = 1;  // part of `bytes` that other ranks' steps of the round have on average
};

/// Steps of one class of positions.
struct SimTrace {
  std::vector<SimStep> steps;
  double rounds = 0;                // recorded rounds
  double all_rounds = 0;            // all rounds
  std::vector<double> out_bytes{};  // of all rounds, by each wire out
  int near = 0, far = 0;            // see `TreePosition`; they set the pace of later rounds
  friend bool operator==(const SimTrace&, const SimTrace&) = default;
};
inline bool operator==(const SimStep& a, const SimStep& b) {
  return std::equal(a.in, a.in + SimStep::most, b.in) &&
         std::equal(a.out, a.out + SimStep::most, b.out) && a.bytes == b.bytes &&
         a.counted == b.counted;
}

/// A trace with the peers at its wires.
struct SimRecord {
  SimTrace trace;
  std::vector<int> in, out;  // ranks of the team at the other ends
  std::unordered_map<int, std::int16_t> in_at, out_at;
  double counted = 1;
  Index limit = 0;        // maximum number of recorded rounds
  bool measures = false;  // counts the rounds
  double more = 1;        // bytes of all rounds beside those of the recorded ones

  /// Sums up the bytes of the wires out, if all go on as in the recorded rounds.
  void sum_up() {
    trace.out_bytes.assign(out.size(), 0);
    for (const SimStep& step : trace.steps) {
      for (const int o : step.out) {
        if (o >= 0) trace.out_bytes[std::size_t(o)] += double(step.bytes) * step.counted * more;
      }
    }
  }

  static std::int16_t index(int rank, std::vector<int>& peers,
                            std::unordered_map<int, std::int16_t>& at) {
    const auto [found, added] = at.try_emplace(rank, std::int16_t(peers.size()));
    if (added) peers.push_back(rank);
    return found->second;
  }
};

/// Rounds of a channel whose shares are all as long as the first. Ranks differ only in their short
/// or empty shares. This does not affect the time, and `counted` corrects the bytes.
class SimChunks {
 public:
  SimChunks(const Chunks& real, int shares, SimRecord& record)
      : real_{real}, shares_{shares}, record_{&record} {
    if (record.measures) measure();
  }
  bool next() {
    if (round_++ >= record_->limit || !real_.next()) return false;
    count_ = real_.share(0).count;
    record_->counted = counted();
    return true;
  }
  Part share(int s) const {
    const Part real = real_.share(s);
    return {real.in, real.out, count_};
  }
  Part all() const { return share(0); }

 private:
  double counted() const { return double(sum(real_)) / (double(count_) * shares_); }
  /// Elements of all shares of a round.
  Index sum(const Chunks& round) const {
    const Index first = round.share(0).count;
    if (round.share(shares_ - 1).count == first) return first * shares_;
    Index all = 0;
    for (int s = 0; s < shares_; ++s) all += round.share(s).count;
    return all;
  }
  /// Whole rounds, which are all but a few, are not looked at one by one.
  void measure() {
    Chunks all = real_;
    double first = 0, rounds = 0, recorded = 0;
    Index elements = 0, recorded_elements = 0, seen = 0;
    const auto add = [&](Index equal) {
      const auto count = double(all.share(0).count);
      if (seen == 0) first = count;
      rounds += double(equal) * count / first;
      elements += equal * sum(all);
      seen += equal;
      if (seen > record_->limit) return;
      recorded = rounds;
      recorded_elements = elements;
    };
    while (all.next()) {
      add(1);
      while (const Index whole = all.full_rounds()) {
        const Index left = record_->limit - seen;
        const Index equal = left > 0 ? std::min(whole, left) : whole;
        all.skip(equal);
        add(equal);
      }
    }
    record_->trace.all_rounds = rounds;
    record_->trace.rounds = recorded;
    if (recorded_elements > 0) record_->more = double(elements) / double(recorded_elements);
  }

  Chunks real_;
  int shares_;
  SimRecord* record_;
  Index round_ = 0, count_ = 0;
};

/// Replaces `WirePrims` and records the steps.
struct SimPrims {
  SimRecord& record;
  SimStep wires;  // all wires of the position
  int element_bytes;

  void lend() {}
  void lend_on() {}
  void only_sends() {}
  void own_is_output() {}
  void send(const Part& p) { note(false, true, p); }
  void copy_send(const Part& p) { note(false, true, p); }
  void recv(const Part& p) { note(true, false, p); }
  void recv_copy_send(const Part& p) { note(true, true, p); }
  void recv_reduce_send(const Part& p) { note(true, true, p); }
  void recv_reduce_copy(const Part& p) { note(true, false, p); }
  void recv_reduce_copy_send(const Part& p) { note(true, true, p); }
  void recv_reduce_finish_send(const Part& p) { note(true, true, p); }

 private:
  void note(bool gets, bool puts, const Part& part) {
    if (part.count == 0) return;
    SimStep step = wires;
    const SimStep none;
    if (!gets) std::copy_n(none.in, SimStep::most, step.in);
    if (!puts) std::copy_n(none.out, SimStep::most, step.out);
    step.bytes = part.count * element_bytes;
    step.counted = record.counted;
    record.trace.steps.push_back(step);
  }
};

/// Replaces `Exchange` and records the steps of one group. Peers are served strictly in turn, where
/// a group that runs skips those that are not ready.
template <class Work>
class SimExchange {
 public:
  /// `slice`: bytes of a slice.
  SimExchange(const Work& work, int channel, int server, Index slice, SimRecord& record)
      : work_{work}, channel_{channel}, server_{server}, slice_{slice}, record_{record} {}

  int rank() const { return work_.rank; }
  int ranks() const { return work_.ranks; }
  int server() const { return server_; }
  int servers() const { return work_.servers; }

  void begin() {}
  /// Records a slice of the copy in each round. A group that runs copies all before the first,
  /// which takes its lanes as long; a run that is replayed in part would have too much of it.
  void copy_own() {
    if (server_ != 0) return;
    const MessageRun own = work_.run(true, rank());
    for (int m = 0; m < own.count; ++m) own_ += work_.part(own.message[m], channel_).bytes;
    copy_slice();
  }
  int visits() const {
    if constexpr (lists_visits) return work_.visits;
    return Pairwise::visits(ranks());
  }
  /// Records a slice of the message of visit n. Returns true if more of it is left.
  bool visit(int n) {
    const auto [peer, sends, messages] = visited(n);
    if (messages.count == 0) return false;
    const Index all = work_.part(messages.message[0], channel_).bytes;
    measure(all);
    const Index left = all - round_ * slice_;
    if (left <= 0 || round_ >= record_.limit) return false;
    SimStep step;
    if (sends) {
      step.out[0] = SimRecord::index(peer, record_.out, record_.out_at);
      std::vector<double>& bytes = record_.trace.out_bytes;
      bytes.resize(record_.out.size());
      bytes[std::size_t(step.out[0])] = double(all);
    } else {
      step.in[0] = SimRecord::index(peer, record_.in, record_.in_at);
    }
    note(step, std::min(left, slice_));
    return left > slice_;
  }
  void rest() {
    ++round_;
    copy_slice();
  }

 private:
  void copy_slice() {
    const Index left = own_ - round_ * slice_;
    if (left > 0 && round_ < record_.limit) note({}, std::min(left, slice_));
  }
  static constexpr bool lists_visits = requires(const Work& work) { work.visits; };
  struct Visited {
    int peer;
    bool sends;
    MessageRun messages;
  };
  Visited visited(int n) const {
    if constexpr (lists_visits) {
      const auto& next = work_.visit[n];
      return {next.peer, next.sends, work_.run(next)};
    } else {
      const auto next = Pairwise::visit_at(work_.rings[channel_], n);
      return {next.peer, next.sends, work_.run(next.sends, next.peer)};
    }
  }
  void measure(Index bytes) {
    const double rounds = double(bytes) / double(slice_);
    record_.trace.all_rounds = std::max(record_.trace.all_rounds, rounds);
    record_.trace.rounds = std::min(record_.trace.all_rounds, double(record_.limit));
  }
  void note(SimStep step, Index bytes) {
    step.bytes = bytes;
    record_.trace.steps.push_back(step);
  }

  const Work& work_;
  int channel_, server_;
  Index slice_, round_ = 0, own_ = 0;  // `own_`: bytes of this rank's messages to itself
  SimRecord& record_;
};

/// Context of a launch of an exchange, for one group.
template <class Work>
struct SimExchangeContext {
  const Work& work;
  int channel, server;
  Index slice;  // bytes
  SimRecord& record;
  SimExchange<Work> exchange() const { return {work, channel, server, slice, record}; }
};

/// Replaces the context of a launch. Its primitives only record.
template <class Op, class Proto, class R>
class SimContext : public WireContext<Op, SoloLane, Proto, R, 16> {
 public:
  using Base = WireContext<Op, SoloLane, Proto, R, 16>;
  SimContext(const WireWork<R>& work, int channel, SimRecord& record)
      : Base{SoloLane{}, work, channel}, record_{record} {}

  TreePosition tree() const {
    const TreePosition position = Base::tree();
    record_.trace.near = position.near;
    record_.trace.far = position.far;
    return position;
  }
  SimChunks chunks(int shares) const { return {Base::chunks(shares), shares, record_}; }
  template <int In, int Out>
  SimPrims prims(const Peers<In>& ins, const Peers<Out>& outs) const {
    static_assert(In <= SimStep::most && Out <= SimStep::most);
    SimPrims prims{record_, {}, int(sizeof(typename R::Type))};
    for (int i = 0; i < In; ++i) {
      if (ins.rank[i] < 0) continue;
      prims.wires.in[i] = SimRecord::index(ins.rank[i], record_.in, record_.in_at);
    }
    for (int o = 0; o < Out; ++o) {
      if (outs.rank[o] < 0) continue;
      prims.wires.out[o] = SimRecord::index(outs.rank[o], record_.out, record_.out_at);
    }
    return prims;
  }

 private:
  SimRecord& record_;
};

}  // namespace ccl::detail
