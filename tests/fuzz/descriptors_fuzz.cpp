// Passing of descriptors: a request to this process's server, and the reply of another server. No
// input may leave a descriptor open.
#include <cerrno>
#include <mutex>
#include <thread>

#include "base/io/mapping.hpp"
#include "base/random.hpp"
#include "fuzz/fuzz.hpp"
#include "fuzz/open_descriptors.hpp"
#include "support/lent.hpp"
#include "transport/fd_server.hpp"
#include <poll.h>
#include <sys/socket.h>

namespace ccl::fuzz {

using namespace detail;

namespace {

/// A server that answers each caller with the latest reply.
struct PlayedServer {
  static constexpr int most = 5;
  PlayedServer() {
    listener = Fd{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    name.address.sun_family = AF_UNIX;
    name.bytes = sizeof name.address;
    auto* const at = reinterpret_cast<sockaddr*>(&name.address);
    demand(::bind(listener.get(), at, sizeof(sa_family_t)) == 0, "bind");
    demand(::listen(listener.get(), 16) == 0, "listen");
    demand(::getsockname(listener.get(), at, &name.bytes) == 0, "name");
    memory = shareable_memory("fuzz", 4096).value();
    std::thread{[this] { serve(); }}.detach();
  }
  void serve() {
    for (;;) {
      const Fd caller{::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC)};
      char request[64];
      (void)::recv(caller.get(), request, sizeof request, 0);
      answer(caller.get());
    }
  }
  void answer(int caller) {
    const std::lock_guard lock{mutex};
    iovec data{const_cast<char*>(reply.data()), reply.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(most * sizeof(int))] = {};
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
      const int fd = memory.get();
      for (int n = 0; n < descriptors; ++n) {
        std::memcpy(CMSG_DATA(head) + std::size_t(n) * sizeof fd, &fd, sizeof fd);
      }
    }
    (void)::sendmsg(caller, &message, MSG_NOSIGNAL);
  }
  Fd listener, memory;
  UnixName name;
  std::mutex mutex;  // guards the rest: a caller has its reply before `answer` ends
  std::string reply;
  int descriptors = 0;  // 0 to `most`
};
PlayedServer& server() {
  static PlayedServer* const one = new PlayedServer;
  return *one;
}

void ask_server(Source& source) {
  test::Lent lent;
  lent.context.deadline_s = 5;
  Edge edge;
  edge.shape = {1, 2, 128};
  {
    const std::lock_guard lock{server().mutex};
    server().descriptors = source.take<std::uint8_t>() % (PlayedServer::most + 1);
    server().reply = text_of(source.take_bytes(64));
  }
  const auto fd = fetch_fd(lent.context, edge, "shm", server().name, Proof{});
  if (fd) demand(keeps_size(*fd, 4096), "other memory than was passed");
}

FdOffer offer_of(const Proof& proof) {
  return FdOffer::make(proof, {}, shareable_memory("fuzz", 4096).value()).value();
}
/// Another process's request, in its own bytes, while an offer is open that it can ask for.
void request(Source& source) {
  const FdOffer offer = offer_of(Proof{std::byte{1}});
  const Fd socket{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  const UnixName& at = offer.name();
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&at.address), at.bytes) != 0)
    return;
  const Input bytes = source.take_bytes(64);
  (void)::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  ::shutdown(socket.get(), SHUT_WR);
  pollfd answer{socket.get(), POLLIN, 0};
  int answers = -1;
  do {  // libFuzzer's clock interrupts it
    answers = ::poll(&answer, 1, 20'000);
  } while (answers < 0 && errno == EINTR);
  demand(answers == 1, "the server does not answer");
}

/// Keeps the server alive between inputs by an offer that nobody asks for. A new one
/// takes its place before each input: libFuzzer sees what bytes are compared with, and so learns
/// the secret of an offer.
void keep_server() {
  static FdOffer kept;
  Proof secret;
  demand(fill_random(secret.data(), secret.size()).has_value(), "random bytes");
  kept = offer_of(secret);
}

int at_first = 0;  // descriptors before the first input

}  // namespace

void prepare() {
  (void)server();
  keep_server();
  at_first = open_descriptors();
}
void read(Input input) {
  keep_server();
  Source source{input};
  source.take<std::uint8_t>() % 2 == 0 ? ask_server(source) : request(source);
  demand_descriptors(at_first);
}
std::vector<std::string> seeds() {
  const std::string ask{'\0'}, requests{'\1'};
  const WireShape shape{1, 2, 128};
  struct Reply {
    int found = 1;
    WireShape shape;
  } const reply{1, shape};
  return {ask + '\1' + bytes_of(reply),
          ask + '\0' + bytes_of(reply),
          ask + '\2' + bytes_of(reply),
          ask + '\3' + bytes_of(reply),
          ask + '\5' + bytes_of(reply),
          ask + '\1' + bytes_of(Reply{0, shape}),
          requests + bytes_of(Proof{}),
          requests + bytes_of(Proof{std::byte{1}}),
          requests + "short"};
}

}  // namespace ccl::fuzz
