#pragma once

#include <ccl/detail/runtime/bootstrap.hpp>

#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bootstrap/members/host_tree.hpp"
#include "net/conn.hpp"
#include "net/rendezvous.hpp"

namespace ccl::detail {

/// Collective calls around a bootstrap's ring.
class RingGather {
 public:
  explicit RingGather(Bootstrap::Core& core) : core_(core) {}

  /// First bytes of each part of an all-gather: the purpose of the call on the part's rank.
  struct PartHead {
    char kind[24] = {};
    char of[64] = {};
    std::uint64_t barriers = 0;  // calls of `barrier` that have begun earlier

    std::string text() const;
  };

  Result<void> all_gather(void* all, Index bytes_each, std::optional<double> limit_s,
                          const RendezvousId& purpose, const char* setting = "CCL_TIMEOUT");
  /// Gathers as `all_gather`, along a tree inside each host and one between hosts.
  Result<void> all_gather_tree(void* all, Index bytes_each, std::optional<double> limit_s,
                               const RendezvousId& purpose, const char* setting = "CCL_TIMEOUT");
  /// True if the parts of all ranks fit in a message, as the tree needs.
  bool fits_in_message(Index bytes_each) const;
  Result<void> barrier(std::optional<double> limit_s = {}, const char* setting = "CCL_TIMEOUT",
                       const char* what = "barrier");
  /// Barrier of the last call. It also ends when a rank has departed, who cannot come.
  Result<void> barrier_of_end(std::optional<double> limit_s);

  /// Handles `FrameKind::part` and `token` once the ring is complete.
  void on_frame(const net::Lock&, const net::FrameHeader& h, net::Bytes payload);
  /// Returns the collective call that this rank is in or has failed in, or "".
  const std::string& current_call(const net::Lock&) const { return call_; }
  /// Returns the number of the collective call that this rank is in, from 1, or 0. All ranks make
  /// the same calls, so numbers are those of the others.
  std::uint64_t running_call() const { return runs_ ? calls_.load() : 0; }
  /// Returns the number of the latest collective call.
  std::uint64_t calls_begun() const { return calls_; }

 private:
  Result<void> meet(std::optional<double> limit_s, const char* setting, const char* what,
                    bool ends_by_departure);
  static PartHead head_of(net::Bytes payload);
  struct Gather {
    PartHead mine;
    std::byte* base;
    Index bytes_each;
    int count;               // parts that have arrived
    std::vector<bool> here;  // by rank
  };

  /// Marks this rank as one that is in a collective call.
  class Running {
   public:
    explicit Running(RingGather& of) : of_{of} {
      ++of.calls_;
      of.runs_ = true;
    }
    ~Running() { of_.runs_ = false; }
    Running(const Running&) = delete;
    Running& operator=(const Running&) = delete;

   private:
    RingGather& of_;
  };

  PartHead head_for(const RendezvousId& purpose) const;
  /// True if there are so many ranks that the tree is faster than the ring.
  bool goes_by_tree(Index bytes_each, std::optional<double> limit_s) const;
  Result<void> take_bundle(const PartHead& mine, std::byte* base, Index bytes_each,
                           const std::vector<int>& owners, net::Bytes bundle);
  void on_part(const net::Lock&, const net::FrameHeader& h, net::Bytes payload);
  void take_part(const net::Lock&, int owner, net::Bytes payload);
  void take_early_parts(const net::Lock&);
  /// Returns why a part is neither of this call nor to be kept for one to come, or an empty text.
  std::string unwanted_part(const net::Lock&, const net::FrameHeader& h) const;
  /// Fails the bootstrap if a part shows that its rank has not called this rank's barrier.
  bool missed_barrier(const net::Lock&, int owner, net::Bytes payload);
  std::vector<int> missing_parts(const net::Lock&) const;
  void on_token(const net::Lock&, const net::FrameHeader& h, net::Bytes payload);
  /// Fails all ranks, because a neighbor has sent what does not fit the state of a call.
  void break_off(const net::Lock&, const net::Member& sender, const std::string& why);
  void send_first_token(const net::Lock&);
  /// Fails the bootstrap if `first`, the call of the ring's first rank, differs from this rank's.
  bool is_elsewhere(const net::Lock&, std::string_view first);

  Bootstrap::Core& core_;
  std::optional<HostTree> tree_;  // made by the first gather along it: places do not change
  std::optional<Gather> gather_;
  std::uint64_t gathers_ = 0;  // calls that have ended
  // Parts of calls that this rank has not begun, by number of the call; each with its owner.
  std::map<std::uint64_t, std::vector<std::pair<int, std::vector<std::byte>>>> early_parts_;
  std::map<int, std::size_t> early_bytes_;  // of them, by owner
  std::uint64_t barriers_ = 0;              // calls that have begun
  const char* barrier_ = nullptr;           // purpose of the barrier that has begun and not ended
  std::string call_;
  std::atomic<std::uint64_t> calls_{0};  // that have begun
  std::atomic<bool> runs_{false};        // one of them has not returned
  std::uint64_t first_token_ = 0, second_token_ = 0;
  std::string first_in_;  // call of the ring's first rank, from its latest token
};

}  // namespace ccl::detail
