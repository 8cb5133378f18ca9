#pragma once

#include <ccl/detail/base/cpu.hpp>
#include <ccl/detail/transport/lending_choice.hpp>
#include <ccl/detail/transport/peer_process.hpp>
#include <ccl/detail/transport/registered_memory.hpp>
#include <ccl/types/word.hpp>

#include <atomic>
#include <cerrno>
#include <memory>
#include <utility>
#include <vector>

#include <sched.h>

namespace ccl::detail {

/// Lets a proxy move steps of a wire between a network and the user's memory, without a copy
/// through the slot. CPU lanes and the proxy's threads share it; each wire and end has its own.
///
/// - Sender's lanes call `lend` before they post the step. If it takes the memory, the step's size
///   carries `mark`. The memory may change once the step is drained.
/// - Receiver's lanes call `offer` before they wait for the step. The proxy uses the memory only if
///   the step has exactly the offered number of bytes. The step's size then carries `mark`; without
///   `mark` the step is in its slot, because the proxy may have begun earlier.
/// - Receiver's lanes call `want` whenever they find steps missing. The proxy may leave other steps
///   in the socket for a moment.
/// - Lanes that fail call `revoke`: the memory belongs to its owner again.
///
/// A NIC accesses only memory of a `RegisteredBuffer`, and is told the place of a step before the
/// peer sends it. Receiver's lanes therefore call `land` instead of `offer`, before they return the
/// slot of the step, whose place the proxy then announces to the peer in place of the slot.
///
/// Between processes of a host there is no proxy: see `Memory::peers`. Sender's lanes call
/// `lend_to_peer` before they post the step, and name the place in its `ShortSlot`. Receiver's
/// lanes call `pull`, and return the step when they need the memory no more.
class ZeroCopy {
 public:
  static constexpr Word mark = Word{1} << 63;          // in a step's size
  static constexpr Index min_bytes = Index{16} << 10;  // below it a copy costs less than the wait

  /// Memory that a proxy accesses. `registered`: that of registered buffers, by a NIC. `peers`: no
  /// proxy; lanes of the receiver copy from the sender's process.
  enum class Memory { any, registered, peers };
  /// Accesses of NICs to memory of the user, beside those of the proxy.
  struct Accesses {
    virtual void end() = 0;

   protected:
    ~Accesses() = default;
  };
  /// Place of a step in registered memory; none if `memory` is null.
  struct Landing {
    std::byte* at = nullptr;
    Index bytes = 0;
    std::shared_ptr<RegisteredMemory> memory;
  };

  explicit ZeroCopy(int slot_count, Memory which = Memory::any)
      : places_(std::size_t(slot_count)), which_{which} {}
  /// Makes the sender's or the receiver's end of `Memory::peers`. In memory of both ends, the
  /// receiver sets `may_lend`, and the sender `taken_back`, after which what lay in its memory is
  /// void.
  ZeroCopy(bool sends, const PeerProcess& peer, Word* may_lend, Word* taken_back,
           LendingChoice::Rule rule)
      : which_{Memory::peers},
        sends_{sends},
        peer_{peer},
        may_lend_{may_lend},
        taken_back_{taken_back},
        choice_{rule} {}

  /// True if lanes of the receiver copy what was lent.
  bool pulls() const { return which_ == Memory::peers; }
  /// True if the receiver's lanes can read this process. Stays so until `revoke`.
  bool can_lend() const { return !revoked() && Shared{*may_lend_}.load() != 0; }
  LendingChoice& choice() { return choice_; }
  /// True if other processes can read memory of this one. A look takes more than 1 us, so what was
  /// seen counts for some time. Called by lanes of the sender.
  bool can_be_read(const void* at, Index bytes, Word now_ns) {
    const char *const begin = static_cast<const char*>(at), *const end = begin + bytes;
    const bool recent = now_ns - looked_ns_ < looked_for_ns;
    if (recent && begin >= readable_ && end <= readable_end_) return true;
    if (!PeerProcess::others_can_read(at, bytes)) return false;
    if (!recent || begin != readable_end_) {
      readable_ = begin;
      looked_ns_ = now_ns;
    }
    readable_end_ = end;
    return true;
  }
  /// Lends a step to the receiver's lanes, which can read it.
  void lend_to_peer(Word step) { lent_ = step + 1; }
  /// Copies slices of the sender's memory, which follow each other there, to `pieces` places.
  /// Returns 0 or an errno; `ECANCELED` if the sender has taken its memory back. Called by lanes.
  int pull(const void* from, const iovec* to, int pieces) const {
    const int failed = peer_.read(from, to, pieces);
    if (failed != 0) return failed;
    // The read precedes this, which a mere load would not ensure.
    return Shared{*taken_back_}.fetch_or(0) == 0 ? 0 : ECANCELED;
  }
  /// Notes that the steps before `end` are copied: where lanes store them, or to their slots.
  void set_pulled(Word end, bool to_slots) {
    pulled_ = end;
    pulled_to_slots_ = to_slots;
  }
  Word pulled() const { return pulled_; }
  bool pulled_to_slots() const { return pulled_to_slots_; }

  /// Returns false if the memory is not registered, and must be.
  bool lend(Word step, const void* place, Index bytes) {
    Region& region = places_[index(step)];
    if (which_ == Memory::registered) {
      if (closed_.load(std::memory_order_relaxed)) return false;
      region.lent = find_registered(place, bytes);
      if (region.lent == nullptr) return false;
    }
    region.at = const_cast<void*>(place);
    lent_ = step + 1;
    return true;
  }
  /// Returns the registered memory of a step that was lent. The proxy calls `give_back` before it
  /// reports the step as drained.
  const std::shared_ptr<RegisteredMemory>& lent_memory(Word step) const {
    return places_[index(step)].lent;
  }
  void give_back(Word step) { places_[index(step)].lent.reset(); }
  /// Ends lending, because nobody gives steps back any more.
  void close() { closed_.store(true, std::memory_order_relaxed); }
  /// Returns one more than the last step that was lent. Called by lanes.
  Word lent() const { return lent_; }
  /// Offers memory for a step; may be repeated.
  void offer(Word step, void* place, Index bytes) {
    if (which_ != Memory::any) return;
    if (offered_.load(std::memory_order_relaxed) == step + 1) return;
    places_[index(step)].at = place;
    places_[index(step)].bytes = bytes;
    offered_.store(step + 1, std::memory_order_release);
  }
  bool offered(Word step, Index bytes) const {
    return offered_.load(std::memory_order_acquire) == step + 1 &&
           places_[index(step)].bytes == bytes;
  }
  /// True if lanes call `land`.
  bool lands() const { return which_ == Memory::registered; }
  /// Names the place of a step that has not arrived; may be repeated. Has no effect on a step whose
  /// slot is announced, and on memory that is not registered.
  void land(Word step, void* place, Index bytes) {
    Region& region = places_[index(step)];
    if (region.landing.load(std::memory_order_relaxed) == step + 1) return;
    region.at = place;
    region.bytes = bytes;
    region.memory = find_registered(place, bytes);  // or none, so that each step looks once
    region.landing.store(step + 1, std::memory_order_release);
  }
  /// Returns the place of a step that has not arrived. Called by the proxy.
  Landing landing(Word step) const {
    const Region& region = places_[index(step)];
    if (region.landing.load(std::memory_order_acquire) != step + 1) return {};
    return {static_cast<std::byte*>(region.at), region.bytes, region.memory.lock()};
  }
  /// Announces that the lanes wait for the steps before `end`. `bytes` is the size of the last of
  /// them, -1 if unknown.
  void want(Word end, Index bytes) {
    if (pulls() || wanted_.load(std::memory_order_relaxed) == end) return;
    wanted_bytes_.store(bytes, std::memory_order_relaxed);
    wanted_.store(end, std::memory_order_release);
  }
  /// Returns 0 if the lanes have not called `want`.
  Word wanted() const { return wanted_.load(std::memory_order_acquire); }
  Index wanted_bytes() const { return wanted_bytes_.load(std::memory_order_relaxed); }
  std::byte* place(Word step) const { return static_cast<std::byte*>(places_[index(step)].at); }

  /// Sets what `revoke` ends, too. Called before lanes have the wire.
  void set_accesses(Accesses& of_nics) { of_nics_ = &of_nics; }
  /// Ends all use of the user's memory: after its return no proxy, NIC or peer accesses it. Does
  /// not wait for any peer. A peer that copies it by itself finds that what it has read is void.
  void revoke() {
    revoked_.store(true);
    // Precedes what the owner does with the memory.
    if (pulls() && sends_) Shared{*taken_back_}.exchange(1);
    if (of_nics_ != nullptr) of_nics_->end();
    while (users_.load() != 0) ::sched_yield();
  }
  bool revoked() const { return revoked_.load(std::memory_order_relaxed); }

  /// Guard for each access of a proxy to a region. A null pointer guards nothing.
  class Use {
   public:
    explicit Use(ZeroCopy* zero_copy) : zero_copy_{zero_copy} {
      if (zero_copy_ == nullptr) return;
      zero_copy_->users_.fetch_add(1);  // before the check; `revoke` has the opposite order
      allowed_ = !zero_copy_->revoked_.load();
    }
    ~Use() {
      if (zero_copy_ != nullptr) zero_copy_->users_.fetch_sub(1);
    }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    bool allowed() const { return allowed_; }

   private:
    ZeroCopy* const zero_copy_;
    bool allowed_ = true;
  };

 private:
  using Shared = std::atomic_ref<Word>;
  std::size_t index(Word step) const { return std::size_t(step) & (places_.size() - 1); }
  struct Region {
    void* at = nullptr;
    Index bytes = 0;                         // offered
    std::shared_ptr<RegisteredMemory> lent;  // that a NIC reads
    std::weak_ptr<RegisteredMemory> memory;  // that a peer may write; it may end before
    std::atomic<Word> landing{0};            // one more than the step that lands at `at`
  };
  std::vector<Region> places_;
  const Memory which_;
  const bool sends_ = false;
  const PeerProcess peer_{};
  Word* const may_lend_ = nullptr;
  Word* const taken_back_ = nullptr;
  LendingChoice choice_{LendingChoice::Rule::by_time};
  static constexpr Word looked_for_ns = 10'000'000;
  const char *readable_ = nullptr, *readable_end_ = nullptr;
  Word looked_ns_ = 0;
  Accesses* of_nics_ = nullptr;
  Word lent_ = 0, pulled_ = 0;
  bool pulled_to_slots_ = false;
  std::atomic<Word> offered_{0}, wanted_{0};
  std::atomic<Index> wanted_bytes_{-1};
  std::atomic<bool> revoked_{false}, closed_{false};
  std::atomic<int> users_{0};
};

}  // namespace ccl::detail
