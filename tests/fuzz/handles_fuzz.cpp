// Records about cuMem handles, with descriptors beside them, as a peer writes them to a rank's
// socket. No input may leave a descriptor open, and only the rank that was asked may answer.
#include <algorithm>
#include <array>
#include <variant>

#include "base/io/mapping.hpp"
#include "connect/registry/handle_sockets.hpp"
#include "fuzz/fuzz.hpp"
#include "fuzz/open_descriptors.hpp"
#include <sys/socket.h>

namespace ccl::fuzz {

using namespace detail;

namespace {
constexpr int ranks = 3;
constexpr std::size_t nonce_at = 24;  // in a record
constexpr int max_descriptors = HandleSockets::max_handles + 4;

/// Rank 0's sockets, and the end to which its peers write.
struct Rank {
  Rank() {
    int both[2];
    demand(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, both) == 0,
           "pair");
    written = Fd{both[1]};
    sockets = HandleSockets::of(0, ranks, Fd{both[0]}).value();
    int peer[2];
    demand(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, peer) == 0,
           "pair");
    sockets.connect(1, Fd{peer[0]});
    read_by_peer = Fd{peer[1]};
  }
  HandleSockets sockets;
  Fd written, read_by_peer;
};

/// A record as the product writes it.
std::string sent(const Rank& rank) {
  char bytes[4096];
  const auto length = ::recv(rank.read_by_peer.get(), bytes, sizeof bytes, 0);
  demand(length > 0, "no record");
  return {bytes, std::size_t(length)};
}

const Fd& memory() {
  static const Fd one = shareable_memory("fuzz", 4096).value();
  return one;
}

void write(const Rank& rank, std::string bytes, int descriptors) {
  iovec data{bytes.data(), bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(max_descriptors * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (descriptors > 0) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(std::size_t(descriptors) * sizeof(int));
    cmsghdr* const head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(std::size_t(descriptors) * sizeof(int));
    const int fd = memory().get();
    for (int n = 0; n < descriptors; ++n) {
      std::memcpy(CMSG_DATA(head) + std::size_t(n) * sizeof fd, &fd, sizeof fd);
    }
  }
  (void)::sendmsg(rank.written.get(), &message, MSG_NOSIGNAL);
}

int at_first = 0;  // descriptors before the first input

}  // namespace

void prepare() {
  (void)memory();
  at_first = open_descriptors();
}

void read(Input input) {
  Source source{input};
  const bool was_asked = source.take<std::uint8_t>() % 4 != 0;
  const int descriptors = source.take<std::uint8_t>() % (max_descriptors + 1);
  std::string bytes{text_of(source.rest())};
  {
    const Rank rank;
    demand(rank.sockets.ask(1, 5, 0), "a request is lost");
    if (const std::string asked = sent(rank);
        was_asked && bytes.size() >= nonce_at + sizeof(Nonce)) {
      bytes.replace(nonce_at, sizeof(Nonce), asked, nonce_at, sizeof(Nonce));
    }
    write(rank, bytes, descriptors);
    while (const auto message = rank.sockets.receive()) {
      const auto* const reply = std::get_if<HandleSockets::Reply>(&*message);
      if (reply == nullptr) continue;
      demand(was_asked && reply->owner == 1, "a reply of a rank that was not asked");
      demand(reply->handles.size() <= std::size_t(HandleSockets::max_handles), "too many handles");
      for (const SharedHandle& handle : reply->handles) {
        demand(!handle.fd || keeps_size(handle.fd, 4096), "other memory than was passed");
      }
    }
  }
  demand_descriptors(at_first);
}

std::vector<std::string> seeds() {
  const Rank rank;
  const HandleSockets::Request request{1, 5, 0, {}};
  const auto reply_of = [&](int fds, int fabrics) {
    std::vector<SharedHandle> handles;
    for (int n = 0; n < fds; ++n) {
      SharedHandle& one = handles.emplace_back();
      one.bytes = 4096;
      one.fd = Fd{::dup(memory().get())};
    }
    for (int n = 0; n < fabrics; ++n) handles.emplace_back().bytes = 4096;
    demand(rank.sockets.reply(request, handles), "a reply is lost");
    return sent(rank);
  };
  demand(rank.sockets.ask(1, 7, 0), "a request is lost");
  const std::string asked = sent(rank);
  const auto with = [](char was_asked, char fds, const std::string& record) {
    return std::string{was_asked, fds} + record;
  };
  return {with(1, 0, asked),          with(1, 1, reply_of(1, 0)), with(1, 16, reply_of(16, 0)),
          with(1, 2, reply_of(2, 1)), with(1, 0, reply_of(0, 3)), with(1, 0, reply_of(0, 0)),
          with(0, 1, reply_of(1, 0)), with(1, 3, reply_of(1, 0)), with(1, 1, "short")};
}

}  // namespace ccl::fuzz
