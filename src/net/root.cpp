#include "net/root.hpp"

#include <ccl/comm/log.hpp>
#include <ccl/detail/runtime/bootstrap.hpp>
#include <ccl/detail/runtime/host_id.hpp>

#include <fmt/format.h>

#include <cstring>
#include <map>
#include <optional>
#include <set>

#include "base/exceptions.hpp"
#include "net/auth.hpp"
#include "net/message_rules.hpp"

namespace ccl::detail::net {
namespace {

constexpr double unused_root_s = 24 * 3600;  // lifetime without any rank
constexpr double failed_root_s = 60;         // in which late ranks receive the error

class Root;
// Roots of this process. The engine's mutex guards them.
std::vector<std::weak_ptr<Root>>& local_roots() {
  static auto& roots = *new std::vector<std::weak_ptr<Root>>;
  return roots;
}

class Root : public std::enable_shared_from_this<Root> {
 public:
  Root(const Secret& secret, int root_rank) : secret_(secret), root_rank_(root_rank) {}

  Result<Address> open(const Address& where) {
    auto opened = without_exceptions([&] { return listen(where); });
    if (!opened) end();
    return opened;
  }
  const Secret& secret() const { return secret_; }
  /// Ends a failed root, so that another attempt of the same job can listen at its address.
  void make_room() {
    if (failure_) end();
  }
  /// Stops listening. Callers that have joined keep their connections.
  void end() {
    if (acceptor_) acceptor_->close();
    acceptor_.reset();
  }
  /// True after `end`, and in a forked child.
  bool ended() const { return !acceptor_ || acceptor_->fd() < 0; }

  /// Sends `error` to all callers. Without memory for it, closes their connections.
  void fail_all(const Error& error) noexcept {
    if (failure_ || !acceptor_) return;
    failure_ = to_notice(error);
    over_ = Deadline::after(all_came() ? 0 : failed_root_s);
    for (auto& [r, pending] : callers_) {
      const auto send = [&, conn = pending.conn.get()] {
        conn->send_now(FrameKind::notice, -1, 0, bytes_of(*failure_));
        conn->drain();
      };
      if (!completes(send)) pending.conn->close();
    }
    (void)completes([&] { log_info(LogPart::bootstrap, "root: {}", error.message()); });
    if (all_came()) end();
  }

 private:
  Result<Address> listen(const Address& where) {
    // The acceptor and the ticker own the root. `end` closes the acceptor.
    CCL_TRY(acceptor_, Acceptor::open(where, secret_, [self = shared_from_this()](Accepted one) {
              self->accept(std::move(one));
            }));
    CCL_CHECK(Engine::get().add_ticker([self = shared_from_this()] { return self->tick(); }));
    std::erase_if(local_roots(), [](const auto& root) { return root.expired(); });
    local_roots().push_back(weak_from_this());
    return acceptor_->address();
  }
  struct PendingCaller {
    Member member;
    std::shared_ptr<Conn> conn;
    bool formed = false;
    bool left = false;
  };

  void accept(Accepted one) {
    std::shared_ptr<Conn> conn;
    const auto done = completion_of([&] { join(std::move(one), conn); });
    if (done) return;
    if (conn) conn->close();  // a rank whose root closes fails
    fail_all(done.error());
  }

  /// Handles one caller. `of_caller` gets its connection.
  void join(Accepted one, std::shared_ptr<Conn>& of_caller) {
    Hello hello;
    const bool whole = read_into(hello, one.hello);
    if (const std::string why = whole ? wrong_join(hello) : "its hello is none of a rank";
        !why.empty()) {
      return refuse_hello(std::move(one), "the root", why);
    }
    if (hello.kind == HelloKind::decline) return on_decline(std::move(one));
    const int rank = hello.me.rank;
    auto conn = Conn::start(
        std::move(one.socket),
        [weak = weak_from_this(), rank](Conn& c, const FrameHeader& h, Bytes payload) {
          if (const auto self = weak.lock()) self->frame(rank, c, h, payload);
        },
        [weak = weak_from_this(), rank](Conn& c, int os_code) {
          if (const auto self = weak.lock()) self->closed(rank, c, os_code);
        });
    if (!conn) return;
    of_caller = *conn;
    if (expected_ == 0) {
      ranks_ = hello.ranks;
      roots_ = hello.roots;
      root_ = hello.root;
      first_ = first_rank_of_root(root_, ranks_, roots_);
      last_ = roots_ == 1 ? ranks_ - 1 : first_rank_of_root(root_ + 1, ranks_, roots_) - 1;
      // With several roots, the next root's first rank joins, too: this root's part ends there.
      expected_ = last_ - first_ + 1 + (roots_ > 1 ? 1 : 0);
    }
    if (failure_) {
      Error reported = to_error(*failure_);
      if (reported.code == Errc::timed_out) {
        reported.what =
            fmt::format("the others had given up when rank {} came ({})", rank, reported.what);
      }
      (*conn)->send_now(FrameKind::notice, -1, 0, bytes_of(to_notice(reported)));
      (*conn)->drain();
      late_.insert(rank);
      if (int(callers_.size() + late_.size()) >= expected_) end();  // no other rank will join
      return;
    }
    const auto wrong = [&](std::string why) {
      Error e;
      e.code = Errc::mismatch;
      e.peer = rank;
      e.what = fmt::format("{} joined wrongly ({})", describe(hello.me), why);
      (*conn)->send_now(FrameKind::notice, -1, 0, bytes_of(to_notice(e)));
      (*conn)->drain();
      fail_all(e);
    };
    if (!one.differs.empty()) return wrong(one.differs);
    if (hello.ranks != ranks_ || hello.roots != roots_ || hello.root != root_) {
      return wrong(
          fmt::format("it counts {} ranks and {} ids, others {} and {}; pass the same ids "
                      "in the same order everywhere",
                      hello.ranks, hello.roots, ranks_, roots_));
    }
    if (!mine(rank) && rank != next_of(last_)) return wrong("another root serves it");
    if (callers_.contains(rank)) {
      return wrong(fmt::format(
          "another has joined as rank {} already; give each rank its own number", rank));
    }
    log_info(LogPart::bootstrap, "root: {} has joined, {} of {}", describe(hello.me),
             callers_.size() + 1, expected_);
    if (hello.me.pid == ::getpid() && hello.me.host_hash == host_hash_ && root_rank_ < 0) {
      root_rank_ = rank;
    }
    callers_[rank] = {hello.me, *conn, false, false};
    progress_changed_ = true;
    callers_[rank].conn->send(FrameKind::progress, -1, std::uint64_t(root_), bytes_of(progress()));
    if (int(callers_.size()) != expected_) return;
    send_progress();  // no rank is missing, so the root is not needed to report one
    for (auto& [r, pending] : callers_) {
      if (mine(r)) {
        pending.conn->send(FrameKind::next, -1, 0, bytes_of(callers_.at(next_of(r)).member));
      }
    }
  }

  /// Receives why a rank will not join, which all others get as their error.
  void on_decline(Accepted one) {
    const auto on_frame = [weak = weak_from_this()](Conn& conn, const FrameHeader& h,
                                                    Bytes payload) {
      RootNotice notice;
      const auto self = weak.lock();
      if (self && h.kind == FrameKind::notice && read_into(notice, payload)) {
        self->fail_all(to_error(notice));
      }
      conn.close();
    };
    (void)Conn::start(std::move(one.socket), on_frame, [](Conn&, int) {});
  }

  bool all_came() const { return expected_ != 0 && int(callers_.size()) == expected_; }
  bool mine(int rank) const { return rank >= first_ && rank <= last_; }
  int next_of(int rank) const { return (rank + 1) % ranks_; }

  Progress progress() const {
    Progress p;
    p.joined = int(callers_.size());
    p.expected = expected_;
    p.root_rank = root_rank_;
    constexpr int most = 8;
    const auto look = [&](int r) {
      if (!callers_.contains(r) && p.missing_count < most) p.missing[p.missing_count++] = r;
    };
    for (int r = first_; r <= last_ && p.missing_count < most; ++r) look(r);
    if (roots_ > 1) look(next_of(last_));
    return p;
  }

  void frame(int rank, Conn& conn, const FrameHeader& h, Bytes payload) {
    const auto it = callers_.find(rank);
    if (it == callers_.end() || it->second.conn.get() != &conn) return;
    if (std::string why = wrong_to_root(rank, h, payload); !why.empty()) {
      return conn.reject(std::move(why));
    }
    if (h.kind == FrameKind::formed) {
      it->second.formed = true;
    } else if (h.kind == FrameKind::goodbye) {
      it->second.left = true;
    } else if (h.kind == FrameKind::notice) {
      RootNotice n;
      if (read_into(n, payload)) fail_all(to_error(n));
    }
    release_if_formed();
  }

  void closed(int rank, Conn& conn, int os_code) {
    const auto it = callers_.find(rank);
    if (it == callers_.end() || it->second.conn.get() != &conn || it->second.left) return;
    if (failure_) return;
    const Member& caller = it->second.member;
    const auto report = [&] {
      fail_all(conn.fault().empty()
                   ? lost_error(caller, os_code)
                   : protocol_error(describe(caller), rank, "the root", conn.fault()));
    };
    if (!completes(report)) fail_all(brief_error(Errc::out_of_memory, rank));
  }

  void release_if_formed() {
    if (failure_ || !all_came()) return;
    for (const auto& [r, pending] : callers_) {
      if (!pending.formed) return;
    }
    log_info(LogPart::bootstrap, "root: the ring of {} ranks stands", expected_);
    for (auto& [r, pending] : callers_) {
      pending.conn->send_now(FrameKind::release, -1, 0, {});
      pending.conn->drain();
    }
    end();
  }

  void send_progress() {
    progress_changed_ = false;
    for (auto& [r, pending] : callers_) {
      pending.conn->send(FrameKind::progress, -1, std::uint64_t(root_), bytes_of(progress()));
    }
  }

  bool tick() {
    if (!acceptor_) return false;
    if (progress_changed_ && !failure_) send_progress();
    if (over_.passed() && (failure_ || callers_.empty())) {
      if (!failure_) {
        log_warn(LogPart::bootstrap,
                 "root: no rank has joined within a day; a unique id has become invalid");
      }
      end();
    }
    return bool(acceptor_);
  }

  const Secret secret_;
  std::shared_ptr<Acceptor> acceptor_;
  std::map<int, PendingCaller> callers_;  // by rank
  std::set<int> late_;                    // ranks that joined after the failure
  int ranks_ = 0, roots_ = 0, root_ = 0;
  int first_ = 0, last_ = 0;  // ranks served
  int expected_ = 0;          // ranks that join here; 0: not known, as no rank has joined
  int root_rank_;
  std::uint64_t host_hash_ = host_hash();
  bool progress_changed_ = false;
  std::optional<RootNotice> failure_;
  Deadline over_ = Deadline::after(unused_root_s);
};

}  // namespace

Result<Address> open_root(const Address& where, const Secret& secret, int root_rank) {
  const std::lock_guard lock{Engine::get().mutex()};
  for (const auto& weak : local_roots()) {
    const auto root = weak.lock();
    if (root && root->secret() == secret && !root->ended()) root->make_room();
  }
  return std::make_shared<Root>(secret, root_rank)->open(where);
}

void fail_local_root(const Secret& secret, const Error& error) {
  for (const auto& weak : local_roots()) {
    const auto root = weak.lock();
    if (root && root->secret() == secret && !root->ended()) root->fail_all(error);
  }
}

namespace {
/// Secret of an id of this process's roots. A foreign id fits none of them, so nothing is checked.
Secret secret_of(const UniqueId& id) {
  IdContent content;
  std::memcpy(&content, id.bytes.data(), sizeof content);
  return content.secret;
}
}  // namespace

void fail_roots(std::span<const UniqueId> ids, const Error& error) noexcept {
  const std::lock_guard lock{Engine::get().mutex()};
  for (const UniqueId& id : ids) {
    (void)completes([&] { fail_local_root(secret_of(id), error); });
  }
}

void end_root(const UniqueId& id) noexcept {
  const std::lock_guard lock{Engine::get().mutex()};
  (void)completes([&] {
    for (const auto& weak : local_roots()) {
      const auto root = weak.lock();
      if (root && root->secret() == secret_of(id)) root->end();
    }
  });
}

bool local_root_waits(const Secret& secret) {
  for (const auto& weak : local_roots()) {
    const auto root = weak.lock();
    if (root && root->secret() == secret && !root->ended()) return true;
  }
  return false;
}

}  // namespace ccl::detail::net
