#pragma once

#include <ccl/algo/chunks.hpp>
#include <ccl/detail/wire/prims.hpp>
#include <ccl/types/position.hpp>

#include <concepts>

namespace ccl::detail {

/// The seat of one channel of a rank that rehearses.
struct RehearsalSeat {
  int rank = 0, ranks = 1, root = 0;
  int channel = 0, channels = 1;
  int window = 1;  // chunks that a wire holds
  RingSeat ring{};
  TreeSeat tree{};
  // Ranks that `peers` named, of this channel. Null: they are not looked at.
  const int *from = nullptr, *to = nullptr;
  int froms = 0, tos = 0;
};

/// What an algorithm named that there is not, the first time.
struct Rehearsed {
  enum Wrong { nothing, shares, share, wire_from, wire_to };
  Wrong wrong = nothing;
  int given = 0;  // of `shares`: how many; of `share`: which; of wires: the rank
  int most = 0;   // of `share`: as many there are
  CCL_HD void note(Wrong what, int value, int of) {
    if (wrong != nothing) return;
    wrong = what;
    given = value;
    most = of;
  }
};

/// Rounds as of a long message, whose shares are looked at before they are given.
class RehearsalChunks : public Chunks {
 public:
  CCL_HD RehearsalChunks(const RehearsalSeat& seat, bool cuts, int shares, Rehearsed& found)
      : Chunks{layout(seat, cuts, shares), positive(shares), seat.channel, seat.channels, chunk, 1},
        shares_{cuts ? shares : seat.ranks},
        left_{rounds(seat)},
        found_{&found} {
    if (cuts && shares < 1) found.note(Rehearsed::shares, shares, 0);
  }
  CCL_HD bool next() {
    if (found_->wrong != Rehearsed::nothing || left_ == 0) return false;
    --left_;
    return Chunks::next();
  }
  CCL_HD Part share(int s) const {
    if (s >= 0 && s < shares_) return Chunks::share(s);
    found_->note(Rehearsed::share, s, shares_);
    return {};
  }
  CCL_HD Part all() const { return Chunks::share(0); }

 private:
  static constexpr Index chunk = 1024;  // elements
  CCL_HD static int positive(int shares) { return shares < 1 ? 1 : shares; }
  /// The wires are full, and steps wait for others, in the last ones.
  CCL_HD static int rounds(const RehearsalSeat& seat) { return seat.window + 2; }
  CCL_HD static Layout layout(const RehearsalSeat& seat, bool cuts, int shares) {
    const Index each = chunk * rounds(seat) * seat.channels;
    return {cuts ? each * positive(shares) : each, each, each, cuts};
  }

  int shares_, left_;
  Rehearsed* found_;
};

/// In place of `WirePrims`: moves nothing, and waits for nobody; counts its steps, as a loop may go
/// by them.
class RehearsalPrims {
 public:
  CCL_HD void own_is_output() {}
  CCL_HD void lend() {}
  CCL_HD void lend_on() {}
  CCL_HD void send(const Part&) { ++step_; }
  CCL_HD void copy_send(const Part&) { ++step_; }
  CCL_HD void recv(const Part&) { ++step_; }
  CCL_HD void recv_copy_send(const Part&) { ++step_; }
  CCL_HD void recv_reduce_send(const Part&) { ++step_; }
  CCL_HD void recv_reduce_copy(const Part&) { ++step_; }
  CCL_HD void recv_reduce_copy_send(const Part&) { ++step_; }
  CCL_HD void recv_reduce_finish_send(const Part&) { ++step_; }
  CCL_HD bool can_send() { return true; }
  CCL_HD bool can_recv() { return true; }
  CCL_HD void expect(Index) {}
  CCL_HD bool gave_up() const { return false; }
  CCL_HD Word step() const { return step_; }

 private:
  Word step_ = 0;
};

/// What an algorithm's `run` is given: see `WireContext`.
template <class Op>
class RehearsalContext {
 public:
  CCL_HD RehearsalContext(const RehearsalSeat& seat, Rehearsed& found)
      : seat_{seat}, found_{found} {}
  CCL_HD RingSeat ring() const { return seat_.ring; }
  CCL_HD TreeSeat tree() const { return seat_.tree; }
  CCL_HD int root() const { return seat_.root; }
  CCL_HD int rank() const { return seat_.rank; }
  CCL_HD int ranks() const { return seat_.ranks; }
  CCL_HD RehearsalChunks chunks(int shares) const {
    return {seat_, Op::cuts || Op::rooted, shares, found_};
  }
  CCL_HD int window() const { return seat_.window; }
  CCL_HD int window(Index) const { return seat_.window; }
  template <int In, int Out>
  CCL_HD RehearsalPrims prims(const Peers<In>& ins, const Peers<Out>& outs) const {
    for (const int p : ins.rank) look(p, seat_.from, seat_.froms, Rehearsed::wire_from);
    for (const int p : outs.rank) look(p, seat_.to, seat_.tos, Rehearsed::wire_to);
    return {};
  }

 private:
  CCL_HD void look(int peer, const int* named, int count, Rehearsed::Wrong wrong) const {
    if (peer < 0 || named == nullptr) return;
    for (int n = 0; n < count; ++n) {
      if (named[n] == peer && peer != seat_.rank) return;
    }
    found_.note(wrong, peer, 0);
  }

  const RehearsalSeat& seat_;
  Rehearsed& found_;
};

/// Runs an algorithm's own code for one channel of a rank, without data.
template <class Op, class Algo>
void rehearse(const RehearsalSeat& seat, Rehearsed& found) {
  RehearsalContext<Op> context{seat, found};
  Algo::run(Op{}, context);
}

/// True if tests prove the algorithm. A type derived from such an algorithm is not validated.
template <class Algo>
inline constexpr bool is_validated = false;
template <class Algo>
  requires std::same_as<typename Algo::Validated, Algo>
inline constexpr bool is_validated<Algo> = true;

}  // namespace ccl::detail
