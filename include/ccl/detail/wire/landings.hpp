#pragma once

#include <ccl/algo/chunks.hpp>
#include <ccl/algo/peers.hpp>
#include <ccl/types/position.hpp>

#include <cstddef>
#include <memory>
#include <new>
#include <utility>

namespace ccl::detail {

/// Slices that one channel of a CPU rank will receive over one wire, in order. Lanes name their
/// places ahead of their arrival, so that peers write them there (`ZeroCopy::land`).
class Landings {
 public:
  struct Slice {
    Index out = 0;  // element of the output
    int count = 0;  // elements; 0: the slice goes through its slot, because it is reduced
  };
  /// True if a slice has a place.
  bool any() const { return any_; }
  /// Returns the slice that is `ahead` slices after the next one; null if there is none.
  const Slice* at(int ahead) const {
    const Index n = next_ + ahead;
    return n < count_ ? &slices_[std::size_t(n)] : nullptr;
  }
  void advance() { ++next_; }
  /// Names the slices of the first steps, once.
  bool begin() { return !std::exchange(began_, true); }
  /// Adds the last slice. Returns false without memory.
  bool add(const Slice& slice) {
    if (count_ == room_) {
      const Index more = room_ == 0 ? 16 : 2 * room_;
      std::unique_ptr<Slice[]> wider{new (std::nothrow) Slice[std::size_t(more)]};
      if (wider == nullptr) return false;
      for (Index n = 0; n < count_; ++n) wider[std::size_t(n)] = slices_[std::size_t(n)];
      slices_ = std::move(wider);
      room_ = more;
    }
    slices_[std::size_t(count_++)] = slice;
    any_ = any_ || slice.count > 0;
    return true;
  }

 private:
  std::unique_ptr<Slice[]> slices_;
  Index count_ = 0, room_ = 0, next_ = 0;
  bool any_ = false, began_ = false;
};

/// The `Landings` of a channel, by the peer that sends them. A peer's list is whole, or it has none
/// and all of its slices go through slots.
class LandingTable {
 public:
  /// Returns null if no slice of the peer has a place.
  Landings* of(int peer) const {
    List* const list = whole_ ? find(peer) : nullptr;
    return list != nullptr && list->whole && list->slices.any() ? &list->slices : nullptr;
  }
  /// Adds the last slice of a peer.
  void add(int peer, const Landings::Slice& slice) {
    List* const list = listed(peer);
    if (list != nullptr && list->whole) list->whole = list->slices.add(slice);
  }
  /// Gives a peer no list.
  void leave_out(int peer) {
    if (List* const list = listed(peer)) list->whole = false;
  }

 private:
  struct List {
    int peer = -1;
    bool whole = true;
    Landings slices;
    std::unique_ptr<List> next;
  };
  List* find(int peer) const {
    List* list = first_.get();
    while (list != nullptr && list->peer != peer) list = list->next.get();
    return list;
  }
  List* listed(int peer) {
    if (List* const known = find(peer)) return known;
    std::unique_ptr<List> added{new (std::nothrow) List};
    whole_ = whole_ && added != nullptr;
    if (added == nullptr) return nullptr;
    added->peer = peer;
    added->next = std::move(first_);
    first_ = std::move(added);
    return first_.get();
  }
  std::unique_ptr<List> first_;
  bool whole_ = true;
};

/// Replaces `WirePrims` where an algorithm only lists what it will receive. Steps that receive from
/// several peers at once add up, so their slices have no places.
template <int In>
class LandingPrims {
 public:
  /// `slice`: elements that a slice holds.
  LandingPrims(LandingTable& table, const Peers<In>& from, Index slice)
      : table_{table}, from_{from}, slice_{slice} {}
  void lend() {}
  void lend_on() {}
  void only_sends() {}
  void own_is_output() {}
  void send(const Part&) {}
  void copy_send(const Part&) {}
  void recv(const Part& part) { list(part, true); }
  void recv_copy_send(const Part& part) { list(part, true); }
  void recv_reduce_send(const Part& part) { list(part, false); }
  void recv_reduce_copy(const Part& part) { list(part, false); }
  void recv_reduce_copy_send(const Part& part) { list(part, false); }
  void recv_reduce_finish_send(const Part& part) { list(part, false); }

 private:
  void list(const Part& part, bool stores) {
    if constexpr (In > 1) {
      for (const int peer : from_.rank) {
        if (peer >= 0) table_.leave_out(peer);
      }
    } else {
      for (Index at = 0; at < part.count; at += slice_) {
        const Index left = part.count - at;
        table_.add(from_.rank[0], {part.out + at, stores ? int(left < slice_ ? left : slice_) : 0});
      }
    }
  }
  LandingTable& table_;
  const Peers<In> from_;
  const Index slice_;
};

/// Replaces `WireContext` where an algorithm only lists what it will receive.
template <class Context>
class LandingContext {
 public:
  LandingContext(const Context& of, LandingTable& table) : of_{of}, table_{table} {}
  auto ring() const { return of_.ring(); }
  TreePosition tree() const { return of_.tree(); }
  int root() const { return of_.root(); }
  int rank() const { return of_.rank(); }
  int ranks() const { return of_.ranks(); }
  Chunks chunks(int shares) const { return of_.chunks(shares); }
  int window() const { return of_.window(); }
  int window(Index count) const { return of_.window(count); }
  template <int In, int Out>
  LandingPrims<In> prims(const Peers<In>& from, const Peers<Out>&) const {
    return {table_, from, of_.slice_capacity()};
  }

 private:
  const Context& of_;
  LandingTable& table_;
};

/// Replaces `Landings` for groups that move tiles.
struct NoLandings {};

/// True if a rank needs nothing more of the memory in which its algorithm's parts land, from the
/// begin of the call on until the part that arrives there.
template <class Algo>
constexpr bool lands_ahead = [] {
  if constexpr (requires { Algo::lands_ahead; }) return Algo::lands_ahead;
  return false;
}();

/// True if an algorithm calls `lend_on`, so that the lane waits at the end of the call.
template <class Algo>
constexpr bool lends_to_end = [] {
  if constexpr (requires { Algo::lends_to_end; }) return Algo::lends_to_end;
  return false;
}();

}  // namespace ccl::detail
