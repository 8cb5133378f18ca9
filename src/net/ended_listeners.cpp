#include "net/ended_listeners.hpp"

#include <algorithm>
#include <cerrno>
#include <thread>
#include <vector>

#include "net/crypto/handshake.hpp"
#include "net/socket.hpp"
#include <poll.h>

namespace ccl::detail::net {
namespace {

constexpr double patience_s = 0.5;         // a full queue of a listener can refuse a connection
constexpr std::size_t asked_at_once = 64;  // of which each takes a descriptor

/// Connection that is only started to find out whether anybody listens.
struct FirstContact {
  Fd fd;
  bool waits = false;
  int os_code = 0;  // of `connect`, once it does not wait
};

FirstContact contact(const Address& where) {
  FirstContact out{Fd{::socket(where.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)}};
  if (!out.fd) {
    out.os_code = errno;
  } else if (::connect(out.fd.get(), where.data(), where.bytes()) != 0) {
    out.os_code = errno;
    out.waits = errno == EINPROGRESS || errno == EINTR;
  }
  return out;
}

/// Waits until the connection is open or refused.
void await_answer(FirstContact& contact, const Deadline& until) {
  if (!contact.waits || !wait_ready(contact.fd.get(), POLLOUT, until, nullptr)) return;
  socklen_t bytes = sizeof contact.os_code;
  ::getsockopt(contact.fd.get(), SOL_SOCKET, SO_ERROR, &contact.os_code, &bytes);
  contact.waits = false;
}

bool is_refused(const FirstContact& contact, const Address& where) {
  if (contact.waits) return false;
  if (contact.os_code == ECONNREFUSED) return true;
  // A connect to a free port of the own host can connect to itself.
  if (contact.os_code != 0 || where.family() == AF_UNIX) return false;
  const auto mine = bound_address(contact.fd.get());
  return mine && *mine == where;
}

/// Returns the number of addresses at the front that refuse a connection now.
std::size_t refusing(std::span<const Address> in_order, Bytes gives_up) {
  std::vector<FirstContact> contacts;
  contacts.reserve(in_order.size());
  for (const Address& where : in_order) contacts.push_back(contact(where));
  const auto until = Deadline::after(patience_s);
  std::size_t refused = in_order.size();
  for (std::size_t n = 0; n < in_order.size(); ++n) {
    if (n < refused) await_answer(contacts[n], until);  // later ones decide nothing
    const bool refuses = is_refused(contacts[n], in_order[n]);
    if (!refuses && contacts[n].fd) send_close_notify(contacts[n].fd.get(), gives_up);
    if (!refuses) refused = std::min(refused, n);
  }
  return refused;
}

}  // namespace

std::size_t ended_listeners(std::span<const Address> in_order, const Secret& secret) {
  Claim claim;
  const auto terms = Terms::own(secret);
  if (!terms || in_order.empty()) return 0;
  claim.terms = *terms;
  claim.hello_bytes = Claim::gives_up;
  const auto gives_up = std::as_bytes(std::span{&claim, 1});
  if (refusing(in_order.first(1), gives_up) == 0) return 0;
  const auto gone = Deadline::after(patience_s);
  std::size_t ended = in_order.size();
  auto pause = std::chrono::milliseconds(1);
  for (int rounds = 0; ended > 0 && (rounds < 2 || !gone.passed()); ++rounds) {
    if (rounds > 0) std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, std::chrono::milliseconds(50));
    for (std::size_t begin = 0; begin < ended; begin += asked_at_once) {
      const std::size_t asked = std::min(asked_at_once, ended - begin);
      const std::size_t refused = refusing(in_order.subspan(begin, asked), gives_up);
      if (refused < asked) ended = begin + refused;
    }
  }
  return ended;
}

}  // namespace ccl::detail::net
