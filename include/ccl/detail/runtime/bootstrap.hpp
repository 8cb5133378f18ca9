#pragma once

#include <ccl/types/result.hpp>
#include <ccl/detail/base/status.hpp>
#include <ccl/types/word.hpp>
#include <ccl/comm/unique_id.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ccl::detail {

/// Which root serves a rank: ranks are divided evenly and in order; the first ranks % roots roots
/// serve one more (NCCL's rule).
constexpr int root_of_rank(int rank, int ranks, int roots) {
  const int each = ranks / roots, more = ranks % roots;
  const int in_larger = more * (each + 1);
  return rank < in_larger ? rank / (each + 1) : (rank - in_larger) / each + more;
}
/// The first rank that root `root` serves.
constexpr int first_rank_of_root(int root, int ranks, int roots) {
  const int each = ranks / roots, more = ranks % roots;
  return root * each + (root < more ? root : more);
}

/// Which of all ranks stay where `rank` excludes these, in order; `Errc::invalid_argument` where it
/// excludes itself, or one that is not there.
Result<std::vector<int>> surviving_ranks(int rank, int ranks, std::span<const int> excluded);

struct BootstrapOptions {
  double deadline_s = 0;  // each wait fails after so long without progress; 0: CCL_INIT_TIMEOUT
  Status* status =
      nullptr;  // hears of lost ranks and aborts; outlives the bootstrap. Null: its own
};

/// What ranks meet for. Of one meeting `kind` is the same on all of them; `of` is only told.
struct RendezvousId {
  std::string_view kind;  // at most 24 characters count
  std::string_view of = {};
};

/// Who a rank is and where it lives.
struct RankPlace {
  int rank = -1;
  int pid = 0;
  std::uint64_t host_hash = 0;
  std::string host;
};

/// How the ranks of a communicator talk before they have wires: a ring of TCP connections, opened
/// with the help of the roots, and connections between any two ranks, opened when first used. Every
/// connection has proved the secret of the id.
/// A rank that dies closes its connections; its neighbours see that and tell everybody, so that the
/// `Status` of every rank names it, whether it is inside a call of this class or not.
/// Usable by one thread at a time, but for `send`, `recv` and what says so. Collective calls come
/// in the same order on all ranks.
class Bootstrap {
 public:
  using Options = BootstrapOptions;

  /// Collective over all ranks of `ids`. Several ids: several roots share the work. One rank alone
  /// needs no id.
  static Result<std::unique_ptr<Bootstrap>> join(std::span<const UniqueId> ids, int rank, int ranks,
                                                 const Options& options = {});
  /// Without `finalize`: tells the others that this rank gave up. Does not block.
  ~Bootstrap();
  Bootstrap(const Bootstrap&) = delete;
  Bootstrap& operator=(const Bootstrap&) = delete;

  int rank() const;
  int ranks() const;
  Status& status() const;
  /// Known by all ranks and nobody else.
  std::array<std::byte, 16> secret() const;
  const RankPlace& place(int rank) const;

  /// Collective, in place: `all` holds one part of `bytes_each` per rank, this rank's is filled in.
  /// Parts travel both ways around the ring: R / 2 steps. `limit_s` takes the place of
  /// `deadline_s`; 0: no limit, as ranks may be late. Ranks of different purposes, or of which one
  /// is in a barrier, make different calls: all get `Errc::mismatch`, and the bootstrap has failed.
  Result<void> all_gather(void* all, Index bytes_each, std::optional<double> limit_s = {},
                          const RendezvousId& purpose = {"all_gather"});
  /// The same result, but inside each host first, then between one rank of each host.
  Result<void> all_gather_hosts(void* all, Index bytes_each);
  /// Returns when the message is on its way. Messages from a to b with one tag arrive in order.
  /// Tags are below 2^63. Any thread, as `recv`.
  Result<void> send(int peer, std::uint64_t tag, const void* data, Index bytes);
  Result<std::vector<std::byte>> recv(int peer, std::uint64_t tag,
                                      std::optional<double> limit_s = {});
  /// From whom and under which tag.
  struct Source {
    int peer;
    std::uint64_t tag;
  };
  /// All messages of these that have come; waits until `limit_s` for the first. Any thread.
  std::vector<std::pair<Source, std::vector<std::byte>>> recv_any(std::span<const Source> sources,
                                                                  double limit_s);
  Result<void> barrier(std::optional<double> limit_s = {});
  /// Collective. Ranks of one colour form a new bootstrap with its own secret, in order of `key`,
  /// then of rank. `color` < 0: no part in any, and the result is null. A null `status` in
  /// `options` means its own here, too.
  Result<std::unique_ptr<Bootstrap>> split(int color, int key, const Options& options = {});
  /// The ranks without the `excluded` ones form a new bootstrap with its own secret, in their
  /// order. All that stay call it, with the same ranks in any order; the others take no part. It
  /// works whether this bootstrap has failed or not, and leaves it as it is. All that are left get
  /// an error, after which they may call it again, or all get the new one, which may have failed
  /// since. Any thread; several calls take turns, in the same order on all ranks.
  Result<std::unique_ptr<Bootstrap>> shrink(std::span<const int> excluded,
                                            const Options& options = {});
  /// Ends a `shrink` that another thread is in, on all ranks that are in it.
  void stop_shrink(const Error& error);
  /// What this rank says of itself when some rank asks for `rank_statuses`: it is given the collective
  /// call of this class that the rank is in, such as "finalize", or "". Called on any thread, with
  /// a lock held: it must not block, nor call this class.
  void set_rank_status(std::function<std::vector<std::byte>(std::string_view rendezvous)> rank_status);
  /// Every rank's account, none older than 0.2 s; empty for those from whom nothing comes within
  /// `limit_s`. Not collective: ranks answer whatever they do, unless their process is stopped or
  /// gone. Any thread, also during other calls of this class.
  std::vector<std::vector<std::byte>> rank_statuses(double limit_s);
  /// Tells every rank; their `Status` becomes `Errc::aborted` and names this rank. Does not block.
  void abort(const Error& error);
  /// Collective: the graceful end. From then on ranks may leave without being missed.
  Result<void> finalize(std::optional<double> limit_s = {});

 private:
  class Core;
  explicit Bootstrap(std::shared_ptr<Core> core);
  Result<std::unique_ptr<Bootstrap>> make_child(int color, int key, const Options& options,
                                                std::optional<double> limit_s, const char* what,
                                                bool shrinks);
  std::shared_ptr<Core> core_;
};

}  // namespace ccl::detail
