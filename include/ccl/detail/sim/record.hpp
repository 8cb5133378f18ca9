#pragma once

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
  float counted = 1;  // part of `bytes` that other ranks' steps of the round have on average
};

/// Steps of one class of positions.
struct SimTrace {
  std::vector<SimStep> steps;
  double rounds = 0;      // recorded rounds
  double all_rounds = 0;  // all rounds
  int near = 0, far = 0;  // see `TreePosition`; they set the pace of later rounds
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
  float counted = 1;
  Index limit = 0;        // maximum number of recorded rounds
  bool measures = false;  // counts the rounds

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
  float counted() const {
    if (real_.share(shares_ - 1).count == count_) return 1;
    Index sum = 0;
    for (int s = 0; s < shares_; ++s) sum += real_.share(s).count;
    return float(double(sum) / (double(count_) * shares_));
  }
  void measure() {
    Chunks all = real_;
    double first = 0, rounds = 0, recorded = 0;
    for (Index n = 0; all.next(); ++n) {
      const auto count = double(all.share(0).count);
      if (n == 0) first = count;
      rounds += count / first;
      if (n < record_->limit) recorded = rounds;
    }
    record_->trace.all_rounds = rounds;
    record_->trace.rounds = recorded;
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
