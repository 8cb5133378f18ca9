#include <ccl/bootstrap.hpp>
#include <ccl/host_id.hpp>
#include <ccl/log.hpp>
#include <ccl/settings.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <thread>

#include <net/auth.hpp>
#include <net/conn.hpp>
#include <net/rendezvous.hpp>

namespace ccl {

using namespace net;

namespace {
constexpr std::uint64_t own_tags = std::uint64_t{1} << 63;  // tags of this class, not of its users
constexpr double goodbye_s = 5;
constexpr double last_word_s = 2;  // to tell another root why this rank ends
constexpr auto account_age = std::chrono::milliseconds{200};  // how old an account may be
constexpr double dial_s = 0.2;  // for one rank to answer who asks it directly
}  // namespace

// Everything here is guarded by the engine's mutex, except what `form` sets before anyone else sees
// it. The engine's thread calls `accept`, `frame` and `closed`.
class Bootstrap::Core : public std::enable_shared_from_this<Core> {
 public:
  using Lock = std::unique_lock<std::mutex>;
  enum class Role { next, prev, root, peer };

  Core(int rank, int ranks, const Secret& secret, double deadline_s, Status* status)
      : rank_(rank),
        ranks_(ranks),
        secret_(secret),
        deadline_s_(deadline_s),
        status_(status == nullptr ? &own_status_ : status) {}

  // ---- before the ring stands: called by join and split

  Result<void> open_gate(const Address& where) {
    const Lock lock{mutex()};
    CCL_TRY(gate_, Gate::open(where, secret_, [weak = weak_from_this()](Accepted one) {
              if (const auto self = weak.lock()) self->accept(std::move(one));
            }));
    me_ = this_member(rank_, gate_->address().wire());
    return {};
  }

  Result<void> join_root(const IdContent& id, int root, int roots) {
    if (id.root_rank >= 0) {
      const Lock lock{mutex()};
      root_rank_ = id.root_rank;
    }
    const Hello hello{HelloKind::join, ranks_, roots, root, me_};
    auto fd = auth_connect(Address{id.root}, id.secret, bytes_of(hello), deadline(), status_);
    if (!fd && !status_->ok() && !roots_.empty()) {
      // What this rank has heard from its first root, the second one may learn from nobody else.
      fd = auth_connect(Address{id.root}, id.secret, bytes_of(hello), Deadline::after(last_word_s),
                        nullptr);
    }
    Lock lock{mutex()};
    if (!fd) return failed_at(root_rank_, std::move(fd).error());
    CCL_TRY(auto conn, start(std::move(*fd), Role::root, Member{}));
    roots_.push_back(std::move(conn));
    return status_->result();
  }

  Result<Member> next_from_root() {
    Lock lock{mutex()};
    CCL_CHECK(wait(
        lock, [&] { return next_member_.has_value(); }, "finding the other ranks"));
    return *next_member_;
  }

  Result<void> form_ring(const Member& next) {
    const Hello hello{HelloKind::ring, ranks_, 0, 0, me_};
    CCL_TRY(Fd fd,
            auth_connect(Address{next.listen}, secret_, bytes_of(hello), deadline(), status_));
    Lock lock{mutex()};
    CCL_TRY(next_, start(std::move(fd), Role::next, next));
    CCL_CHECK(wait(
        lock, [&] { return bool(prev_); }, "forming the ring"));
    formed_ = true;
    for (const auto& [header, payload] : std::exchange(early_frames_, {})) {
      header.kind == FrameKind::part ? part(header, payload) : token(header);
    }
    for (const auto& root : roots_) root->send_now(FrameKind::formed, rank_, 0, {});
    return {};
  }

  Result<void> exchange_members() {
    std::vector<Member> members(static_cast<size_t>(ranks_));
    members[size_t(rank_)] = me_;
    CCL_CHECK(all_gather(members.data(), sizeof(Member)));
    set_members(std::move(members));
    return {};
  }

  void set_root_secrets(std::vector<Secret> secrets) {
    root_secrets_ = std::move(secrets);
    missing_by_root_.resize(root_secrets_.size());
  }

  /// After a failure: ranks on their way to this process's root shall hear the reason, not find
  /// nobody there.
  void wait_for_late_ranks() {
    const auto until = Deadline::after(last_word_s / 2);
    for (;;) {
      {
        const Lock lock{mutex()};
        const auto waits = [](const Secret& s) { return local_root_waits(s); };
        if (std::none_of(root_secrets_.begin(), root_secrets_.end(), waits)) return;
      }
      if (until.passed()) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }

  void set_members(std::vector<Member> members) {
    const Lock lock{mutex()};
    members_ = std::move(members);
    for (const Member& m : members_) {
      places_.push_back({m.rank, m.pid, m.host_hash, std::string(m.host, strnlen(m.host, 40))});
    }
  }

  // ---- the communicator's calls

  Result<void> all_gather(void* all, Index bytes_each) {
    if (all == nullptr || bytes_each < 0) {
      return failed(Errc::invalid_argument, "all_gather got no memory or a negative size");
    }
    Lock lock{mutex()};
    CCL_CHECK(usable());
    if (ranks_ == 1 || bytes_each == 0) return {};
    auto* base = static_cast<std::byte*>(all);
    const Bytes mine{base + rank_ * bytes_each, size_t(bytes_each)};
    gather_ = Gather{base, bytes_each, 0, std::vector<bool>(size_t(ranks_))};
    if (forward_steps() > 0) next_->send(FrameKind::part, rank_, gathers_, mine);
    if (backward_steps() > 0) prev_->send(FrameKind::part, rank_, gathers_, mine);
    const auto early = early_parts_.find(gathers_);
    if (early != early_parts_.end()) {
      for (const auto& [owner, bytes] : early->second) take_part(owner, bytes);
      early_parts_.erase(early);
    }
    auto done = wait(
        lock, [&] { return gather_->count == ranks_ - 1; }, "all_gather",
        [&] { return missing_parts(); });
    gather_.reset();
    ++gathers_;
    return done;
  }

  Result<void> send(int peer, std::uint64_t tag, const void* data, Index bytes) {
    const Bytes payload{static_cast<const std::byte*>(data), size_t(bytes)};
    Lock lock{mutex()};
    CCL_CHECK(usable());
    if (peer == rank_) {
      inbox_[{peer, tag}].emplace_back(payload.begin(), payload.end());
      return {};
    }
    auto& out = out_[peer];  // one connection per peer for ever: messages stay in order
    if (!out || !out->is_open()) {
      const auto incoming = in_.find(peer);
      if (peer == next_peer() && next_->is_open()) {
        out = next_;
      } else if (peer == prev_peer() && prev_->is_open()) {
        out = prev_;
      } else if (incoming != in_.end() && incoming->second->is_open()) {
        out = incoming->second;
      } else {
        const Member& to = members_[size_t(peer)];
        const Hello hello{HelloKind::peer, ranks_, 0, 0, me_};
        lock.unlock();
        auto fd = auth_connect(Address{to.listen}, secret_, bytes_of(hello), deadline(), status_);
        lock.lock();
        CCL_CHECK(usable());
        if (!fd) return failed_at(peer, std::move(fd).error());
        CCL_TRY(out, start(std::move(*fd), Role::peer, to));
      }
    }
    out->send(FrameKind::message, rank_, tag, payload);
    return {};
  }

  Result<std::vector<std::byte>> recv(int peer, std::uint64_t tag) {
    Lock lock{mutex()};
    const std::pair key{peer, tag};
    const auto arrived = [&] { return inbox_.contains(key); };
    CCL_CHECK(wait(lock, arrived, "recv", [&] { return std::vector{peer}; }));
    const auto it = inbox_.find(key);
    auto message = std::move(it->second.front());
    it->second.pop_front();
    if (it->second.empty()) inbox_.erase(it);
    return message;
  }

  // Twice around the ring: "everybody is here", which rank 0 starts, then "all know".
  Result<void> barrier() {
    Lock lock{mutex()};
    CCL_CHECK(usable());
    if (ranks_ == 1) return {};
    const std::uint64_t number = ++barriers_;
    if (rank_ == 0 || first_token_ == number) next_->send(FrameKind::token, 0, number, {});
    return wait(
        lock, [&] { return second_token_ == number; }, "barrier",
        [&] { return std::vector{prev_peer()}; });
  }

  void abort(const Error& error) {
    const Lock lock{mutex()};
    if (failure_ || finalized_) return;
    Error told;
    told.code = Errc::aborted;
    told.peer = rank_;
    told.os_code = error.os_code;
    told.what = fmt::format("{} aborted ({})", describe(me_), error.what);
    if (error.code == Errc::timed_out && error.peer >= 0) {  // who is at fault is known
      told = error;
      told.what += fmt::format(" [found by rank {}]", rank_);
    }
    spread(told);
    settle(error);
  }

  Result<void> finalize() {
    if (finalized_) return {};
    if (ranks_ > 1) CCL_CHECK(barrier());
    Lock lock{mutex()};
    CCL_CHECK(usable());
    leaving_ = true;
    for_each_conn([&](Conn& c) { c.send_now(FrameKind::goodbye, rank_, 0, {}); });
    // Whoever leaves first waits for nobody else than its neighbours, who are past the barrier too.
    const auto heard = [](const auto& c) { return !c || c->said_goodbye() || !c->is_open(); };
    const auto until = Deadline::after(goodbye_s);
    while (!(heard(next_) && heard(prev_)) && !until.passed() && !failure_) {
      changed_.wait_for(lock, std::chrono::milliseconds(50));
    }
    close_all();
    finalized_ = true;
    return {};
  }

  /// The destructor's part.
  void leave() {
    const Lock lock{mutex()};
    if (finalized_) return;
    if (!failure_ && ranks_ > 1) {
      Error e;
      e.code = Errc::aborted;
      e.peer = rank_;
      e.what = fmt::format("{} left without finalize (it gave up or was destroyed early)",
                           describe(me_));
      spread(e);
    }
    leaving_ = true;
    speak_ = {};
    close_all();
    finalized_ = true;
  }

  void set_account(std::function<std::vector<std::byte>()> account) {
    const Lock lock{mutex()};
    speak_ = std::move(account);
  }

  std::vector<std::vector<std::byte>> accounts(double limit_s) {
    Lock lock{mutex()};
    const auto begin = Clock::now();
    const auto until = Deadline::after(limit_s), dial = Deadline::after(limit_s / 4);
    const bool had_failed = failure_.has_value();
    std::set<int> missing;
    for (int r = 0; r < ranks_; ++r) {
      if (r != rank_) missing.insert(missing.end(), r);
    }
    const auto look = [&] {
      std::erase_if(missing, [&](int r) {
        const auto it = accounts_.find(r);
        return it != accounts_.end() && it->second.at >= begin - account_age;
      });
      return missing.empty() || until.passed() || leaving_ || failure_.has_value() != had_failed;
    };
    speak();
    while (!look() && !dial.passed()) changed_.wait_for(lock, std::chrono::milliseconds(10));
    // A stopped rank cuts the ways through it: ask those behind it directly.
    for (int d = 1; d < ranks_ && !look(); ++d) {
      const int peer = (rank_ + d) % ranks_;
      if (missing.contains(peer)) ask(lock, peer);
    }
    while (!look()) changed_.wait_for(lock, std::chrono::milliseconds(10));
    std::vector<std::vector<std::byte>> out(static_cast<size_t>(ranks_));
    for (const auto& [r, account] : accounts_) {
      if (!missing.contains(r)) out[size_t(r)] = account.text;
    }
    if (speak_) out[size_t(rank_)] = speak_();
    return out;
  }

  /// This rank cannot go on while the ring forms: the others hear why.
  Error give_up(Error error) {
    const Lock lock{mutex()};
    complete(error);
    if (!failure_) {
      spread(error);
      settle(error);
    }
    return error;
  }

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  const Secret& secret() const { return secret_; }
  Status& status() const { return *status_; }
  /// Where a child may listen: this rank's address, any port.
  Address listening_at() const {
    Address a{me_.listen};
    a.set_port(0);
    return a;
  }
  void set_joined() {
    const Lock lock{mutex()};
    joined_ = true;
  }
  void set_forming_child(const std::shared_ptr<Core>& child) {
    const Lock lock{mutex()};
    forming_child_ = child;
    if (child && failure_) child->hear(*failure_);
  }
  const Member& me() const { return me_; }
  const RankPlace& place(int rank) const { return places_[size_t(rank)]; }
  Result<void> failed(Errc code, std::string what) const {
    Error e;
    e.code = code;
    e.what = std::move(what);
    complete(e);
    return fail(std::move(e));
  }
  std::uint64_t next_tag() { return own_tags | internal_calls_++; }

 private:
  struct Account {
    Clock::time_point at;      // when it came
    std::uint64_t number = 0;  // of that rank's accounts
    std::vector<std::byte> text;
  };
  struct Gather {
    std::byte* base;
    Index bytes_each;
    int count;  // of parts that have come
    std::vector<bool> here;
  };

  static std::mutex& mutex() { return Engine::get().mutex(); }
  Deadline deadline() const { return Deadline::after(deadline_s_); }
  int next_peer() const { return (rank_ + 1) % ranks_; }
  int prev_peer() const { return (rank_ + ranks_ - 1) % ranks_; }
  int forward_steps() const { return ranks_ / 2; }
  int backward_steps() const { return (ranks_ - 1) / 2; }

  void complete(Error& e) const {
    if (e.rank < 0) e.rank = rank_;
    if (e.host.empty()) e.host = host_name();
  }

  Result<void> usable() const {
    CCL_CHECK(status_->result());
    if (finalized_ || leaving_) {
      return failed(Errc::invalid_usage,
                    "the bootstrap was used after finalize (create a new communicator)");
    }
    return {};
  }

  Result<void> failed_at(int peer, Error e) const {
    e.peer = peer;
    complete(e);
    return fail(std::move(e));
  }

  Result<std::shared_ptr<Conn>> start(Fd fd, Role role, const Member& peer) {
    auto conn = Conn::start(
        std::move(fd),
        [weak = weak_from_this()](Conn&, const FrameHeader& h, Bytes payload) {
          if (const auto self = weak.lock()) self->frame(h, payload);
        },
        [weak = weak_from_this(), role, peer](Conn& c, int os_code) {
          if (const auto self = weak.lock()) self->closed(c, role, peer, os_code);
        });
    if (conn && failure_) {  // the other end has not heard yet
      (*conn)->send_now(FrameKind::notice, rank_, 0, bytes_of(to_notice(*failure_)));
    }
    return conn;
  }

  void accept(Accepted one) {
    Hello hello;
    if (!read_into(hello, one.hello) || hello.kind == HelloKind::join || hello.ranks != ranks_ ||
        hello.me.rank < 0 || hello.me.rank >= ranks_ ||
        (hello.kind == HelloKind::ring && hello.me.rank != prev_peer())) {
      log_warn(LogPart::bootstrap, "refused a connection from {} (it fits no rank of this job)",
               one.from.to_string());
      return;
    }
    const bool ring = hello.kind == HelloKind::ring;
    auto conn = start(std::move(one.fd), ring ? Role::prev : Role::peer, hello.me);
    if (!conn) return;
    if (failure_) {
      (*conn)->drain();
    } else if (leaving_) {
      (*conn)->send_now(FrameKind::goodbye, rank_, 0, {});
      (*conn)->drain();
    } else if (ring) {
      prev_ = std::move(*conn);
    } else {
      in_[hello.me.rank] = *conn;
      accepted_.push_back(std::move(*conn));
    }
    changed_.notify_all();
  }

  void frame(const FrameHeader& h, Bytes payload) {
    switch (h.kind) {
      case FrameKind::message:
        inbox_[{h.rank, h.tag}].emplace_back(payload.begin(), payload.end());
        changed_.notify_all();
        break;
      case FrameKind::part:
      case FrameKind::token:
        if (!next_ || !prev_) {  // a neighbour is ahead of us
          early_frames_.emplace_back(h, std::vector(payload.begin(), payload.end()));
        } else {
          h.kind == FrameKind::part ? part(h, payload) : token(h);
        }
        break;
      case FrameKind::next: {
        Member m;
        if (read_into(m, payload)) next_member_ = m;
        ++progress_;
        changed_.notify_all();
        break;
      }
      case FrameKind::progress: {
        Progress p;
        if (!read_into(p, payload)) break;
        if (p.root_rank >= 0) root_rank_ = p.root_rank;
        // Another root knows about other ranks.
        const int count = std::clamp(p.missing_count, 0, 8);
        if (h.tag < missing_by_root_.size()) {
          missing_by_root_[h.tag].assign(p.missing, p.missing + count);
        }
        missing_.clear();
        for (const auto& m : missing_by_root_) missing_.insert(m.begin(), m.end());
        ++progress_;
        break;
      }
      case FrameKind::release:
        released_ = true;
        break;
      case FrameKind::notice: {
        Notice n;
        if (read_into(n, payload)) hear(to_error(n));
        break;
      }
      case FrameKind::goodbye:
        changed_.notify_all();
        break;
      case FrameKind::account:
        account(h, payload);
        break;
      case FrameKind::formed:
        break;
    }
  }

  // Accounts flood: each travels on over every connection when it comes first, and whoever hears
  // one gives its own. A rank speaks at most once in `account_age`, however many ask.
  void account(const FrameHeader& h, Bytes payload) {
    if (h.rank < 0 || h.rank >= ranks_ || h.rank == rank_) return;
    Account& known = accounts_[h.rank];
    if (h.tag <= known.number) return;
    known = {Clock::now(), h.tag, std::vector(payload.begin(), payload.end())};
    for_each_conn([&](Conn& c) { c.send_now(FrameKind::account, h.rank, h.tag, payload); });
    speak();
    changed_.notify_all();
  }
  void speak() {
    if (!speak_ || Clock::now() - spoke_at_ < account_age) return;
    spoke_at_ = Clock::now();
    const auto text = speak_();
    ++own_accounts_;
    for_each_conn([&](Conn& c) { c.send_now(FrameKind::account, rank_, own_accounts_, text); });
  }
  void ask(Lock& lock, int peer) {
    const Member to = members_[size_t(peer)];
    const Hello hello{HelloKind::peer, ranks_, 0, 0, me_};
    lock.unlock();
    auto fd = auth_connect(Address{to.listen}, secret_, bytes_of(hello), Deadline::after(dial_s),
                           nullptr);
    lock.lock();
    if (!fd || leaving_) return;
    auto conn = start(std::move(*fd), Role::peer, to);
    if (!conn || !speak_) return;
    (*conn)->send_now(FrameKind::account, rank_, ++own_accounts_, speak_());
    dialed_.push_back(std::move(*conn));
  }

  // Parts travel on at once, whether this rank has called all_gather yet or not.
  void part(const FrameHeader& h, Bytes payload) {
    const int owner = h.rank;
    if (owner < 0 || owner >= ranks_ || owner == rank_ || h.tag < gathers_) return;
    ++progress_;
    const int behind = (rank_ - owner + ranks_) % ranks_;
    const int ahead = (owner - rank_ + ranks_) % ranks_;
    const bool forward = behind <= forward_steps();  // else it came backward
    if (forward && behind < forward_steps()) next_->send(h.kind, owner, h.tag, payload);
    if (!forward && ahead < backward_steps()) prev_->send(h.kind, owner, h.tag, payload);
    if (gather_ && h.tag == gathers_) {
      take_part(owner, payload);
    } else {
      early_parts_[h.tag].emplace_back(owner, std::vector(payload.begin(), payload.end()));
    }
  }

  void take_part(int owner, Bytes payload) {
    if (Index(payload.size()) != gather_->bytes_each) {
      Error e;
      e.code = Errc::mismatch;
      e.peer = owner;
      e.what =
          fmt::format("rank {} gave {} bytes to all_gather, rank {} {}; all must give the same",
                      owner, payload.size(), rank_, gather_->bytes_each);
      spread(e);
      settle(std::move(e));
      return;
    }
    if (gather_->here[size_t(owner)]) return;
    gather_->here[size_t(owner)] = true;
    std::memcpy(gather_->base + owner * gather_->bytes_each, payload.data(), payload.size());
    if (++gather_->count == ranks_ - 1) changed_.notify_all();
  }

  std::vector<int> missing_parts() const {
    std::vector<int> out;
    for (int r = 0; r < ranks_; ++r) {
      if (r != rank_ && !gather_->here[size_t(r)]) out.push_back(r);
    }
    return out;
  }

  void token(const FrameHeader& h) {
    ++progress_;
    if (h.rank == 0) {
      first_token_ = h.tag;
      if (rank_ == 0) {
        second_token_ = h.tag;
        next_->send(FrameKind::token, 1, h.tag, {});
      } else if (barriers_ == h.tag) {
        next_->send(FrameKind::token, 0, h.tag, {});
      }
    } else if (rank_ != 0) {
      second_token_ = h.tag;
      if (next_peer() != 0) next_->send(FrameKind::token, 1, h.tag, {});
    }
    changed_.notify_all();
  }

  void closed(Conn& conn, Role role, const Member& peer, int os_code) {
    changed_.notify_all();
    if (failure_ || leaving_ || conn.said_goodbye()) return;
    if (role == Role::root) {
      if (released_ || formed_) return;  // from here on the ring watches
      Error e;
      e.code = Errc::peer_lost;
      e.peer = root_rank_;
      e.os_code = os_code;
      e.what = root_rank_ >= 0
                   ? fmt::format(
                         "rank {} is gone, and with it the root of the ranks' meeting; see "
                         "its own output",
                         root_rank_)
                   : std::string{
                         "the process that made the unique id is gone before all ranks had "
                         "joined; keep it alive"};
      return hear(std::move(e));
    }
    hear(lost_error(peer, os_code));
  }

  // Tells everybody once, then this rank: who acts on the status and exits must have told first.
  void hear(Error error) {
    if (failure_ || leaving_) return;
    spread(error);
    settle(std::move(error));
  }

  void spread(const Error& error) {
    const Notice notice = to_notice(error);
    for_each_conn([&](Conn& c) { c.send_now(FrameKind::notice, rank_, 0, bytes_of(notice)); });
    // Not through its connection: this process may end before its root reads that.
    for (const Secret& secret : root_secrets_) fail_local_root(secret, error);
  }

  void settle(Error error) {
    complete(error);
    const LogRank in_log{rank_};
    log_info(LogPart::bootstrap, "{}", error.message());
    failure_ = error;
    if (const auto child = forming_child_.lock()) child->hear(error);
    status_->set(std::move(error));
    changed_.notify_all();
  }

  template <class F>
  void for_each_conn(F f) {
    for (const auto& c : {next_, prev_}) {
      if (c) f(*c);
    }
    for (const auto& c : roots_) f(*c);
    for (const auto& c : accepted_) f(*c);
    for (const auto& c : dialed_) f(*c);
    for (const auto& [peer, c] : out_) {
      if (c && c != next_ && c != prev_ &&
          std::find(accepted_.begin(), accepted_.end(), c) == accepted_.end()) {
        f(*c);
      }
    }
  }

  void close_all() {
    for_each_conn([](Conn& c) { c.drain(); });
    if (gate_) gate_->close();
  }

  // Ends when `done`, on failure, or when nothing has moved for deadline_s.
  template <class Done>
  Result<void> wait(Lock& lock, Done done, const char* what) {
    return wait(lock, done, what, [] { return std::vector<int>{}; });
  }
  template <class Done, class Missing>
  Result<void> wait(Lock& lock, Done done, const char* what, Missing missing) {
    // While ranks meet, those who know who is missing shall be the first to say so.
    const auto deadline = [&] {
      return Deadline::after(joined_ || !missing_.empty() ? deadline_s_ : 1.5 * deadline_s_);
    };
    auto until = deadline();
    auto seen = progress_;
    for (;;) {
      CCL_CHECK(status_->result());
      if (done()) return {};
      CCL_CHECK(usable());
      if (seen != progress_) {
        seen = progress_;
        until = deadline();
      }
      if (until.passed()) {
        const std::vector<int> late =
            missing_.empty() ? missing() : std::vector(missing_.begin(), missing_.end());
        Error e;
        e.code = Errc::timed_out;
        e.peer = late.empty() ? -1 : late.front();
        e.what = fmt::format("no progress for {} s in {} ({})", deadline_s_, what, say_late(late));
        complete(e);
        return fail(std::move(e));
      }
      changed_.wait_for(lock, std::chrono::milliseconds(50));
    }
  }

  static std::string say_late(const std::vector<int>& late) {
    if (late.empty()) return "somebody is late; CCL_INIT_TIMEOUT sets the limit";
    std::string list;
    for (size_t i = 0; i < std::min<size_t>(late.size(), 8); ++i)
      list += fmt::format(" {}", late[i]);
    return fmt::format("nothing from rank{}{}{}; start them, or raise CCL_INIT_TIMEOUT",
                       late.size() > 1 ? "s" : "", list, late.size() >= 8 ? " ..." : "");
  }

  const int rank_, ranks_;
  const Secret secret_;
  const double deadline_s_;
  Status own_status_;
  Status* const status_;
  Member me_;
  std::vector<Member> members_;
  std::vector<RankPlace> places_;

  std::shared_ptr<Gate> gate_;
  std::shared_ptr<Conn> next_, prev_;
  std::vector<Secret> root_secrets_;             // of all roots; some may live in this process
  std::vector<std::shared_ptr<Conn>> roots_;     // until all ranks stand in the ring
  std::vector<std::shared_ptr<Conn>> accepted_;  // from peers
  std::map<int, std::shared_ptr<Conn>> in_;      // the latest of accepted_, by peer
  std::map<int, std::shared_ptr<Conn>> out_;     // for messages to a peer
  std::vector<std::shared_ptr<Conn>> dialed_;    // to ask for accounts

  std::condition_variable changed_;
  std::uint64_t progress_ = 0;  // counts whatever shows that others are alive and moving
  std::vector<std::vector<int>> missing_by_root_;  // ranks that have not joined it, as it has said
  std::set<int> missing_;                          // of all roots
  std::optional<Member> next_member_;
  int root_rank_ = -1;
  bool formed_ = false, released_ = false, joined_ = false;
  std::optional<Error> failure_;
  bool leaving_ = false, finalized_ = false;

  std::map<std::pair<int, std::uint64_t>, std::deque<std::vector<std::byte>>> inbox_;
  std::optional<Gather> gather_;
  std::uint64_t gathers_ = 0;  // calls that have ended
  std::map<std::uint64_t, std::vector<std::pair<int, std::vector<std::byte>>>> early_parts_;
  std::vector<std::pair<FrameHeader, std::vector<std::byte>>>
      early_frames_;                   // before the ring stood
  std::weak_ptr<Core> forming_child_;  // of a split that not all ranks have left yet
  std::uint64_t barriers_ = 0;         // calls that have begun
  std::uint64_t first_token_ = 0, second_token_ = 0;
  std::uint64_t internal_calls_ = 0;

  std::function<std::vector<std::byte>()> speak_;
  std::map<int, Account> accounts_;
  std::uint64_t own_accounts_ = 0;
  Clock::time_point spoke_at_{};
};

Bootstrap::Bootstrap(std::shared_ptr<Core> core) : core_(std::move(core)) {}
Bootstrap::~Bootstrap() {
  core_->leave();
}

namespace {

Result<double> deadline_of(const BootstrapOptions& options) {
  if (options.deadline_s > 0) return options.deadline_s;
  CCL_TRY(const double s, setting_seconds("INIT_TIMEOUT"));
  return s == 0 ? 1e8 : s;
}

}  // namespace

Result<std::unique_ptr<Bootstrap>> Bootstrap::join(std::span<const UniqueId> ids, int rank,
                                                   int ranks, const Options& options) {
  const LogRank in_log{rank};
  CCL_CHECK(check_settings());
  if (ranks < 1 || rank < 0 || rank >= ranks) {
    return fail(Errc::invalid_argument,
                fmt::format("rank {} of {} makes no sense (0 <= rank < ranks)", rank, ranks));
  }
  if (ranks > 1 && (ids.empty() || Index(ids.size()) > ranks)) {
    return fail(Errc::invalid_argument,
                fmt::format("{} ids for {} ranks (at least one id, at most one per rank)",
                            ids.size(), ranks));
  }
  CCL_TRY(const double deadline_s, deadline_of(options));
  std::vector<IdContent> roots;
  if (ranks == 1) {  // meets nobody
    roots.emplace_back();
    fill_random(roots[0].secret);
  } else {
    for (const UniqueId& id : ids) {
      CCL_TRY(const IdContent content, unpack(id));
      roots.push_back(content);
    }
  }
  // One secret for all, that of the first id: every rank has it.
  auto core = std::make_shared<Core>(rank, ranks, roots[0].secret, deadline_s, options.status);
  std::unique_ptr<Bootstrap> out{new Bootstrap(core)};
  std::vector<Secret> root_secrets;
  for (const IdContent& root : roots) root_secrets.push_back(root.secret);
  core->set_root_secrets(std::move(root_secrets));
  const auto form = [&]() -> Result<void> {
    if (ranks == 1) {
      core->set_members({this_member(0, {})});
      return {};
    }
    const int count = int(roots.size());
    const int mine = root_of_rank(rank, ranks, count);
    CCL_TRY(const Address where, local_address_towards(Address{roots[size_t(mine)].root}));
    CCL_CHECK(core->open_gate(where));
    CCL_CHECK(core->join_root(roots[size_t(mine)], mine, count));
    if (count > 1 && rank == first_rank_of_root(mine, ranks, count)) {
      const int before = (mine + count - 1) % count;
      CCL_CHECK(core->join_root(roots[size_t(before)], before, count));
    }
    CCL_TRY(const Member next, core->next_from_root());
    CCL_CHECK(core->form_ring(next));
    return core->exchange_members();
  };
  if (const auto formed = form(); !formed) {
    Error error = core->give_up(formed.error());
    core->wait_for_late_ranks();
    return fail(std::move(error));
  }
  core->set_joined();
  log_info(LogPart::bootstrap, "{} of {} has joined", describe(core->me()), ranks);
  return out;
}

int Bootstrap::rank() const {
  return core_->rank();
}
int Bootstrap::ranks() const {
  return core_->ranks();
}
Status& Bootstrap::status() const {
  return core_->status();
}
std::array<std::byte, 16> Bootstrap::secret() const {
  return core_->secret();
}
const RankPlace& Bootstrap::place(int rank) const {
  return core_->place(rank);
}

Result<void> Bootstrap::all_gather(void* all, Index bytes_each) {
  return core_->all_gather(all, bytes_each);
}

Result<void> Bootstrap::all_gather_hosts(void* all, Index bytes_each) {
  const int me = rank();
  // Hosts in the order of their first ranks, who speak for them.
  std::vector<std::vector<int>> hosts;
  size_t my_host = 0;
  for (int r = 0; r < ranks(); ++r) {
    const auto same = [&](const auto& h) { return place(h[0]).host_hash == place(r).host_hash; };
    const auto it = std::find_if(hosts.begin(), hosts.end(), same);
    const size_t index = size_t(it - hosts.begin());
    if (it == hosts.end()) hosts.emplace_back();
    hosts[index].push_back(r);
    if (r == me) my_host = index;
  }
  if (hosts.size() == 1 || int(hosts.size()) == ranks()) return all_gather(all, bytes_each);
  if (all == nullptr || bytes_each < 0) return all_gather(all, bytes_each);  // its error
  auto* base = static_cast<std::byte*>(all);
  const std::uint64_t tag = core_->next_tag();
  const auto expect = [&](int peer, Index bytes) -> Result<std::vector<std::byte>> {
    CCL_TRY(auto message, core_->recv(peer, tag));
    if (Index(message.size()) != bytes) {
      const auto e =
          core_->failed(Errc::mismatch,
                        fmt::format("rank {} gave {} bytes to all_gather_hosts where {} were due; "
                                    "all must give the same",
                                    peer, message.size(), bytes));
      return fail(e.error());
    }
    return message;
  };
  const int leader = hosts[my_host][0];
  const Index whole = bytes_each * ranks();
  if (me != leader) {
    CCL_CHECK(core_->send(leader, tag, base + me * bytes_each, bytes_each));
    CCL_TRY(const auto message, expect(leader, whole));
    std::memcpy(base, message.data(), size_t(whole));
    return {};
  }
  for (const int r : hosts[my_host]) {
    if (r == me) continue;
    CCL_TRY(const auto message, expect(r, bytes_each));
    std::memcpy(base + r * bytes_each, message.data(), size_t(bytes_each));
  }
  // Around the ring of leaders, both ways: first what is mine, then what the last step brought.
  const int count = int(hosts.size());
  const auto at = [&](int offset) -> const std::vector<int>& {
    return hosts[size_t(((int(my_host) + offset) % count + count) % count)];
  };
  const auto send_host = [&](int to, const std::vector<int>& ranks_of) -> Result<void> {
    std::vector<std::byte> message;
    for (const int r : ranks_of) {
      message.insert(message.end(), base + r * bytes_each, base + (r + 1) * bytes_each);
    }
    return core_->send(to, tag, message.data(), Index(message.size()));
  };
  const auto recv_host = [&](int from, const std::vector<int>& ranks_of) -> Result<void> {
    CCL_TRY(const auto message, expect(from, bytes_each * Index(ranks_of.size())));
    for (size_t i = 0; i < ranks_of.size(); ++i) {
      std::memcpy(base + ranks_of[i] * bytes_each, message.data() + Index(i) * bytes_each,
                  size_t(bytes_each));
    }
    return {};
  };
  for (int step = 1; step <= count / 2; ++step) {
    const bool back = step <= (count - 1) / 2;
    CCL_CHECK(send_host(at(1)[0], at(1 - step)));
    if (back) CCL_CHECK(send_host(at(-1)[0], at(step - 1)));
    CCL_CHECK(recv_host(at(-1)[0], at(-step)));
    if (back) CCL_CHECK(recv_host(at(1)[0], at(step)));
  }
  for (const int r : hosts[my_host]) {
    if (r != me) CCL_CHECK(core_->send(r, tag, base, whole));
  }
  return {};
}

Result<void> Bootstrap::send(int peer, std::uint64_t tag, const void* data, Index bytes) {
  if (peer < 0 || peer >= ranks() || bytes < 0 || (data == nullptr && bytes != 0) ||
      (tag & own_tags) != 0) {
    return core_->failed(
        Errc::invalid_argument,
        fmt::format("send to rank {} of {} with {} bytes and tag {} makes no sense", peer, ranks(),
                    bytes, tag));
  }
  return core_->send(peer, tag, data, bytes);
}

Result<std::vector<std::byte>> Bootstrap::recv(int peer, std::uint64_t tag) {
  if (peer < 0 || peer >= ranks() || (tag & own_tags) != 0) {
    const auto e = core_->failed(
        Errc::invalid_argument,
        fmt::format("recv from rank {} of {} with tag {} makes no sense", peer, ranks(), tag));
    return fail(e.error());
  }
  return core_->recv(peer, tag);
}

Result<void> Bootstrap::barrier() {
  return core_->barrier();
}

Result<std::unique_ptr<Bootstrap>> Bootstrap::split(int color, int key, const Options& options) {
  CCL_TRY(const double deadline_s, deadline_of(options));
  struct Part {
    std::int32_t color, key;
    std::array<std::byte, 16> random;
  };
  std::vector<Part> parts(static_cast<size_t>(ranks()));
  Part& mine = parts[size_t(rank())];
  mine = {color, key, {}};
  fill_random(mine.random);
  CCL_CHECK(all_gather(parts.data(), sizeof(Part)));
  std::vector<int> group;  // ranks of the parent, in the child's order
  for (int r = 0; r < ranks(); ++r) {
    if (parts[size_t(r)].color == color) group.push_back(r);
  }
  std::stable_sort(group.begin(), group.end(),
                   [&](int a, int b) { return parts[size_t(a)].key < parts[size_t(b)].key; });
  const int child_ranks = color < 0 ? 1 : int(group.size());
  const int child_rank =
      color < 0 ? 0 : int(std::find(group.begin(), group.end(), rank()) - group.begin());
  // What only the parent's ranks know, and what no earlier split had.
  std::vector<std::byte> text;
  for (const int r : group) {
    text.insert(text.end(), parts[size_t(r)].random.begin(), parts[size_t(r)].random.end());
  }
  const auto parent_secret = secret();
  const Digest digest = hmac_sha256(parent_secret, text);
  Secret child_secret;
  std::memcpy(child_secret.data(), digest.data(), child_secret.size());

  auto core =
      std::make_shared<Core>(child_rank, child_ranks, child_secret, deadline_s, options.status);
  std::unique_ptr<Bootstrap> out{new Bootstrap(core)};
  std::vector<Member> members(static_cast<size_t>(ranks()));
  const auto form = [&]() -> Result<void> {
    Member& me = members[size_t(rank())];
    if (child_ranks > 1) {
      CCL_CHECK(core->open_gate(core_->listening_at()));
      me = core->me();
    } else {
      me = this_member(child_rank, {});
    }
    // Everybody listens before anybody calls.
    CCL_CHECK(all_gather(members.data(), sizeof(Member)));
    std::vector<Member> table;
    for (const int r : group) table.push_back(members[size_t(r)]);
    if (child_ranks == 1) {
      core->set_members({me});
    } else {
      const Member next = table[size_t((child_rank + 1) % child_ranks)];
      core->set_members(std::move(table));
      CCL_CHECK(core->form_ring(next));
    }
    return {};
  };
  // While some still form their rings, the parent's ring watches over all of them.
  core_->set_forming_child(core);
  auto formed = form();
  if (formed) formed = barrier();
  core_->set_forming_child({});
  if (!formed) {
    core->give_up(formed.error());
    return fail(core_->give_up(formed.error()));
  }
  if (color < 0) {
    CCL_CHECK(out->finalize());
    return std::unique_ptr<Bootstrap>{};
  }
  return out;
}

void Bootstrap::set_account(std::function<std::vector<std::byte>()> account) {
  core_->set_account(std::move(account));
}
std::vector<std::vector<std::byte>> Bootstrap::accounts(double limit_s) {
  return core_->accounts(limit_s);
}
void Bootstrap::abort(const Error& error) {
  core_->abort(error);
}
Result<void> Bootstrap::finalize() {
  return core_->finalize();
}

}  // namespace ccl
