#include <ccl/transport/shm.hpp>

#include <csignal>
#include <cstdlib>

#include "support/driver.hpp"
#include "support/error_matchers.hpp"
#include "support/processes.hpp"
#include <sys/resource.h>
#include <sys/un.h>

using namespace ccl;
using namespace ccl::test;

namespace {

// Returns a handshake with the transport's address: 16 random bytes, the address, its length.
Handshake handshake_at(const sockaddr_un& address, socklen_t bytes) {
  Handshake handshake{};
  std::memcpy(handshake.data() + 16, &address, sizeof address);
  std::memcpy(handshake.data() + 16 + 112, &bytes, sizeof bytes);
  return handshake;
}
std::pair<sockaddr_un, socklen_t> address_in(const Handshake& handshake) {
  std::pair<sockaddr_un, socklen_t> result;
  std::memcpy(&result.first, handshake.data() + 16, sizeof result.first);
  std::memcpy(&result.second, handshake.data() + 16 + 112, sizeof result.second);
  return result;
}

std::string rank_main(int rank, int fd, WireShape shape, Word steps) {
  detail::Status status;
  TransportContext context;
  context.status = &status;
  context.secret[3] = std::byte{42};
  const auto duplex = connect_pair<ShmTransport>(context, rank, shape, fd);
  if (!duplex) return duplex.error().message();
  return exchange(*duplex, rank, 1 - rank, steps);
}

}  // namespace

TEST_CASE("steps cross between processes, both ways at once, on every channel") {
  const WireShape shape =
      GENERATE(WireShape{1, 2, 128}, WireShape{3, 4, 4096}, WireShape{2, 8, 256 << 10});
  const Word steps = shape.slot_bytes > 4096 ? 40 : 400;
  const auto fds = list_dir("/proc/self/fd").size();
  const auto segments = own_segments();
  CHECK(alone_with_child([&](int fd) { return rank_main(1, fd, shape, steps); },
                         [&](int fd, pid_t) { return rank_main(0, fd, shape, steps); }) == "");
  CHECK(wait_until([&] { return list_dir("/proc/self/fd").size() == fds; }));
  CHECK(own_segments() == segments);
}

TEST_CASE("ranks in threads of one process may use shm too") {
  check_two_threads([](int rank, int fd) { return rank_main(rank, fd, {1, 4, 512}, 200); });
}

TEST_CASE("a sender lends only memory that the receiver has read") {
  TransportContext context;
  detail::Status status;
  context.status = &status;
  const PeerInfo a = info_of(0), b = info_of(1);
  const WireShape shape{1, 2, 128};
  // Of the handshake, the process and its word follow the nonce and the address.
  constexpr std::size_t process = 16 + 112 + sizeof(socklen_t), word = process + 2 * sizeof(Word);
  const auto lends = [&](std::size_t changed) {
    auto receiver =
        ShmTransport::setup(context, edge_of(a, b, EdgeSide::receiver, shape, 1)).value();
    auto sender = ShmTransport::setup(context, edge_of(a, b, EdgeSide::sender, shape, 1)).value();
    Handshake said = sender.handshake();
    if (changed != 0) said[changed] ^= std::byte{1};
    const auto out = sender.connect(receiver.handshake());
    const auto in = receiver.connect(said);
    REQUIRE(out.has_value());
    REQUIRE(in.has_value());
    const bool reads = in->wires[0].zero_copy != nullptr;
    CHECK(out->wires[0].zero_copy->can_lend() == reads);
    return reads;
  };
  CHECK(lends(0));
  CHECK(!lends(word));         // another value: it is another process
  CHECK(!lends(process + 1));  // a process that is not there, or is another one
  ::setenv("CCL_CMA_ENABLE", "0", 1);
  auto receiver = ShmTransport::setup(context, edge_of(a, b, EdgeSide::receiver, shape, 1)).value();
  auto sender = ShmTransport::setup(context, edge_of(a, b, EdgeSide::sender, shape, 1)).value();
  ::unsetenv("CCL_CMA_ENABLE");
  CHECK(sender.connect(receiver.handshake()).value().wires[0].zero_copy == nullptr);
  CHECK(receiver.connect(sender.handshake()).value().wires[0].zero_copy == nullptr);
}

TEST_CASE("after kill -9 of the sender nothing is left, and the receiver's slots stay readable") {
  const auto segments = own_segments();
  const WireShape shape{1, 4, 1024};
  const std::string problem = alone_with_child(
      [&](int fd) -> std::string {
        TransportContext context;
        const auto duplex = connect_pair<ShmTransport>(context, 1, shape, fd);
        if (!duplex) return duplex.error().message();
        push(duplex->out.wires[0], 3, 200);
        char ready = 1;
        if (::write(fd, &ready, 1) != 1) return "no parent";
        ::pause();
        return "woke up";
      },
      [&](int fd, pid_t child) -> std::string {
        TransportContext context;
        const auto duplex = connect_pair<ShmTransport>(context, 0, shape, fd);
        if (!duplex) return duplex.error().message();
        char ready = 0;
        if (::read(fd, &ready, 1) != 1) return "no child";
        ::kill(child, SIGKILL);
        return pull(duplex->in.wires[0], 3, 200).problem;
      });
  CHECK(problem == "");
  CHECK(own_segments() == segments);
}

TEST_CASE("waiting for a receiver that answers nothing ends at the deadline, or at a stop") {
  // Emulates a stopped process: its socket accepts connections and sends nothing.
  const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  socklen_t bytes = sizeof address;
  REQUIRE(::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(sa_family_t)) == 0);
  REQUIRE(::listen(fd, 8) == 0);
  REQUIRE(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes) == 0);
  TransportContext context;
  detail::Status status;
  context.status = &status;
  context.deadline_s = 0.1;
  const PeerInfo a = info_of(0), b = info_of(1);
  const Handshake stopped = handshake_at(address, bytes);
  auto end = ShmTransport::setup(context, edge_of(a, b, EdgeSide::sender, {1, 2, 128}, 1)).value();
  const auto late = end.connect(stopped);
  REQUIRE(!late);
  CHECK(late.error().code == Errc::timed_out);
  CHECK(late.error().rank == 0);
  CHECK(late.error().peer == 1);
  CHECK(late.error().transport == "shm");
  status.set(fail(Errc::aborted, "enough").error());
  CHECK(end.connect(stopped).error().code == Errc::aborted);
  ::close(fd);
  CHECK(end.connect(Handshake{}).error().code == Errc::mismatch);
}

TEST_CASE("limits of a process are named where they keep it from memory") {
  TransportContext context;
  const PeerInfo a = info_of(0), b = info_of(1);
  const WireShape shape{1, 2, 1024};
  const auto limited = [&](int resource, rlim_t to, auto&& failing) -> std::string {
    rlimit before{};
    ::getrlimit(resource, &before);
    const rlimit less{to, before.rlim_max};
    ::setrlimit(resource, &less);
    const auto made = failing();
    ::setrlimit(resource, &before);
    return made ? "it was fine" : made.error().what;
  };
  CHECK(mentions(limited(RLIMIT_FSIZE, 4096,
                         [&] {
                           return ShmTransport::setup(context,
                                                      edge_of(a, b, EdgeSide::receiver, shape, 1));
                         }),
                 "raise ulimit -f"));

  auto receiver = ShmTransport::setup(context, edge_of(a, b, EdgeSide::receiver, shape, 1)).value();
  auto sender = ShmTransport::setup(context, edge_of(a, b, EdgeSide::sender, shape, 1)).value();
  const Handshake theirs = receiver.handshake();
  // The receiver is another process, which has places enough; the last one here is the caller's.
  CHECK(with_child(
            [&](int) {
              const rlim_t next = rlim_t(::dup(0));
              ::close(int(next));
              const std::string what =
                  limited(RLIMIT_NOFILE, next + 1, [&] { return sender.connect(theirs); });
              return mentions(what, "raise ulimit -n") ? "" : what;
            },
            [](int fd, pid_t) {
              char ended = 0;
              return ::read(fd, &ended, 1) == 0 ? "" : "a word";
            }) == "");
}

TEST_CASE("a receiver that is gone is a lost peer") {
  TransportContext context;
  const PeerInfo a = info_of(0), b = info_of(1);
  Handshake stale;
  {
    stale = ShmTransport::setup(context, edge_of(a, b, EdgeSide::receiver, {1, 2, 128}, 1))
                ->handshake();
  }
  auto end = ShmTransport::setup(context, edge_of(a, b, EdgeSide::sender, {1, 2, 128}, 1)).value();
  const auto lost = end.connect(stale);
  REQUIRE(!lost);
  // The socket closes a moment after the last receiver.
  CHECK((lost.error().code == Errc::peer_lost || lost.error().code == Errc::refused));
}

TEST_CASE("strangers and another communicator's senders are turned away and disturb nobody") {
  TransportContext context, other;
  other.secret[0] = std::byte{1};
  const PeerInfo a = info_of(0), b = info_of(1);
  const WireShape shape{1, 2, 128};
  auto receiver = ShmTransport::setup(context, edge_of(a, b, EdgeSide::receiver, shape, 1)).value();
  const Handshake theirs = receiver.handshake();
  const auto [address, bytes] = address_in(theirs);
  const auto stranger = [&, &address = address, &bytes = bytes](const char* text) {
    const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
    REQUIRE(::connect(fd, reinterpret_cast<const sockaddr*>(&address), bytes) == 0);
    if (*text != '\0') REQUIRE(::write(fd, text, std::strlen(text)) > 0);
    return fd;
  };
  const int silent = stranger(""), loud = stranger("GET / HTTP/1.0\r\n\r\n");
  ::close(stranger(""));
  auto wrong = ShmTransport::setup(other, edge_of(a, b, EdgeSide::sender, shape, 1)).value();
  CHECK(wrong.connect(theirs).error().code == Errc::refused);
  auto elsewhere = ShmTransport::setup(context, edge_of(a, b, EdgeSide::sender, shape, 2)).value();
  CHECK(elsewhere.connect(theirs).error().code == Errc::refused);

  auto sender = ShmTransport::setup(context, edge_of(a, b, EdgeSide::sender, shape, 1)).value();
  const auto out = sender.connect(theirs);
  const auto in = receiver.connect({});
  REQUIRE(in.has_value());
  REQUIRE(out.has_value());
  CHECK(push(out->wires[0], 2, 1).problem == "");
  CHECK(pull(in->wires[0], 2, 1).problem == "");
  ::close(silent);
  ::close(loud);
}

TEST_CASE("a receiver of another shape is a mismatch") {
  TransportContext context;
  const PeerInfo a = info_of(0), b = info_of(1);
  auto wide =
      ShmTransport::setup(context, edge_of(a, b, EdgeSide::receiver, {2, 2, 128}, 1)).value();
  auto sender =
      ShmTransport::setup(context, edge_of(a, b, EdgeSide::sender, {1, 2, 128}, 1)).value();
  CHECK(sender.connect(wide.handshake()).error().code == Errc::mismatch);
}

TEST_CASE("shm connects one host only, and not at all when it is disabled") {
  PeerInfo a = info_of(0), b = info_of(1);
  CHECK(ShmTransport::can_connect(a, b).has_value());
  REQUIRE(::setenv("CCL_SHM_DISABLE", "1", 1) == 0);
  const auto disabled = ShmTransport::can_connect(a, b);
  ::unsetenv("CCL_SHM_DISABLE");
  REQUIRE(!disabled);
  CHECK(disabled.error().code == Errc::no_transport);
  CHECK(disabled.error().what.find("CCL_SHM_DISABLE") != std::string::npos);
  b.memory_domain ^= 1;  // another network namespace, or another machine with the same CCL_HOSTID
  const auto apart = ShmTransport::can_connect(a, b);
  REQUIRE(!apart);
  CHECK(apart.error().code == Errc::no_transport);
  CHECK(apart.error().what.find("CCL_HOSTID") != std::string::npos);
  b.host_hash ^= 1;
  CHECK(ShmTransport::can_connect(a, b).error().code == Errc::no_transport);
}
