#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "net/crypto/handshake.hpp"
#include "net/crypto/secret.hpp"
#include "net/engine.hpp"
#include "net/secure_socket.hpp"
#include "net/socket.hpp"

namespace ccl::detail::net {

/// Authenticated connection.
struct Accepted {
  SecureSocket socket;
  std::vector<std::byte> hello;
  Address from;
  std::string differs;  // CCL_ENCRYPTION of both ends, if it differs: the socket must not be used
};

/// Listening socket that authenticates all callers concurrently in the engine's thread. A slow
/// caller delays no other. A caller that fails is closed and logged.
class Acceptor : public Handler, public std::enable_shared_from_this<Acceptor> {
 public:
  /// `accept` is called in the engine's thread with its mutex held.
  static Result<std::shared_ptr<Acceptor>> open(const Address& where, const Secret& secret,
                                                std::function<void(Accepted)> accept);
  Acceptor(Fd fd, const Secret& secret, const Terms& terms, std::function<void(Accepted)> accept);
  const Address& address() const { return address_; }
  /// Stops listening. The caller must hold the engine's mutex.
  void close();

  int fd() const override { return fd_.get(); }
  void ready(std::uint32_t events) override;
  void forget() override;
  void broke(int os_code) override;

 private:
  class PendingCaller;
  bool tick();
  void admit(Fd fd, const Address& from);
  bool make_room(int os_code);
  void start_ticking();
  void pause();

  Fd fd_;
  Secret secret_;
  Terms terms_;
  std::function<void(Accepted)> accept_;
  Address address_;
  std::deque<std::shared_ptr<PendingCaller>> pending_;  // not authenticated yet, oldest first
  bool ticking_ = false;
  bool paused_ = false;  // without a descriptor or memory for callers, until the next tick
};

/// Callers that listeners of this process have turned away: strangers, or ranks with another
/// secret.
struct RefusedCallers {
  std::atomic<unsigned> number{0};
  std::string why;  // of the last one, with its address; the engine's mutex guards it
};
RefusedCallers& refused_callers();

/// Queue of authenticated connections to a listening socket. The engine's thread serves callers
/// from its creation on, so two ranks may `auth_connect` to each other before either accepts.
class AuthListener {
 public:
  /// Listens at `where`. Port 0 selects a free port. An address of `Address::unix_name` gives a
  /// Unix socket, which can pass file descriptors.
  static Result<AuthListener> listen(const Address& where, const Secret& secret);
  AuthListener() = default;
  AuthListener(AuthListener&&) = default;
  AuthListener& operator=(AuthListener&& other) noexcept;
  ~AuthListener();

  /// Address to which callers connect.
  const Address& address() const;
  /// Blocks for the oldest connection for whose hello `fits` returns true. Without `fits`, all
  /// match. The socket is non-blocking.
  Result<Accepted> accept(const Deadline& deadline, const Status* status,
                          const std::function<bool(Bytes hello)>& fits = {});

 private:
  struct Queue {
    std::deque<Accepted> waiting;
    std::condition_variable arrived;
  };
  std::shared_ptr<Acceptor> acceptor_;
  std::shared_ptr<Queue> queue_;
};

/// State of a listener: it may start later, or it has started when its address became known.
enum class Listener { may_start, has_started };

/// Connects and proves the secret. The hello has at most 1 KiB, and the socket is non-blocking. It
/// retries until the deadline while nothing listens. Errors:
/// - `Errc::peer_lost`: nothing listens and `listener` is `has_started`;
/// - `Errc::refused`: the other end does not know the secret, or proves it in another way;
/// - `Errc::mismatch`: the other end has another CCL_ENCRYPTION.
Result<SecureSocket> auth_connect(const Address& where, const Secret& secret, Bytes hello,
                                  const Deadline& deadline, const Status* status,
                                  Listener listener = Listener::may_start);

}  // namespace ccl::detail::net
