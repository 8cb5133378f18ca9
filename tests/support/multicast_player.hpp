#pragma once

// Symbolic player of algorithms over multicast memory, and over wires between hosts. It runs an
// algorithm's own code on every rank. Values record the contributions that they hold. Vector clocks
// show that each access is ordered behind what it needs, in any order of steps that waits allow.
#include <ccl/algo/nvls.hpp>
#include <ccl/algo/traits.hpp>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "support/symbolic.hpp"

namespace ccl::test {

/// Steps of some ranks and what they have seen of each other.
class Player {
 public:
  using Clock = std::vector<int>;
  /// One step of a rank. Returns false if it must wait.
  using Step = std::function<bool()>;

  explicit Player(int ranks)
      : clocks_(std::size_t(ranks), Clock(std::size_t(ranks))), steps_(std::size_t(ranks)) {}
  int ranks() const { return int(steps_.size()); }
  void add(int rank, Step step) { steps_[std::size_t(rank)].push_back(std::move(step)); }

  /// Counts an event of a rank and returns its clock.
  const Clock& tick(int rank) {
    Clock& clock = clocks_[std::size_t(rank)];
    ++clock[std::size_t(rank)];
    return clock;
  }
  /// Orders the rank's next events behind those that `clock` has seen.
  void join(int rank, const Clock& clock) {
    Clock& own = clocks_[std::size_t(rank)];
    for (std::size_t r = 0; r < own.size(); ++r) own[r] = std::max(own[r], clock[r]);
  }
  /// True if the event of `by` with that clock is before all further ones of `rank`.
  bool before(int rank, int by, const Clock& clock) const {
    return clock.empty() || clock[std::size_t(by)] <= clocks_[std::size_t(rank)][std::size_t(by)];
  }
  void wrong(const std::string& what) {
    if (problem_.empty()) problem_ = what;
  }
  /// Runs all steps. Returns the first problem, or an empty text.
  std::string run() {
    std::vector<std::size_t> at(steps_.size());
    for (bool progress = true; progress && problem_.empty();) {
      progress = false;
      // Each rank goes on as long as it can: it may be as far ahead as waits allow.
      for (std::size_t r = 0; r < steps_.size(); ++r) {
        while (at[r] < steps_[r].size() && steps_[r][at[r]]()) ++at[r], progress = true;
      }
    }
    for (std::size_t r = 0; r < steps_.size(); ++r) {
      if (at[r] < steps_[r].size()) wrong("rank " + std::to_string(r) + " waits forever");
    }
    return problem_;
  }

 private:
  std::vector<Clock> clocks_;
  std::vector<std::vector<Step>> steps_;
  std::string problem_;
};

/// Contributions of ranks, and the place of the element. `-1` is no element.
struct Sum64 {
  std::uint64_t ranks = 0;
  Index element = -1;
  friend bool operator==(const Sum64&, const Sum64&) = default;
};
using Register = std::shared_ptr<Sum64>;

/// Multicast memory of some ranks of a player. Launches of one memory follow each other.
class PlayedMemory {
 public:
  /// `heads`: of `members`, by their places.
  PlayedMemory(Player& player, std::vector<int> members, std::vector<int> heads)
      : player{player}, members{std::move(members)}, heads{std::move(heads)} {}

  struct HeldValue {
    Sum64 value;
    Player::Clock written;
    int writer = 0;
    std::vector<std::pair<int, Player::Clock>> reads;
  };
  /// Of a member: half, box, share.
  using Key = std::tuple<int, int, int, int>;

  void write(int by, Key key, const Sum64& value) {
    HeldValue& place = places[key];
    if (!player.before(by, place.writer, place.written)) player.wrong("two writes at once");
    for (const auto& [reader, clock] : place.reads) {
      if (!player.before(by, reader, clock)) player.wrong("a value is replaced before it is read");
    }
    place = {value, player.tick(by), by, {}};
  }
  Sum64 read(int by, Key key) {
    HeldValue& place = places[key];
    if (place.written.empty() || !player.before(by, place.writer, place.written)) {
      player.wrong("a value is read that may not be there");
    }
    place.reads.emplace_back(by, player.tick(by));
    return place.value;
  }
  /// A word of a member counts launches. A wait sees the first count that is enough, and no more.
  void post(int by, int what, Word flag) { words[{by, what}].emplace_back(flag, player.tick(by)); }
  bool await(int by, int from, int what, Word flag) {
    if (Index(flag) <= 0) return true;
    for (const auto& [posted, clock] : words[{from, what}]) {
      if (posted < flag) continue;
      player.join(by, clock);
      return true;
    }
    return false;
  }

  Player& player;
  std::vector<int> members, heads;
  std::map<Key, HeldValue> places;
  std::map<std::pair<int, int>, std::vector<std::pair<Word, Player::Clock>>> words;
};

/// Buffers of the program that lie in windows. They are the same for all launches: the program
/// writes what it sends before each, and reads what it has received behind.
struct PlayedWindows {
  bool sends = false, receives = false, in_place = false;
};

/// Primitives of one launch of one rank, which record its steps. `Op`, `Algo`: see
/// `MulticastPrims`.
template <class Op, class Algo>
class PlayedPrims {
 public:
  enum Arrival { begun, laid_out, spread_out };
  struct Stripe {
    Index first, last, step;
  };
  static constexpr bool sums_for_all = std::is_same_v<Op, AllReduce>;
  static constexpr bool of_heads = sums_for_all || detail::HeadsOwnShares<Algo>;
  static constexpr bool of_ranks =
      std::is_same_v<Op, AllGather> || std::is_same_v<Op, ReduceScatter>;

  /// `in(share)` is this rank's input, and `out(share, value)` gets its results.
  PlayedPrims(PlayedMemory& memory, int place, Word launch, int root, std::function<Sum64(int)> in,
              std::function<void(int, Sum64)> out, PlayedWindows windows = {})
      : memory_{memory},
        windows_{windows},
        place_{place},
        root_{root},
        flag_{launch + 1},
        half_{int(flag_ & 1)},
        in_{std::move(in)},
        out_{std::move(out)} {}

  int rank() const { return place_; }
  int root() const { return root_; }
  int shares() const {
    if (of_heads) return int(memory_.heads.size());
    return of_ranks ? int(memory_.members.size()) : 1;
  }
  int own_share() const {
    if (!of_heads) return of_ranks ? place_ : 0;
    const auto found = std::find(memory_.heads.begin(), memory_.heads.end(), place_);
    return found == memory_.heads.end() ? -1 : int(found - memory_.heads.begin());
  }
  Stripe tiles() const { return {0, 1, 1}; }
  bool loads_windows() const { return windows_.sends; }
  bool stores_windows() const { return windows_.receives; }
  /// The program's writes, and then what ranks do to agree on their places.
  void begin_in_windows() {
    for (int s = 0; s < shares() && windows_.sends; ++s) {
      add([this_ = *this, s] {
        this_.memory_.write(this_.me(), this_.sent(this_.place_, s), this_.in_(s));
        return true;
      });
    }
    arrive(begun);
    await_all(begun);
  }
  /// The program's reads.
  void end_in_windows() {
    for (int s = 0; s < shares() && windows_.receives; ++s) {
      add([this_ = *this, s] {
        this_.out_(s, this_.memory_.read(this_.me(), this_.received(this_.place_, s)));
        return true;
      });
    }
  }

  void lay_out(int share, Index) {
    add([this_ = *this, share] {
      this_.memory_.write(this_.me(), {this_.place_, this_.half_, 0, share}, this_.in_(share));
      return true;
    });
  }
  Register reduced(int share, Index) {
    auto cell = std::make_shared<Sum64>();
    add([this_ = *this, share, cell] {
      *cell = {};
      for (int p = 0; p < int(this_.memory_.members.size()); ++p) {
        const Sum64 got = this_.memory_.read(this_.me(), this_.sent(p, share));
        if ((cell->ranks & got.ranks) != 0) this_.memory_.player.wrong("counted twice");
        if (cell->ranks != 0 && cell->element != got.element) {
          this_.memory_.player.wrong("two elements are mixed");
        }
        *cell = {cell->ranks | got.ranks, got.element};
      }
      return true;
    });
    return cell;
  }
  void spread(int share, Index, const Register& value) {
    add([this_ = *this, share, value] {
      for (int p = 0; p < int(this_.memory_.members.size()); ++p) {
        this_.memory_.write(this_.me(), this_.received(p, share), *value);
      }
      return true;
    });
  }
  void take(int share, Index) {
    add([this_ = *this, share] {
      const PlayedMemory::Key key{this_.place_, this_.half_, int(sums_for_all), share};
      this_.out_(share, this_.memory_.read(this_.me(), key));
      return true;
    });
  }
  Register load(int share, Index) {
    auto cell = std::make_shared<Sum64>();
    add([in = in_, share, cell] { return *cell = in(share), true; });
    return cell;
  }
  void store(int share, Index, const Register& value) {
    add([out = out_, share, value] { return out(share, *value), true; });
  }
  void arrive(Arrival what) {
    add([this_ = *this, what] {
      this_.memory_.post(this_.me(), int(what), this_.flag_);
      return true;
    });
  }
  bool await_all(Arrival what) { return await(what, flag_, all()); }
  bool await_heads(Arrival what) { return await(what, flag_, memory_.heads); }
  bool await_one(Arrival what, int rank) { return await(what, flag_, {rank}); }
  bool await_step_of_all() { return await(begun, flag_ - 1, all()); }
  bool await_step_of_heads() { return await(begun, flag_ - 1, memory_.heads); }

 private:
  static constexpr int send_window = 2, recv_window = 3;  // in the place of a box
  int me() const { return memory_.members[std::size_t(place_)]; }
  /// Place of what a member sends, or receives.
  PlayedMemory::Key sent(int member, int share) const {
    if (windows_.sends) return {member, 0, send_window, share};
    return {member, half_, 0, share};
  }
  PlayedMemory::Key received(int member, int share) const {
    if (windows_.receives) return {member, 0, windows_.in_place ? send_window : recv_window, share};
    return {member, half_, int(sums_for_all), share};
  }
  std::vector<int> all() const {
    std::vector<int> places;
    for (int p = 0; p < int(memory_.members.size()); ++p) places.push_back(p);
    return places;
  }
  void add(Player::Step step) { memory_.player.add(me(), std::move(step)); }
  bool await(Arrival what, Word flag, const std::vector<int>& from) {
    for (const int p : from) {
      add([this_ = *this, what, flag, p] {
        return this_.memory_.await(this_.me(), this_.memory_.members[std::size_t(p)], int(what),
                                   flag);
      });
    }
    return true;
  }

  PlayedMemory& memory_;
  PlayedWindows windows_;
  int place_, root_;
  Word flag_;
  int half_;
  std::function<Sum64(int)> in_;
  std::function<void(int, Sum64)> out_;
};

}  // namespace ccl::test
