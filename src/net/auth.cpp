#include "net/auth.hpp"

#include <ccl/comm/log.hpp>

#include <fmt/format.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "base/exceptions.hpp"
#include "base/io/os_error.hpp"
#include "net/callers.hpp"
#include <poll.h>
#include <sys/epoll.h>

namespace ccl::detail::net {
namespace {

constexpr double pending_caller_timeout_s = 5;  // for a whole handshake
constexpr size_t max_waiting = 4096;            // authenticated, in the queue of one listener

bool caller_waits(int listener) {
  pollfd p{listener, POLLIN, 0};
  return ::poll(&p, 1, 0) > 0;
}

}  // namespace

// Caller that is not authenticated yet.
class Acceptor::PendingCaller : public Handler {
 public:
  PendingCaller(Acceptor& acceptor, Fd fd, const Address& from)
      : acceptor_(acceptor.weak_from_this()), fd_(std::move(fd)), from_(from) {
    greeting_.terms = acceptor.terms_;
  }
  ~PendingCaller() override { leave_place(); }

  /// False if too many callers are there, so that this one must come again.
  bool take_place(const Acceptor& acceptor) {
    place_ = CallerTable::get().admit(from_, &acceptor, Clock::now(), [this] { evict(); });
    if (!place_) send_busy(fd_.get());
    return place_.has_value();
  }

  Result<void> greet(const Secret& secret) {
    fill_random(greeting_.nonce);
    share_ = handshake_share(secret, greeting_.terms.mode, greeting_.nonce);
    greeting_.share = share_.share;
    if (::send(fd_.get(), &greeting_, sizeof greeting_, MSG_NOSIGNAL | MSG_DONTWAIT) !=
        sizeof greeting_) {
      return fail(system_error("cannot greet", errno));
    }
    return {};
  }
  int fd() const override { return fd_.get(); }
  void forget() override {
    leave_place();
    fd_.reset();
  }
  void broke(int) override { leave(); }
  bool gone() const { return !fd_; }
  bool late() const { return deadline_.passed(); }

  void ready(std::uint32_t) override {
    for (;;) {
      // It reads the claim and no more. The following bytes belong to the connection's next owner.
      const size_t want = wanted();
      if (in_.size() == want) return finish();
      const size_t had = in_.size();
      in_.resize(want);
      const auto n = ::recv(fd_.get(), in_.data() + had, want - had, MSG_DONTWAIT);
      const int code = errno;
      in_.resize(had + size_t(std::max<ssize_t>(n, 0)));
      if (n == 0) return refuse(had == 0 ? "it closed without a word" : "it closed half-way");
      if (n < 0) {
        if (code == EAGAIN || code == EINTR) return;
        return refuse(std::strerror(code));
      }
      if (!fits()) return;
    }
  }

  void refuse(std::string_view why) {
    // A port scan must not fill the log.
    const unsigned refused = ++refused_callers().number;
    refused_callers().why = fmt::format("{}: {}", from_.to_string(), why);
    const bool loud = refused <= 20 || std::has_single_bit(refused);
    log(loud ? LogLevel::warn : LogLevel::info, LogPart::bootstrap,
        "refused a connection from {} ({}); not one of this job's ranks{}", from_.to_string(), why,
        refused < 20 || !loud ? "" : fmt::format(" ({} so far; not all are logged)", refused));
    leave();
  }
  void leave() {
    Engine::get().remove(*this);
    leave_place();
    fd_.reset();
  }

 private:
  /// Makes room for another caller. One of this job's ranks comes again.
  void evict() {
    send_busy(fd_.get());
    refuse("too many callers are there and it was slow");
  }
  void leave_place() {
    if (place_) CallerTable::get().leave(*std::exchange(place_, {}));
  }
  Claim claim() const {
    Claim c;
    std::memcpy(&c, in_.data(), sizeof c);
    return c;
  }
  /// Checks what has arrived of the claim. Returns false if the caller is gone after that.
  bool fits() {
    const size_t known = std::min(in_.size(), handshake_magic.size());
    if (std::memcmp(in_.data(), handshake_magic.data(), known) != 0) {
      const bool other = known == handshake_magic.size() && std::memcmp(in_.data(), "ccl", 3) == 0;
      refuse(other ? "it is of another version of ccl" : "it does not speak ccl");
    } else if (in_.size() < sizeof(Claim)) {
      if (known == handshake_magic.size() && place_) (*place_)->has_spoken = true;
      return true;
    } else if (claim().terms.mode != greeting_.terms.mode) {
      refuse(differing_modes(greeting_.terms.mode, claim().terms.mode));
    } else if (claim().hello_bytes == Claim::gives_up) {
      log_info(LogPart::bootstrap, "{} gave up before it had proved itself", from_.to_string());
      leave();
    } else if (claim().hello_bytes > max_hello_bytes) {
      refuse("its message makes no sense");
    }
    return !gone();
  }
  size_t wanted() const {
    if (in_.size() < sizeof(Claim)) return sizeof(Claim);
    return sizeof(Claim) + claim().hello_bytes + sizeof(Digest);
  }
  void finish() {
    const auto acceptor = acceptor_.lock();
    if (!acceptor || !acceptor->fd_) return leave();
    const Claim c = claim();
    const Bytes hello = Bytes{in_}.subspan(sizeof c, c.hello_bytes);
    Digest theirs;
    std::memcpy(theirs.data(), in_.data() + sizeof c + c.hello_bytes, sizeof theirs);
    const auto keys =
        handshake_keys(acceptor->secret_, HandshakeSide::listener, share_, greeting_, c, hello);
    if (!keys) return refuse("its share of the exchange is no valid point");
    if (!same_digest(theirs, keys->caller_tag)) {
      return refuse("it does not know this job's secret");
    }
    const Digest& mine = keys->listener_tag;
    if (::send(fd_.get(), mine.data(), mine.size(), MSG_NOSIGNAL | MSG_DONTWAIT) !=
        ssize_t(mine.size())) {
      return refuse(std::strerror(errno));
    }
    Engine::get().remove(*this);
    leave_place();
    std::string differs = differing_encryption(greeting_.terms.encryption, c.terms.encryption);
    if (!differs.empty()) {
      log_warn(LogPart::bootstrap, "refused a rank of this job at {} ({})", from_.to_string(),
               differs);
    }
    acceptor->accept_({SecureSocket{std::move(fd_), keys->session},
                       {hello.begin(), hello.end()},
                       from_,
                       std::move(differs)});
  }

  std::weak_ptr<Acceptor> acceptor_;
  Fd fd_;
  Address from_;
  Greeting greeting_;
  CpaceShare share_;
  Deadline deadline_ = Deadline::after(pending_caller_timeout_s);
  std::vector<std::byte> in_;
  std::optional<CallerTable::Entry> place_;
};

RefusedCallers& refused_callers() {
  static auto& of = *new RefusedCallers;  // never destroyed: the engine outlives static objects
  return of;
}

Acceptor::Acceptor(Fd fd, const Secret& secret, const Terms& terms,
                   std::function<void(Accepted)> accept)
    : fd_(std::move(fd)), secret_(secret), terms_(terms), accept_(std::move(accept)) {}

Result<std::shared_ptr<Acceptor>> Acceptor::open(const Address& where, const Secret& secret,
                                                 std::function<void(Accepted)> accept) {
  CCL_TRY(const Terms terms, Terms::own(secret));
  CCL_TRY(Fd fd, listen_at(where));
  CCL_TRY(const Address address, bound_address(fd.get()));
  auto acceptor = std::make_shared<Acceptor>(std::move(fd), secret, terms, std::move(accept));
  acceptor->address_ = address;
  CallerTable& callers = CallerTable::get();
  CCL_CHECK(Engine::get().add(acceptor, EPOLLIN));
  callers.add_listener();
  return acceptor;
}

void Acceptor::forget() {
  if (fd_) CallerTable::get().remove_listener();
  fd_.reset();
}

void Acceptor::close() {
  for (const auto& pending : pending_) {
    if (!pending->gone()) pending->leave();
  }
  pending_.clear();
  if (!fd_) return;
  CallerTable::get().remove_listener();
  Engine::get().remove(*this);
  fd_.reset();
}

void Acceptor::ready(std::uint32_t) {
  for (int i = 0; i < 64 && fd_; ++i) {
    sockaddr_storage from{};
    socklen_t bytes = sizeof from;
    Fd fd{::accept4(fd_.get(), reinterpret_cast<sockaddr*>(&from), &bytes,
                    SOCK_CLOEXEC | SOCK_NONBLOCK)};
    if (!fd && make_room(errno)) continue;
    if (!fd) return;
    admit(std::move(fd), Address{reinterpret_cast<const sockaddr*>(&from), bytes});
  }
}

void Acceptor::admit(Fd fd, const Address& from) {
  tune_connection(fd.get());
  auto pending = std::make_shared<PendingCaller>(*this, std::move(fd), from);
  if (!pending->take_place(*this)) return;
  const auto begin = [&]() -> Result<void> {
    std::erase_if(pending_, [](const auto& g) { return g->gone(); });
    pending_.push_back(pending);
    start_ticking();
    CCL_CHECK(pending->greet(secret_));
    return Engine::get().add(pending, EPOLLIN);
  };
  if (!without_exceptions(begin)) pending->leave();  // it would wait for the greeting
}

// Returns true if `accept` is to be tried again after it failed with `os_code`.
bool Acceptor::make_room(int os_code) {
  if (os_code == EAGAIN || os_code == EINTR || os_code == ECONNABORTED) return false;
  // Without a free descriptor, accept fails also if the queue is empty.
  const bool none_left = os_code == EMFILE || os_code == ENFILE;
  if (none_left && !caller_waits(fd_.get())) return false;
  ccl::detail::note_descriptors("cannot accept a connection", os_code);
  CallerTable& callers = CallerTable::get();
  if (none_left && (callers.evict_one(Clock::now()) || callers.turn_away(fd_.get()))) return true;
  pause();
  return false;
}

void Acceptor::start_ticking() {
  if (ticking_) return;
  ticking_ = Engine::get()
                 .add_ticker([weak = weak_from_this()] {
                   const auto acceptor = weak.lock();
                   return acceptor && acceptor->tick();
                 })
                 .has_value();
}

// The socket stays ready while callers wait, so that the engine would call without end.
void Acceptor::pause() {
  paused_ = true;
  Engine::get().watch(*this, 0);
  start_ticking();
}

void Acceptor::broke(int) {
  if (fd_) pause();
}

bool Acceptor::tick() {
  if (fd_ && std::exchange(paused_, false)) Engine::get().watch(*this, EPOLLIN);
  std::erase_if(pending_, [](const auto& g) {
    if (!g->gone() && g->late()) g->refuse("it was too slow to prove itself");
    return g->gone();
  });
  return ticking_ = !pending_.empty();
}

Result<AuthListener> AuthListener::listen(const Address& where, const Secret& secret) {
  AuthListener out;
  out.queue_ = std::make_shared<Queue>();
  const std::lock_guard lock{Engine::get().mutex()};
  CCL_TRY(out.acceptor_, Acceptor::open(where, secret, [queue = out.queue_](Accepted one) {
            if (queue->waiting.size() >= max_waiting) {
              log_warn(LogPart::bootstrap, "closed a connection from {} ({} others wait already)",
                       one.from.to_string(), max_waiting);
              return;
            }
            queue->waiting.push_back(std::move(one));
            queue->arrived.notify_all();
          }));
  return out;
}

AuthListener& AuthListener::operator=(AuthListener&& other) noexcept {
  std::swap(acceptor_, other.acceptor_);
  std::swap(queue_, other.queue_);
  return *this;
}

AuthListener::~AuthListener() {
  if (!acceptor_) return;
  const std::lock_guard lock{Engine::get().mutex()};
  acceptor_->close();
}

const Address& AuthListener::address() const {
  return acceptor_->address();
}

Result<Accepted> AuthListener::accept(const Deadline& deadline, const Status* status,
                                      const std::function<bool(Bytes hello)>& fits) {
  std::unique_lock lock{Engine::get().mutex()};
  for (;;) {
    auto& waiting = queue_->waiting;
    for (auto at = waiting.begin(); at != waiting.end(); ++at) {
      if (fits && !fits(at->hello)) continue;
      Accepted out = std::move(*at);
      waiting.erase(at);
      return out;
    }
    if (status != nullptr) CCL_CHECK(status->result());
    if (deadline.passed()) {
      return fail(Errc::timed_out, fmt::format("nobody connected to {} (the peer is late or gone)",
                                               address().to_string()));
    }
    queue_->arrived.wait_for(lock, std::chrono::milliseconds(50));
  }
}

}  // namespace ccl::detail::net
