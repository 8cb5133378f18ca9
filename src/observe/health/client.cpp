#include "observe/health/client.hpp"

#include <cerrno>

#include <poll.h>
#include <sys/socket.h>

namespace ccl::detail::health {
namespace {
constexpr std::size_t bytes_at_once = 4096;
constexpr std::size_t sent_at_once = 256 << 10;

bool would_block() {
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}
}  // namespace

short Client::wanted() const {
  short events = 0;
  if (lingers_ || session_.accepts()) events |= POLLIN;
  if (!session_.output().empty()) events |= POLLOUT;
  return events;
}

void Client::serve(short events) {
  if ((events & (POLLERR | POLLNVAL)) != 0) over_ = true;
  if (!over_ && (events & (POLLIN | POLLHUP)) != 0) read();
  if (!over_ && !lingers_) write();
}

void Client::read() {
  if (!lingers_ && !session_.accepts()) return;
  char bytes[bytes_at_once];
  const ssize_t n = ::recv(fd_.get(), bytes, sizeof bytes, MSG_DONTWAIT);
  if (n < 0) {
    over_ = !would_block();
    return;
  }
  if (n == 0) {
    if (lingers_) over_ = true;
    session_.end_of_input();
  } else if (!lingers_) {
    active_ = net::Clock::now();
    session_.receive({bytes, std::size_t(n)});
  }
}

void Client::write() {
  for (std::size_t sent = 0; sent < sent_at_once;) {
    const std::string_view output = session_.output();
    if (output.empty()) break;
    const ssize_t n = ::send(fd_.get(), output.data(), output.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0) {
      over_ = !would_block();
      return;
    }
    sent += std::size_t(n);
    session_.sent(std::size_t(n));
    active_ = net::Clock::now();
  }
  if (session_.done()) linger();
}

// A socket that is closed with unread bytes resets the connection, and the client may lose the end
// of its answer.
void Client::linger() {
  ::shutdown(fd_.get(), SHUT_WR);
  lingers_ = true;
  active_ = net::Clock::now();
}

bool Client::is_over() const {
  if (over_) return true;
  const auto quiet = net::Clock::now() - active_;
  if (lingers_) return quiet > linger_limit;
  if (!session_.output().empty()) return quiet > stuck_limit;
  return session_.monitored() == 0 && !session_.request() && quiet > idle_limit;
}

}  // namespace ccl::detail::health
