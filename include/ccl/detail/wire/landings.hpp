#pragma once

#include <ccl/algo/chunks.hpp>
#include <ccl/algo/peers.hpp>
#include <ccl/detail/transport/registered_memory.hpp>

#include <memory>
#include <new>
#include <utility>

namespace ccl::detail {

/// Slices that one channel of a CPU rank will receive over its only wire in, in order. Lanes name
/// their places ahead of their arrival, so that peers write them there (`ZeroCopy::land`).
class Landings {
 public:
  struct Slice {
    Index out = 0;  // element of the output
    int count = 0;  // elements; 0: the slice goes through its slot, because it is reduced
  };
  bool any() const { return count_ > 0; }
  /// Returns the slice that is `ahead` slices after the next one; null if there is none.
  const Slice* at(int ahead) const {
    const Index n = next_ + ahead;
    return n < count_ ? &slices_[std::size_t(n)] : nullptr;
  }
  void advance() { ++next_; }
  /// Names the slices of the first steps, once.
  bool begin() { return !std::exchange(began_, true); }

  /// Lists the slices: `run` passes each one to the function that it gets, and is called twice.
  /// Lists nothing if no slice has a place, or without memory.
  template <class Run>
  void list(Run run) {
    Index most = 0, filled = 0;
    bool lands = false;
    run([&](const Slice& slice) {
      ++most;
      lands = lands || slice.count > 0;
    });
    if (!lands) return;
    slices_.reset(new (std::nothrow) Slice[std::size_t(most)]);
    if (slices_ == nullptr) return;
    run([&](const Slice& slice) { slices_[std::size_t(filled++)] = slice; });
    count_ = filled;
  }

 private:
  std::unique_ptr<Slice[]> slices_;
  Index count_ = 0, next_ = 0;
  bool began_ = false;
};

/// Replaces `WirePrims` where an algorithm only lists what it will receive.
template <class Add>
class LandingPrims {
 public:
  /// `slice`: elements that a slice holds.
  LandingPrims(Add& add, Index slice) : add_{add}, slice_{slice} {}
  void lend() {}
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
    for (Index at = 0; at < part.count; at += slice_) {
      const Index left = part.count - at;
      add_(Landings::Slice{part.out + at, stores ? int(left < slice_ ? left : slice_) : 0});
    }
  }
  Add& add_;
  const Index slice_;
};

/// Replaces `WireContext` where an algorithm only lists what it will receive.
template <class Context, class Add>
class LandingContext {
 public:
  LandingContext(const Context& of, Add& add) : of_{of}, add_{add} {}
  auto ring() const { return of_.ring(); }
  int root() const { return of_.root(); }
  int rank() const { return of_.rank(); }
  int ranks() const { return of_.ranks(); }
  Chunks chunks(int shares) const { return of_.chunks(shares); }
  template <int In, int Out>
  LandingPrims<Add> prims(const Peers<In>&, const Peers<Out>&) const {
    static_assert(In == 1, "The list is that of one wire.");
    return {add_, of_.slice_capacity()};
  }

 private:
  const Context& of_;
  Add& add_;
};

/// Replaces `Landings` for groups that move tiles.
struct NoLandings {};

/// True if a rank needs nothing more of the memory in which its algorithm's parts land, from the
/// begin of the call on until the part that arrives there. It then has one wire in.
template <class Algo>
constexpr bool lands_ahead = [] {
  if constexpr (requires { Algo::lands_ahead; }) return Algo::lands_ahead;
  return false;
}();

}  // namespace ccl::detail
