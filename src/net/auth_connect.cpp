#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "base/io/os_error.hpp"
#include "net/auth.hpp"
#include "net/callers.hpp"
#include "net/greets.hpp"
#include "settings/report.hpp"
#include <poll.h>

namespace ccl::detail::net {
namespace {

constexpr double answer_grace_s = 2;  // for the last step, also after an abort
constexpr double gone_s = 0.5;        // a full queue of a listener can refuse a connection

void append(std::vector<std::byte>& out, Bytes more) {
  out.insert(out.end(), more.begin(), more.end());
}

Error busy_error(const Address& where) {
  return system_error(fmt::format("{} has too many callers", where.to_string()), EBUSY);
}

Result<void> check_greeting(const Greeting& greeting, const Terms& mine, const Address& where) {
  if (greeting.magic != handshake_magic) {
    const bool other = std::memcmp(greeting.magic.data(), "ccl", 3) == 0;
    return fail(Errc::refused,
                fmt::format("{} does not speak ccl{}", where.to_string(),
                            other ? " of this version; run the same version on all hosts"
                                  : " (another program listens there)"));
  }
  if (greeting.terms.mode != mine.mode) {
    return fail(Errc::refused, fmt::format("{}: {}", where.to_string(),
                                           differing_modes(mine.mode, greeting.terms.mode)));
  }
  return {};
}

/// Receives the greeting, or the busy notice in its place. Tells the listener if it gives up.
Result<Greeting> receive_greeting(const Fd& fd, const Terms& mine, const Address& where,
                                  const Deadline& deadline, const Status* status, Bytes last) {
  Greeting greeting;
  // Another program, or another version, sends fewer bytes: the first four decide.
  auto* const bytes = reinterpret_cast<std::byte*>(&greeting);
  auto greeted = recv_all(fd.get(), bytes, sizeof greeting.magic, deadline, status);
  if (greeted && greeting.magic == handshake_magic) {
    constexpr Index had = sizeof greeting.magic;
    greeted = recv_all(fd.get(), bytes + had, sizeof greeting - had, deadline, status);
  } else if (greeted && is_busy(std::as_bytes(std::span{greeting.magic}))) {
    return fail(busy_error(where));
  }
  if (!greeted) {
    // A listener whose process was stopped reads this when it goes on.
    const bool gives_up =
        greeted.error().code == Errc::timed_out || (status != nullptr && !status->ok());
    if (gives_up) send_close_notify(fd.get(), last);
    return fail(std::move(greeted).error());
  }
  if (auto fits = check_greeting(greeting, mine, where); !fits) {
    send_close_notify(fd.get(), last);
    return fail(std::move(fits).error());
  }
  return greeting;
}

/// Sends the claim and receives the answer.
Result<Digest> exchange_proofs(const Fd& fd, const Claim& claim, Bytes hello, const Digest& tag,
                               const Address& where, const Deadline& deadline,
                               const Status* status) {
  std::vector<std::byte> message;
  append(message, std::as_bytes(std::span{&claim, 1}));
  append(message, hello);
  append(message, tag);
  auto sent = send_all(fd.get(), message.data(), Index(message.size()), deadline, status);
  // The other end may rely on this connection now. A rank that closed it at once would look dead.
  (void)wait_ready(fd.get(), POLLIN, Deadline::after(std::min(answer_grace_s, deadline.left_s())),
                   nullptr);
  Digest answer;
  auto answered = recv_all(fd.get(), &answer, sizeof answer, deadline, status);
  if (answered && is_busy(answer)) return fail(busy_error(where));
  CCL_CHECK(sent);  // a listener without room for this caller closes before it reads
  CCL_CHECK(answered);
  return answer;
}

Result<SecureSocket> connect_and_prove(const Address& where, const Secret& secret, Bytes hello,
                                       const Deadline& deadline, const Status* status) {
  if (status != nullptr) CCL_CHECK(status->result());
  Claim claim;
  CCL_TRY(claim.terms, Terms::own(secret));
  // An aborted rank sends this, so that the listener does not log an unknown caller.
  Claim close_notify = claim;
  close_notify.hello_bytes = Claim::gives_up;
  const auto last = std::as_bytes(std::span{&close_notify, 1});
  CCL_TRY(Fd fd, connect_once(where, deadline, status, last));
  CCL_TRY(const Greeting greeting,
          receive_greeting(fd, claim.terms, where, deadline, status, last));
  claim.hello_bytes = std::uint32_t(hello.size());
  fill_random(claim.nonce);
  const CpaceShare share = handshake_share(secret, claim.terms.mode, greeting.nonce);
  claim.share = share.share;
  const auto keys = handshake_keys(secret, HandshakeSide::caller, share, greeting, claim, hello);
  if (!keys) {
    return fail(Errc::refused, fmt::format("{} sent a share of the exchange that is no valid point "
                                           "(it is not of this job)",
                                           where.to_string()));
  }
  CCL_TRY(const Digest answer,
          exchange_proofs(fd, claim, hello, keys->caller_tag, where, deadline, status));
  if (!same_digest(answer, keys->listener_tag)) {
    return fail(Errc::refused, fmt::format("{} does not know this job's secret (it belongs to "
                                           "another job)",
                                           where.to_string()));
  }
  const auto differs = differing_encryption(claim.terms.encryption, greeting.terms.encryption);
  if (!differs.empty()) {
    return fail(Errc::mismatch, fmt::format("{}: {}", where.to_string(), differs));
  }
  return SecureSocket{std::move(fd), keys->session};
}

}  // namespace

bool greets(const Address& where, const Secret& secret, const Deadline& deadline) {
  Claim gives_up;
  const auto terms = Terms::own(secret);
  if (!terms) return true;
  gives_up.terms = *terms;
  gives_up.hello_bytes = Claim::gives_up;
  const auto last = std::as_bytes(std::span{&gives_up, 1});
  const auto fd = connect_once(where, deadline, nullptr, last);
  if (!fd) return fd.error().code != Errc::timed_out;
  const auto greeting = receive_greeting(*fd, *terms, where, deadline, nullptr, last);
  if (greeting) send_close_notify(fd->get(), last);
  return greeting || greeting.error().code != Errc::timed_out;
}

Result<SecureSocket> auth_connect(const Address& where, const Secret& secret, Bytes hello,
                                  const Deadline& deadline, const Status* status,
                                  Listener listener) {
  if (Index(hello.size()) > max_hello_bytes) {
    return fail(Errc::internal, "a hello has more than 1024 bytes");
  }
  int closed = 0;
  const auto gone = Deadline::after(gone_s);
  for (auto pause = std::chrono::milliseconds(1);;
       pause = std::min(2 * pause, std::chrono::milliseconds(50))) {
    auto fd = connect_and_prove(where, secret, hello, deadline, status);
    if (!fd && fd.error().code == Errc::timed_out) {  // connected, without an answer
      Error e = std::move(fd).error();
      e.what = fmt::format(
          "{} says nothing (its process is stopped, its host is cut off, or no way leads to this "
          "address; {} there chooses another interface)",
          where.to_string(), variable_of("SOCKET_IFNAME"));
      return fail(std::move(e));
    }
    if (fd || fd.error().code != Errc::network) return fd;
    const int code = fd.error().os_code;
    if (code == ECONNREFUSED && listener == Listener::has_started && gone.passed()) {
      Error e = std::move(fd).error();
      e.code = Errc::peer_lost;
      e.what =
          fmt::format("nobody listens at {} any more (its process has ended)", where.to_string());
      return fail(std::move(e));
    }
    // Closed during the handshake: its process is ending, or this rank's secret is wrong.
    if ((code == 0 || code == ECONNRESET || code == EPIPE) && ++closed == 3) {
      return fail(
          Errc::refused,
          fmt::format(
              "{} closed the connection during authentication (it is of another job, or has "
              "another id or secret); give all ranks the same id, or CCL_COMM_ID, or "
              "MASTER_ADDR and MASTER_PORT, spelled alike, and the same CCL_SECRET_FILE or "
              "CCL_SECRET",
              where.to_string()));
    }
    if (code == EMFILE || code == ENFILE || code == EAFNOSUPPORT) return fd;
    if (status != nullptr) CCL_CHECK(status->result());
    if (deadline.passed()) {
      Error e = fd.error();
      e.code = Errc::timed_out;
      e.what += fmt::format("; nothing answered at {} within the deadline", where.to_string());
      return fail(std::move(e));
    }
    std::this_thread::sleep_for(pause);
  }
}

}  // namespace ccl::detail::net
