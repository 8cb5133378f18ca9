#include "group.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "reduce.hpp"
#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

namespace software_collnet {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::uint64_t magic = 0x6363'6c63'6f6c'6c31;
constexpr auto connect_limit = std::chrono::seconds{60};

struct Hello {
  std::uint64_t magic = 0;
  std::array<std::byte, 16> secret{};
  std::int32_t rank = 0, ranks = 0;
};

bool would_block() {
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

/// Waits for events of a socket. Returns false at the deadline.
bool await(int fd, short events, Clock::time_point due) {
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(due - Clock::now()).count();
    if (left <= 0) return false;
    pollfd one{fd, events, 0};
    const int ready = ::poll(&one, 1, int(std::min<long>(left, 1000)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
}

/// Sends or receives all bytes before the deadline.
template <class Byte, class Call>
bool move_all(int fd, Byte* at, std::size_t bytes, short events, Clock::time_point due, Call call) {
  while (bytes > 0) {
    const ssize_t moved = call(fd, at, bytes);
    if (moved == 0) return false;
    if (moved < 0 && !would_block()) return false;
    if (moved < 0 && !await(fd, events, due)) return false;
    if (moved <= 0) continue;
    at += moved;
    bytes -= std::size_t(moved);
  }
  return true;
}

void tune(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
}

socklen_t length_of(sa_family_t family) {
  return family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
}

/// Returns the address of an interface that is up: the named one, or the first that is no loopback,
/// or else a loopback.
bool find_address(const char* interface, Handle& handle) {
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return false;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner{all, ::freeifaddrs};
  for (const bool loopback : {false, true}) {
    for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
      if (one->ifa_addr == nullptr || (one->ifa_flags & IFF_UP) == 0) continue;
      const sa_family_t family = one->ifa_addr->sa_family;
      if (family != AF_INET && family != AF_INET6) continue;
      if (interface != nullptr && std::strcmp(interface, one->ifa_name) != 0) continue;
      if (interface == nullptr && loopback != ((one->ifa_flags & IFF_LOOPBACK) != 0)) continue;
      if (family == AF_INET6 &&
          IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(one->ifa_addr)->sin6_addr)) {
        continue;
      }
      std::memcpy(&handle.at, one->ifa_addr, length_of(family));
      return true;
    }
  }
  return false;
}

}  // namespace

Socket::Socket(Socket&& other) noexcept : fd_{std::exchange(other.fd_, -1)} {}
Socket& Socket::operator=(Socket&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}
Socket::~Socket() {
  if (fd_ >= 0) ::close(fd_);
}

Code Listener::make(const char* interface, std::unique_ptr<Listener>& made) {
  auto one = std::make_unique<Listener>();
  Handle& handle = one->handle;
  handle.magic = magic;
  if (::getrandom(handle.secret.data(), handle.secret.size(), 0) != ssize_t(handle.secret.size())) {
    return system_error;
  }
  if (!find_address(interface, handle)) return system_error;
  one->socket = Socket{::socket(handle.at.family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  if (!one->socket) return system_error;
  auto* const address = reinterpret_cast<sockaddr*>(&handle.at);
  handle.at.v4.sin_port = 0;  // at the same place in both
  socklen_t length = length_of(handle.at.family);
  if (::bind(one->socket.get(), address, length) != 0 || ::listen(one->socket.get(), 1024) != 0 ||
      ::getsockname(one->socket.get(), address, &length) != 0) {
    return system_error;
  }
  made = std::move(one);
  return success;
}

Code Group::connect(const std::vector<Handle>& handles, int rank, Listener& listener,
                    std::unique_ptr<Group>& made) {
  const int ranks = int(handles.size());
  if (rank < 0 || rank >= ranks) return invalid_argument;
  for (const Handle& handle : handles) {
    if (handle.magic != magic) return invalid_argument;
  }
  const Handle& first = handles[0];
  const auto due = Clock::now() + connect_limit;
  std::vector<Peer> peers(rank == 0 ? std::size_t(ranks - 1) : 1);
  Hello hello{magic, first.secret, rank, ranks};
  if (rank != 0) {
    Socket socket{::socket(first.at.family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
    if (!socket) return system_error;
    const auto* const address = reinterpret_cast<const sockaddr*>(&first.at);
    int why = 0;
    socklen_t size = sizeof why;
    if (::connect(socket.get(), address, length_of(first.at.family)) != 0 &&
        (errno != EINPROGRESS || !await(socket.get(), POLLOUT, due) ||
         ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &why, &size) != 0 || why != 0)) {
      return remote_error;
    }
    tune(socket.get());
    const bool sent = move_all(
        socket.get(), reinterpret_cast<const char*>(&hello), sizeof hello, POLLOUT, due,
        [](int fd, const char* at, std::size_t n) { return ::send(fd, at, n, MSG_NOSIGNAL); });
    // Rank 0 answers when all are there.
    char answer = 0;
    const auto read = [](int fd, char* at, std::size_t n) { return ::recv(fd, at, n, 0); };
    if (!sent || !move_all(socket.get(), &answer, 1, POLLIN, due, read)) return remote_error;
    peers[0].socket = std::move(socket);
  } else {
    for (int left = ranks - 1; left > 0;) {
      if (!await(listener.socket.get(), POLLIN, due)) return remote_error;
      Socket socket{::accept4(listener.socket.get(), nullptr, nullptr, SOCK_CLOEXEC)};
      if (!socket) continue;
      tune(socket.get());
      Hello theirs;
      const bool came =
          move_all(socket.get(), reinterpret_cast<char*>(&theirs), sizeof theirs, POLLIN,
                   std::min(due, Clock::now() + std::chrono::seconds{5}),
                   [](int fd, char* at, std::size_t n) { return ::recv(fd, at, n, 0); });
      const bool fits = came && theirs.magic == magic && theirs.secret == first.secret &&
                        theirs.ranks == ranks && theirs.rank > 0 && theirs.rank < ranks;
      if (!fits || peers[std::size_t(theirs.rank - 1)].socket) continue;  // of a stranger
      peers[std::size_t(theirs.rank - 1)].socket = std::move(socket);
      --left;
    }
    for (Peer& peer : peers) {
      if (::send(peer.socket.get(), "!", 1, MSG_NOSIGNAL) != 1) return remote_error;
    }
  }
  made.reset(new Group{rank, std::move(peers)});
  return success;
}

Request* Group::at(std::uint64_t number) {
  const std::uint64_t index = number - first_;
  return index < requests_.size() ? requests_[std::size_t(index)].get() : nullptr;
}

Range Request::own(int rank) const {
  const std::size_t begin = std::clamp(each * std::size_t(rank), offset, offset + bytes);
  const std::size_t end = std::clamp(each * std::size_t(rank + 1), offset, offset + bytes);
  return {begin - offset, end - begin};
}

Group::Peer::Head::Head(const Request& of)
    : bytes{of.bytes},
      each{of.each},
      offset{of.offset},
      type{of.type},
      op{of.op},
      operation{std::int32_t(of.operation)} {}

Code Group::start(const Request& what, Request*& request) {
  request = nullptr;
  const bool reduces = what.operation != Operation::all_gather;
  if (reduces && (!can_reduce(what.type, what.op) || what.bytes % element_bytes(what.type) != 0)) {
    return invalid_argument;
  }
  if (int(requests_.size()) >= max_requests) return progress();
  auto one = std::make_unique<Request>(what);
  one->of = this;
  if (rank_ == 0) {
    if (reduces) one->parts.assign(peers_.size(), std::vector<std::byte>(what.bytes));
    if (what.operation == Operation::reduce_scatter) one->sum.resize(what.bytes);
    one->result = one->sum.empty() ? what.recv : one->sum.data();
    const Range mine = what.sends(0);
    if (mine.bytes > 0) std::memmove(one->result + mine.begin, what.send, mine.bytes);
    if (peers_.empty()) finish(*one);
  }
  request = one.get();
  requests_.push_back(std::move(one));
  return progress();
}

void Group::finish(Request& request) {
  for (const auto& part : request.parts) {
    reduce(request.type, request.op, request.result, part.data(),
           request.bytes / element_bytes(request.type));
  }
  request.parts.clear();
  const Range mine = request.gets(0);
  if (!request.sum.empty() && mine.bytes > 0) {
    std::memcpy(request.recv, request.result + mine.begin, mine.bytes);
  }
  request.complete = true;
  request.done = peers_.empty();
}

Code Group::test(Request* request, bool& done) {
  const Code code = progress();
  if (code != success) return code;
  done = request->done;
  request->taken = done;
  while (!requests_.empty() && requests_.front()->taken) {  // asked for in any order
    requests_.pop_front();
    ++first_;
  }
  return success;
}

Code Group::progress() {
  for (std::size_t p = 0; p < peers_.size(); ++p) {
    Peer& peer = peers_[p];
    const Code received = rank_ == 0 ? receive_piece(peer, p) : receive_result(peer);
    if (received != success) return received;
  }
  for (std::size_t p = 0; p < peers_.size(); ++p) {
    const Code sent = rank_ == 0 ? send_result(peers_[p], int(p) + 1) : send_piece(peers_[p]);
    if (sent != success) return sent;
  }
  return success;
}

Code Group::send_piece(Peer& peer) {
  while (const Request* const request = at(peer.sending)) {
    peer.head = Peer::Head{*request};
    constexpr std::size_t head = sizeof peer.head;
    const std::size_t bytes = request->sends(rank_).bytes;
    const bool in_head = peer.sent < head;
    const auto* const from = in_head ? reinterpret_cast<const std::byte*>(&peer.head) + peer.sent
                                     : request->send + (peer.sent - head);
    const std::size_t left = in_head ? head - peer.sent : bytes + head - peer.sent;
    if (left > 0) {
      const ssize_t sent = ::send(peer.socket.get(), from, left, MSG_NOSIGNAL);
      if (sent < 0) return would_block() ? success : remote_error;
      peer.sent += std::size_t(sent);
    }
    if (peer.sent == bytes + head) ++peer.sending, peer.sent = 0;
  }
  return success;
}

Code Group::receive_result(Peer& peer) {
  while (Request* const request = at(peer.receiving)) {
    if (peer.sending <= peer.receiving) return success;  // rank 0 has not all of this one's piece
    const std::size_t bytes = request->gets(rank_).bytes;
    if (peer.received < bytes) {
      const ssize_t got =
          ::recv(peer.socket.get(), request->recv + peer.received, bytes - peer.received, 0);
      if (got == 0) return remote_error;
      if (got < 0) return would_block() ? success : remote_error;
      peer.received += std::size_t(got);
    }
    if (peer.received < bytes) continue;
    request->done = true;
    ++peer.receiving;
    peer.received = 0;
  }
  return success;
}

Code Group::receive_piece(Peer& peer, std::size_t index) {
  while (Request* const request = at(peer.receiving)) {
    constexpr std::size_t head = sizeof peer.head;
    const Range piece = request->sends(int(index) + 1);
    std::byte* const data =
        request->parts.empty() ? request->result + piece.begin : request->parts[index].data();
    const bool in_head = peer.received < head;
    auto* const to = in_head ? reinterpret_cast<std::byte*>(&peer.head) + peer.received
                             : data + (peer.received - head);
    const std::size_t left = in_head ? head - peer.received : piece.bytes + head - peer.received;
    if (left > 0) {
      const ssize_t got = ::recv(peer.socket.get(), to, left, 0);
      if (got == 0) return remote_error;
      if (got < 0) return would_block() ? success : remote_error;
      peer.received += std::size_t(got);
    }
    if (peer.received == head && peer.head != Peer::Head{*request}) return invalid_usage;
    if (peer.received < piece.bytes + head) continue;
    ++peer.receiving;
    peer.received = 0;
    if (++request->arrived == int(peers_.size())) finish(*request);
  }
  return success;
}

Code Group::send_result(Peer& peer, int to) {
  for (Request* request = at(peer.sending); request != nullptr && request->complete;
       request = at(peer.sending)) {
    const Range part = request->gets(to);
    if (peer.sent < part.bytes) {
      const ssize_t sent = ::send(peer.socket.get(), request->result + part.begin + peer.sent,
                                  part.bytes - peer.sent, MSG_NOSIGNAL);
      if (sent < 0) return would_block() ? success : remote_error;
      peer.sent += std::size_t(sent);
    }
    if (peer.sent < part.bytes) continue;
    ++peer.sending;
    peer.sent = 0;
    request->done = ++request->answered == int(peers_.size());
  }
  return success;
}

}  // namespace software_collnet
