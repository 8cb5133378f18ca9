#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <vector>

#include "net/engine.hpp"
#include "net/sha256.hpp"
#include "net/socket.hpp"

namespace ccl::detail::net {

// Both ends of every connection prove that they know the job's secret, without sending it. The
// listening side speaks first:
//   greeting  "ccl\1", nonce of the listener
//   claim     "ccl\1", bytes of hello, nonce of the caller, hello, HMAC(secret, "caller" both
//   nonces, hello) answer    HMAC(secret, "listener", both nonces, hello)
// The hello says what the connection is for; it is proved with the rest, not hidden.

constexpr Index max_hello_bytes = 1024;

/// A connection that has proved the secret.
struct Accepted {
  Fd fd;
  std::vector<std::byte> hello;
  Address from;
};

/// Listens and does the handshakes in the engine's thread, all callers at once: a slow or silent
/// stranger delays nobody. Who fails is closed and named in the log.
class Acceptor : public Handler, public std::enable_shared_from_this<Acceptor> {
 public:
  /// `accept` is called in the engine's thread with its mutex held.
  static Result<std::shared_ptr<Acceptor>> open(const Address& where, const Secret& secret,
                                            std::function<void(Accepted)> accept);
  Acceptor(Fd fd, const Secret& secret, std::function<void(Accepted)> accept);
  const Address& address() const { return address_; }
  /// With the engine's mutex held: no more callers.
  void close();

  int fd() const override { return fd_.get(); }
  void ready(std::uint32_t events) override;
  void forget() override { fd_.reset(); }

 private:
  class PendingCaller;
  bool tick();

  Fd fd_;
  Secret secret_;
  std::function<void(Accepted)> accept_;
  Address address_;
  std::deque<std::shared_ptr<PendingCaller>> guests_;  // being asked for their proof, oldest first
  bool ticking_ = false;
};

/// A listening socket whose connections are all authenticated. Callers are served from the moment
/// it exists, in the engine's thread, so two ranks may `auth_connect` to each other before either
/// accepts.
class AuthListener {
 public:
  /// Port 0: any free one. An address of `Address::unix_name` gives a Unix socket (for passing
  /// fds).
  static Result<AuthListener> listen(const Address& where, const Secret& secret);
  AuthListener() = default;
  AuthListener(AuthListener&&) = default;
  AuthListener& operator=(AuthListener&& other) noexcept;
  ~AuthListener();

  /// Where callers connect to.
  const Address& address() const;
  /// The oldest connection whose hello fits (all do, without `fits`). The socket is non-blocking.
  Result<Accepted> accept(const Deadline& deadline, const Status* status,
                          const std::function<bool(Bytes hello)>& fits = {});

 private:
  struct Queue {
    std::deque<Accepted> waiting;
    std::condition_variable arrived;
  };
  std::shared_ptr<Acceptor> gate_;
  std::shared_ptr<Queue> queue_;
};

/// Whether a listener may yet come, or was there before anybody knew its address.
enum class Listener { may_come, has_wire };

/// Connects and proves the secret; at most 1 KiB of hello. Tries again while the other end is not
/// there yet, until the deadline; one that was there and is not any more is `Errc::peer_lost`.
/// `Errc::refused`: it is there and does not know the secret. The socket is non-blocking.
Result<Fd> auth_connect(const Address& where, const Secret& secret, Bytes hello,
                        const Deadline& deadline, const Status* status,
                        Listener listener = Listener::may_come);

}  // namespace ccl::detail::net
