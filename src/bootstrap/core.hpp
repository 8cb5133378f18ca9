#pragma once

#include <ccl/detail/runtime/bootstrap.hpp>

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "net/auth.hpp"
#include "net/conn.hpp"
#include "net/rendezvous.hpp"

namespace ccl::detail {

/// Tags of messages that the bootstrap itself sends; its users' are below.
constexpr std::uint64_t own_tags = std::uint64_t{1} << 63;

/// How long a wait of a bootstrap with these options may take.
Result<double> deadline_of(const BootstrapOptions& options);

/// The state of a bootstrap. Everything here is guarded by the engine's mutex, except what joining
/// sets before anyone else sees it. The engine's thread calls `accept`, `frame` and `closed`.
class Bootstrap::Core : public std::enable_shared_from_this<Core> {
  using Clock = net::Clock;

 public:
  using Lock = std::unique_lock<std::mutex>;
  enum class Role { next, prev, root, peer, caller };  // the last has called this rank

  Core(int rank, int ranks, const net::Secret& secret, double deadline_s, Status* status);
  /// Those of `all` that stay, with the ranks that they have there: for shrink.cpp.
  Core(const Core& all, std::vector<int> stay, double deadline_s);

  // Before the ring stands: join.cpp.
  Result<void> open_gate(const net::Address& where);
  Result<void> join_root(const net::IdContent& id, int root, int roots);
  Result<net::Member> next_from_root();
  Result<void> form_ring(const net::Member& next);
  Result<void> exchange_members();
  void set_root_secrets(std::vector<net::Secret> secrets);
  /// After a failure: ranks on their way to this process's root shall hear the reason, not find
  /// nobody there.
  void wait_for_late_ranks();
  void set_members(std::vector<net::Member> members);

  // Around the ring: ring.cpp.
  Result<void> all_gather(void* all, Index bytes_each, std::optional<double> limit_s,
                          const RendezvousId& purpose, const char* setting = "CCL_TIMEOUT");
  Result<void> barrier(std::optional<double> limit_s = {}, const char* setting = "CCL_TIMEOUT",
                       const char* what = "barrier");

  // Between any two: messages.cpp.
  Result<void> send(int peer, std::uint64_t tag, const void* data, Index bytes);
  Result<std::vector<std::byte>> recv(int peer, std::uint64_t tag,
                                      std::optional<double> limit_s = {});
  std::vector<std::pair<Source, std::vector<std::byte>>> recv_any(std::span<const Source> sources,
                                                                  double limit_s);

  // The end, good or bad: ending.cpp.
  void abort(const Error& error);
  /// This rank cannot go on while the ring forms: the others hear why.
  Error give_up(Error error);
  Result<void> finalize(std::optional<double> limit_s = {});
  /// The end of what all ranks know to be over.
  void close_gracefully();
  /// The destructor's part.
  void leave();

  // shrink.cpp
  /// Those who stay meet in a ring of their own, whatever has become of that of `all`.
  Result<void> form_ring_in(Core& all);
  /// One at a time may be under way.
  std::mutex& shrinking() { return shrinking_; }
  void end_shrink(const Result<void>& result);
  /// Of a child: whether all that are left have it, if `formed` or some others say so.
  bool is_made(bool formed);
  /// Why it is not, where this rank has passed the last barrier, or has not.
  Result<void> unmade(Result<void> passed);
  void stop_shrink(const Error& error);

  // accounts.cpp
  void set_rank_status(std::function<std::vector<std::byte>(std::string_view)> rank_status);
  std::vector<std::vector<std::byte>> rank_statuses(double limit_s);

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  const net::Secret& secret() const { return secret_; }
  Status& status() const { return *status_; }
  const net::Member& me() const { return me_; }
  const RankPlace& place(int rank) const { return places_[size_t(rank)]; }
  std::uint64_t next_tag() { return own_tags | internal_calls_++; }
  /// Where a child may listen: this rank's address, any port.
  net::Address listening_at() const;
  void set_joined();
  void set_forming_child(const std::shared_ptr<Core>& child);
  /// An error while it forms, which `parent` counts in its own ranks.
  void set_ranks_in_parent(std::vector<int> ranks);
  Error in_parent(const Core& parent, Error error) const;
  Result<void> failed(Errc code, std::string what) const;

 private:
  struct RankStatus {
    Clock::time_point at;      // when it came
    std::uint64_t number = 0;  // of that rank's accounts
    std::vector<std::byte> text;
  };
  /// Before each part of an all-gather: what its rank meets the others for.
  struct PartHead {
    char kind[24] = {};
    char of[64] = {};
    std::uint64_t barriers = 0;  // that it has begun before

    std::string text() const;
  };
  static PartHead head_of(net::Bytes payload);
  struct Gather {
    PartHead mine;
    std::byte* base;
    Index bytes_each;
    int count;  // of parts that have come
    std::vector<bool> here;
  };

  /// A rank that shrinks and has called this one, which may not have come so far.
  struct PendingPeer {
    net::Member who;
    net::Digest excluded;
    std::string said;
    std::uint64_t number;
    Clock::time_point at;
    std::weak_ptr<Core> taken_by;
    std::vector<std::pair<net::FrameHeader, std::vector<std::byte>>> frames;  // before that
    std::optional<int> closed;                                                // before that
    bool failed() const;
  };
  struct Call {
    std::shared_ptr<PendingPeer> from;
    std::shared_ptr<net::Conn> conn;
  };
  struct AbandonedShrink {
    Error why;
    std::uint64_t number;
  };
  struct Shrinking {
    std::shared_ptr<Core> rest;  // null: none is under way
    net::Digest excluded{};
    std::string said;
    Clock::time_point since;
    std::uint64_t number = 0;
  };

  static std::mutex& mutex() { return net::Engine::get().mutex(); }
  net::Deadline deadline() const { return net::Deadline::after(deadline_s_); }
  int in_ring() const { return int(ring_.size()); }
  /// Where in the ring; -1: not in it.
  int position_of(int rank) const;
  int next_peer() const { return ring_[size_t((position_of(rank_) + 1) % in_ring())]; }
  int prev_peer() const { return ring_[size_t((position_of(rank_) + in_ring() - 1) % in_ring())]; }
  int forward_steps() const { return in_ring() / 2; }
  int backward_steps() const { return (in_ring() - 1) / 2; }

  void complete(Error& e) const;
  Error from_parent(Error error) const;
  Result<void> usable() const;
  Result<void> failed_at(int peer, Error e) const;
  Result<std::shared_ptr<net::Conn>> start(Fd fd, Role role, const net::Member& peer);
  void accept(net::Accepted one);
  void frame(const net::FrameHeader& h, net::Bytes payload);
  void for_each_conn(const std::function<void(net::Conn&)>& f);
  void close_all();
  Result<void> wait_for_prev(Lock& lock, const char* what);
  // Ends when `done`, on failure, or when nothing has moved for deadline_s or, if given, `limit_s`,
  // which `setting` raises.
  Result<void> wait(Lock& lock, const std::function<bool()>& done, const char* what,
                    const std::function<std::vector<int>()>& missing = {},
                    std::optional<double> limit_s = {}, const char* setting = "CCL_TIMEOUT");

  // ring.cpp
  void part(const net::FrameHeader& h, net::Bytes payload);
  void take_part(int owner, net::Bytes payload);
  /// Whether the rank is in a meeting before the barrier that this rank is in.
  bool missed_barrier(int owner, net::Bytes payload);
  void differ(int owner, std::string what);
  std::vector<int> missing_parts() const;
  void token(const net::FrameHeader& h, net::Bytes payload);
  void send_first_token();
  /// Whether the ring's first rank, which is in `first`, meets for something else than this rank.
  bool is_elsewhere(std::string_view first);

  // ending.cpp
  void closed(net::Conn& conn, Role role, const net::Member& peer, int os_code);
  void on_error(Error error);
  void broadcast_error(const Error& error);
  void release_waiters(Error error);

  // shrink.cpp
  void accept_stay(net::Accepted one, const net::ShrinkHello& hello);
  void begin_shrink(const std::shared_ptr<Core>& rest);
  Result<std::shared_ptr<net::Conn>> call(int peer, Role role, net::Bytes hello);
  void take_prev();
  bool is_old(const PendingPeer& from) const;
  bool tell_given_up(const Call& call);
  bool look_at_callers(const std::weak_ptr<Core>& of);
  void reject_pending();
  void answer(net::Accepted one);

  // accounts.cpp
  std::vector<std::byte> own_status() const;
  void rank_status(const net::FrameHeader& h, net::Bytes payload);
  void publish_status();
  void ask(Lock& lock, int peer);
  bool answers(Lock& lock, const net::Member& to);
  std::optional<net::Member> find_unresponsive(Lock& lock, const std::vector<int>& late);

  const int rank_, ranks_;
  const net::Secret secret_;
  const double deadline_s_;
  Status own_status_;
  Status* const status_;
  net::Member me_;
  std::vector<net::Member> members_;
  std::vector<RankPlace> places_;
  std::vector<int> ring_;    // all ranks, or those who stay
  const bool rest_ = false;  // of another core's ranks, who are reached through its gates

  std::shared_ptr<net::Acceptor> gate_;
  std::shared_ptr<net::Conn> next_, prev_;
  std::vector<net::Secret> root_secrets_;             // of all roots; some may live in this process
  std::vector<std::shared_ptr<net::Conn>> roots_;     // until all ranks stand in the ring
  std::vector<std::shared_ptr<net::Conn>> accepted_;  // from peers
  std::map<int, std::shared_ptr<net::Conn>> in_;      // the latest of accepted_, by peer
  std::map<int, std::shared_ptr<net::Conn>> out_;     // for messages to a peer
  std::vector<std::shared_ptr<net::Conn>> dialed_;    // to ask for accounts

  std::mutex dialing_;  // one thread at a time opens connections to send over
  std::condition_variable changed_;
  std::uint64_t progress_ = 0;  // counts whatever shows that others are alive and moving
  std::vector<std::vector<int>> missing_by_root_;  // ranks that have not joined it, as it has said
  std::set<int> missing_;                          // of all roots
  std::optional<net::Member> next_member_, prev_member_;
  int root_rank_ = -1;
  bool formed_ = false, released_ = false, joined_ = false;
  std::optional<Error> failure_;
  bool leaving_ = false, finalized_ = false;
  bool made_ = false, doubted_ = false;  // of what `shrink` gave: see `is_made`

  std::map<std::pair<int, std::uint64_t>, std::deque<std::vector<std::byte>>> inbox_;
  std::optional<Gather> gather_;
  std::uint64_t gathers_ = 0;  // calls that have ended
  std::map<std::uint64_t, std::vector<std::pair<int, std::vector<std::byte>>>> early_parts_;
  std::vector<std::pair<net::FrameHeader, std::vector<std::byte>>>
      early_frames_;                   // before the ring stood
  std::weak_ptr<Core> forming_child_;  // of a split that not all ranks have left yet
  std::vector<int> ranks_in_parent_;
  std::uint64_t barriers_ = 0;     // calls that have begun
  const char* barrier_ = nullptr;  // what the one under way is for
  std::string rendezvous_;            // the call under way, or that has failed, of all ranks
  std::uint64_t first_token_ = 0, second_token_ = 0;
  std::string first_in_;  // what the ring's first rank is in, by its latest token
  std::uint64_t internal_calls_ = 0;

  std::function<std::vector<std::byte>(std::string_view)> publish_status_;
  std::map<int, RankStatus> rank_statuses_;
  std::uint64_t own_statuses_ = 0;
  Clock::time_point spoke_at_{};

  std::mutex shrinking_;
  Shrinking shrink_;
  std::map<int, Call> callers_;              // not taken yet, the latest of each rank
  std::map<net::Digest, AbandonedShrink> given_up_;  // the latest try, by whom it excluded
  std::uint64_t tries_ = 0;                  // that have failed, here or elsewhere
  std::vector<Call> watchers_;               // who wait for this rank
};

}  // namespace ccl::detail
