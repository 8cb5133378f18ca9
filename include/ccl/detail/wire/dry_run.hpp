#pragma once

#include <ccl/algo/chunks.hpp>
#include <ccl/detail/wire/prims.hpp>
#include <ccl/types/macros.hpp>
#include <ccl/types/position.hpp>

#include <concepts>

CCL_ANY_SPACE_BEGIN

namespace ccl::detail {

/// Position of one channel of a rank in a dry run.
struct DryRunPosition {
  int rank = 0, ranks = 1, root = 0;
  int channel = 0, channels = 1;
  int window = 1;  // chunks that a wire holds
  RingPosition ring{};
  TreePosition tree{};
  // Ranks that `peers` named for this channel. Null: they are not checked.
  const int *from = nullptr, *to = nullptr;
  int froms = 0, tos = 0;
  HostPosition host{};  // of an algorithm whose network reduces
};

/// First absent share or wire that an algorithm names, or step that its primitives cannot take.
struct DryRunResult {
  enum Wrong {
    nothing,
    shares,
    share,
    wire_from,
    wire_to,
    gap,        // primitives have a rank after a -1
    from_none,  // a step receives, and there is no wire in
    from_many,  // a step without a reduction receives over several wires
    to_none     // a step sends, and the only wire out is -1
  };
  Wrong wrong = nothing;
  int given = 0;  // `shares`: their number; `share`: its index; wires, `gap`: the rank
  int most = 0;   // `share`: the number of shares
  CCL_HD void note(Wrong what, int value, int of) {
    if (wrong != nothing) return;
    wrong = what;
    given = value;
    most = of;
  }
};

/// Rounds of a long message. Checks each share before it returns it.
class DryRunChunks : public Chunks {
 public:
  CCL_HD DryRunChunks(const DryRunPosition& position, bool cuts, int shares, DryRunResult& found)
      : Chunks{layout(position, cuts, shares),
               positive(shares),
               position.channel,
               position.channels,
               chunk,
               1},
        shares_{cuts ? shares : position.ranks},
        left_{rounds(position)},
        found_{&found} {
    if (cuts && shares < 1) found.note(DryRunResult::shares, shares, 0);
  }
  CCL_HD bool next() {
    if (found_->wrong != DryRunResult::nothing || left_ == 0) return false;
    --left_;
    return Chunks::next();
  }
  CCL_HD Part share(int s) const {
    if (s >= 0 && s < shares_) return Chunks::share(s);
    found_->note(DryRunResult::share, s, shares_);
    return {};
  }
  CCL_HD Part all() const { return Chunks::share(0); }

 private:
  static constexpr Index chunk = 1024;  // elements
  CCL_HD static int positive(int shares) { return shares < 1 ? 1 : shares; }
  /// In the last rounds the wires are full, and steps would wait for other ranks.
  CCL_HD static int rounds(const DryRunPosition& position) { return position.window + 2; }
  CCL_HD static Layout layout(const DryRunPosition& position, bool cuts, int shares) {
    const Index each = chunk * rounds(position) * position.channels;
    return {cuts ? each * positive(shares) : each, each, each, cuts};
  }

  int shares_, left_;
  DryRunResult* found_;
};

/// Wires of one direction that primitives have.
struct DryRunWires {
  int most = 1;   // wires that they may have
  int named = 1;  // wires that they have
};

/// Replaces `WirePrims` in a dry run. Moves nothing and never waits. Counts its steps, because an
/// algorithm may loop over them. Finds those for which there is no wire.
class DryRunPrims {
 public:
  CCL_HD DryRunPrims(const DryRunWires& in, const DryRunWires& out, DryRunResult& found)
      : in_{in}, out_{out}, found_{&found} {}
  CCL_HD void own_is_output() {}
  CCL_HD void lend() {}
  CCL_HD void lend_on() {}
  CCL_HD void only_sends() {}
  CCL_HD void send(const Part& part) { step(part, from_none, true); }
  CCL_HD void copy_send(const Part& part) { step(part, from_none, true); }
  CCL_HD void recv(const Part& part) { step(part, from_one, false); }
  CCL_HD void recv_copy_send(const Part& part) { step(part, from_one, true); }
  CCL_HD void recv_reduce_send(const Part& part) { step(part, from_all, true); }
  CCL_HD void recv_reduce_copy(const Part& part) { step(part, from_all, false); }
  CCL_HD void recv_reduce_copy_send(const Part& part) { step(part, from_all, true); }
  CCL_HD void recv_reduce_finish_send(const Part& part) { step(part, from_all, true); }
  CCL_HD void recv_finish(const Part& part) { step(part, from_one, false); }
  CCL_HD void recv_finish_copy_send(const Part& part) { step(part, from_one, true); }
  CCL_HD void window(int) {}
  CCL_HD void send_none(const Part& part) { step(part, from_none, true); }
  CCL_HD bool can_send() { return true; }
  CCL_HD bool can_recv() { return true; }
  CCL_HD void expect(Index, Index) {}
  CCL_HD bool failed() const { return false; }
  CCL_HD Word step() const { return step_; }

 private:
  enum Receives { from_none, from_one, from_all };
  CCL_HD void step(const Part& part, Receives receives, bool sends) {
    ++step_;
    if (part.count <= 0) return;  // nothing crosses a wire
    // Several wires that are all absent add nothing to a sum, and take no data.
    const bool needs_in = receives == from_one || (receives == from_all && in_.most == 1);
    if (needs_in && in_.named == 0) found_->note(DryRunResult::from_none, 0, 0);
    if (receives == from_one && in_.named > 1) {
      found_->note(DryRunResult::from_many, in_.named, 0);
    }
    if (sends && out_.most == 1 && out_.named == 0) found_->note(DryRunResult::to_none, 0, 0);
  }

  DryRunWires in_, out_;
  DryRunResult* found_;
  Word step_ = 0;
};

/// Replaces `WireContext` in a dry run.
template <class Op>
class DryRunContext {
 public:
  CCL_HD DryRunContext(const DryRunPosition& position, DryRunResult& found)
      : position_{position}, found_{found} {}
  CCL_HD RingPosition ring() const { return position_.ring; }
  CCL_HD TreePosition tree() const { return position_.tree; }
  CCL_HD HostPosition host() const { return position_.host; }
  CCL_HD int root() const { return position_.root; }
  CCL_HD int rank() const { return position_.rank; }
  CCL_HD int ranks() const { return position_.ranks; }
  CCL_HD DryRunChunks chunks(int shares) const {
    return {position_, Op::cuts || Op::rooted, shares, found_};
  }
  CCL_HD int window() const { return position_.window; }
  CCL_HD int window(Index) const { return position_.window; }
  template <int In, int Out>
  CCL_HD DryRunPrims prims(const Peers<In>& ins, const Peers<Out>& outs) const {
    const DryRunWires in = look(ins, position_.from, position_.froms, DryRunResult::wire_from);
    const DryRunWires out = look(outs, position_.to, position_.tos, DryRunResult::wire_to);
    return {in, out, found_};
  }
  template <int In>
  CCL_HD DryRunPrims to_network(const Peers<In>& ins) const {
    return {look(ins, position_.from, position_.froms, DryRunResult::wire_from), {}, found_};
  }
  template <int Out>
  CCL_HD DryRunPrims from_network(const Peers<Out>& outs) const {
    return {{}, look(outs, position_.to, position_.tos, DryRunResult::wire_to), found_};
  }

 private:
  template <int N>
  CCL_HD DryRunWires look(const Peers<N>& peers, const int* named, int count,
                          DryRunResult::Wrong wrong) const {
    DryRunWires wires{N, 0};
    for (int n = 0; n < N; ++n) {
      const int peer = peers.rank[n];
      if (peer < 0) continue;
      if (wires.named < n) found_.note(DryRunResult::gap, peer, 0);
      ++wires.named;
      look(peer, named, count, wrong);
    }
    return wires;
  }
  CCL_HD void look(int peer, const int* named, int count, DryRunResult::Wrong wrong) const {
    if (peer < 0 || named == nullptr) return;
    for (int n = 0; n < count; ++n) {
      if (named[n] == peer && peer != position_.rank) return;
    }
    found_.note(wrong, peer, 0);
  }

  const DryRunPosition& position_;
  DryRunResult& found_;
};

/// Runs an algorithm's own code for one channel of a rank, without data.
template <class Op, class Algo>
void dry_run(const DryRunPosition& position, DryRunResult& found) {
  DryRunContext<Op> context{position, found};
  Algo::run(Op{}, context);
}

}  // namespace ccl::detail

CCL_ANY_SPACE_END
