#pragma once

#include <ccl/comm/unique_id.hpp>
#include <ccl/detail/base/status.hpp>
#include <ccl/types/result.hpp>
#include <ccl/types/word.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ccl::detail {

/// Index of the root that serves a rank. Ranks are divided evenly and in order, by NCCL's rule: the
/// first ranks % roots roots serve one rank more.
constexpr int root_of_rank(int rank, int ranks, int roots) {
  const int each = ranks / roots, more = ranks % roots;
  const int in_larger = more * (each + 1);
  return rank < in_larger ? rank / (each + 1) : (rank - in_larger) / each + more;
}
/// First rank that root `root` serves.
constexpr int first_rank_of_root(int root, int ranks, int roots) {
  const int each = ranks / roots, more = ranks % roots;
  return root * each + (root < more ? root : more);
}

/// Returns the surviving ranks, in order, of a shrink in which `rank` excludes `excluded`. Fails
/// with `Errc::invalid_argument` if `rank` excludes itself or a rank that does not exist.
Result<std::vector<int>> surviving_ranks(int rank, int ranks, std::span<const int> excluded);

struct BootstrapOptions {
  double deadline_s = 0;  // limit of each wait without progress, in seconds; 0: CCL_INIT_TIMEOUT
  // Receives lost ranks and aborts. It must outlive the bootstrap. Null: the bootstrap has its own.
  Status* status = nullptr;
  // All-gathers of so many ranks and more go along a tree. Equal on all ranks.
  int tree_ranks = 512;
};

/// Purpose of a rendezvous, for checks and messages. `kind` must be the same on all ranks; `of` is
/// only printed.
struct RendezvousId {
  std::string_view kind;  // the first 24 characters are compared
  std::string_view of = {};
};

/// Process and host of a rank.
struct RankPlace {
  int rank = -1;
  int pid = 0;
  std::uint64_t host_hash = 0;
  std::string host;
};

/// Communication between the ranks of a communicator that needs no wires. It has a ring of sockets,
/// opened with the help of the roots, and sockets between any two ranks, opened when first used.
/// Every socket is authenticated by the secret of the id.
///
/// The sockets of a rank close when it dies. Its neighbors then send the error to all ranks. The
/// `Status` of every rank then names the dead rank, also outside of calls of this class.
///
/// One thread may use a bootstrap at a time, except for functions marked "Any thread". All ranks
/// must make collective calls in the same order.
class Bootstrap {
 public:
  using Options = BootstrapOptions;
  class Core;  // state and protocol: src/bootstrap/core.hpp

  /// Joins all ranks of `ids`. Collective. Several ids give several roots, which share the work. A
  /// single rank needs no id.
  static Result<std::unique_ptr<Bootstrap>> join(std::span<const UniqueId> ids, int rank, int ranks,
                                                 const Options& options = {});
  /// Without a `finalize`, sends the other ranks the error that this rank left. Does not block.
  ~Bootstrap();
  Bootstrap(const Bootstrap&) = delete;
  Bootstrap& operator=(const Bootstrap&) = delete;

  int rank() const;
  int ranks() const;
  Status& status() const;
  /// Secret that the ranks share.
  std::array<std::byte, 16> secret() const;
  const RankPlace& place(int rank) const;
  /// Address at which this rank listens for the others, without the port: "10.0.0.1:0".
  std::string reached_at() const;

  /// Gathers one part of `bytes_each` bytes per rank, in place. Collective. The part of this rank
  /// must be filled in. Parts travel both ways around the ring in R / 2 steps.
  ///
  /// `limit_s` replaces `deadline_s`; 0 sets no limit. It may differ between ranks; see
  /// `share_call_limit`. The bootstrap fails on all ranks with
  /// `Errc::mismatch` in two cases:
  /// - the purposes of two ranks differ;
  /// - another rank is in a barrier. Among `tree_ranks` and more, that is `Errc::timed_out`.
  Result<void> all_gather(void* all, Index bytes_each, std::optional<double> limit_s = {},
                          const RendezvousId& purpose = {"all_gather"});
  /// Shares with all ranks that the later gathers of this rank with a `limit_s` have the limit
  /// `limit_s`. Collective, among `tree_ranks` and more. Only if all ranks have a limit such
  /// gathers go along a tree, because all ranks must take one way. Until then they go around the
  /// ring.
  Result<void> share_call_limit(double limit_s);
  /// Gathers as `all_gather`, first inside each host, then between one rank of each host.
  Result<void> all_gather_hosts(void* all, Index bytes_each);
  /// Sends a message and returns when it is queued. Messages between two ranks with one tag arrive
  /// in order. Tags must be below 2^63. Any thread.
  Result<void> send(int peer, std::uint64_t tag, const void* data, Index bytes);
  /// Sends a message of a call whose limit is `limit_s`: a connection to the peer takes no longer.
  /// 0: it has the deadline of creation.
  Result<void> send(int peer, std::uint64_t tag, const void* data, Index bytes, double limit_s);
  /// Blocks until a message with `tag` from `peer` arrives, at most `limit_s` seconds or the
  /// bootstrap's deadline. The error of a message that does not come names `setting`, which raises
  /// the limit. Any thread.
  Result<std::vector<std::byte>> recv(int peer, std::uint64_t tag,
                                      std::optional<double> limit_s = {},
                                      const char* setting = "CCL_TIMEOUT");
  /// Sender and tag of a message.
  struct Source {
    int peer;
    std::uint64_t tag;
  };
  /// Returns all messages of `sources` that have arrived. Blocks at most `limit_s` seconds for the
  /// first. Any thread.
  std::vector<std::pair<Source, std::vector<std::byte>>> recv_any(std::span<const Source> sources,
                                                                  double limit_s);
  /// Sets the function that takes the messages with `tag`, in the network thread and with a lock
  /// held: it must not block or call this class. Messages that came earlier wait for `recv`. An
  /// empty function ends that.
  void set_message_listener(
      std::uint64_t tag, std::function<void(int peer, std::span<const std::byte> text)> listener);
  /// Blocks until all ranks have called it. Collective.
  Result<void> barrier(std::optional<double> limit_s = {});
  /// Creates a bootstrap with its own secret for each color, its ranks in order of `key`, then of
  /// rank. Collective. With `color` < 0 the result is null.
  Result<std::unique_ptr<Bootstrap>> split(int color, int key, const Options& options = {});
  /// Creates a bootstrap with its own secret for the ranks that are not in `excluded`, in their
  /// order. All surviving ranks must call it, with the same ranks in any order. This bootstrap may
  /// have failed, and does not change.
  ///
  /// Either all surviving ranks get an error, or all get the new bootstrap. After an error they may
  /// call it again. Any thread. Concurrent calls run one after another and must have the same order
  /// on all ranks.
  Result<std::unique_ptr<Bootstrap>> shrink(std::span<const int> excluded,
                                            const Options& options = {});
  /// Aborts the `shrink` that another thread has called, on all ranks that are in it. Any thread.
  void stop_shrink(const Error& error);
  /// Number of failed calls of `shrink`, as far as this rank knows. Any thread.
  std::uint64_t failed_shrinks() const noexcept;
  /// Fails a `shrink` on the ranks that wait for this one in it, because this rank cannot begin its
  /// own. `failed` is `failed_shrinks()` from the time before: does nothing if that call has failed
  /// meanwhile. All ranks may call `shrink` again. Any thread.
  void miss_shrink(Errc why, std::uint64_t failed) noexcept;
  /// Sets the function that makes this rank's status for `rank_statuses`. Its argument is the
  /// collective call of this class that the rank is in, such as "finalize", or "". It is called on
  /// any thread with a lock held, so it must not block or call this class.
  void set_rank_status(
      std::function<std::vector<std::byte>(std::string_view rendezvous)> rank_status);
  /// Sets the function that takes each status that arrives from another rank, as `set_rank_status`
  /// does.
  void set_status_listener(std::function<void(std::span<const std::byte> status)> listener);
  /// Collective call that this rank is in.
  struct Step {
    std::uint64_t number = 0;    // from 1, equal on all ranks; 0: it is in none
    std::uint64_t progress = 0;  // grows with what arrives from other ranks
  };
  /// Returns that call. Only for the network thread and functions as that of `set_rank_status`,
  /// which hold the lock.
  Step current_step() const;
  /// Returns the number of collective calls that this rank has begun. Any thread.
  std::uint64_t calls_begun() const;
  /// Returns the status of every rank, at most 0.2 s old. A status is empty if none arrives within
  /// `limit_s` seconds. Not collective: the network thread of each rank answers. Any thread, also
  /// during other calls of this class.
  std::vector<std::vector<std::byte>> rank_statuses(double limit_s);
  /// Returns a function as `rank_statuses`, which may outlive this bootstrap. All statuses that it
  /// returns after the end of the bootstrap are empty.
  std::function<std::vector<std::vector<std::byte>>(double limit_s)> status_reader() const;
  /// Returns a function that lists the address of each rank's host without a port, such as
  /// "10.0.0.1". An entry is empty if the ranks use none. It may outlive this bootstrap, too.
  std::function<std::vector<std::string>()> address_reader() const;
  /// Sets the `Status` of every rank to `Errc::aborted` with this rank as the peer. An error that
  /// already names the rank at fault keeps its code. Does not block.
  void abort(const Error& error);
  /// True if it has failed, and told the other ranks. Only in calls of the network thread.
  bool has_failed() const;
  /// Returns the error that it has failed with, of this rank or another. Any thread.
  std::optional<Error> failure() const;
  /// Ends the bootstrap gracefully. Collective. Ranks may then exit without an error on others. If
  /// a rank has departed, calls `drain()` and departs, too, because not all ranks can meet.
  Result<void> finalize(std::optional<double> limit_s = {},
                        const std::function<void()>& drain = {});
  using Lock = std::unique_lock<std::mutex>;  // of the network thread
  /// Tells all ranks that the process of this one exits in order, and ends the bootstrap. The
  /// process must live until `is_draining` is false.
  void depart(const Lock& lock) noexcept;
  /// True while other ranks have not closed their ends of the connections.
  bool is_draining(const Lock& lock) const;
  /// Fails all ranks, because this one waits for `rank`, which has departed.
  void lose_departed(const Lock& lock, int rank) noexcept;
  /// Connects this rank to the next one that has not departed, so that the ranks that stay receive
  /// further departures, losses and failures. Only in calls of the network thread.
  void join_staying(const Lock& lock) noexcept;

 private:
  explicit Bootstrap(std::shared_ptr<Core> core);
  Result<std::unique_ptr<Bootstrap>> make_child(int color, int key, const Options& options,
                                                std::optional<double> limit_s, const char* what,
                                                bool shrinks);
  std::shared_ptr<Core> core_;
};

}  // namespace ccl::detail
