#include "net/auth.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <thread>

#include "support/catch.hpp"
#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

using namespace ccl;
using namespace ccl::detail::net;
using ccl::detail::Fd;

namespace {

Bytes bytes_of(std::string_view s) {
  return std::as_bytes(std::span{s.data(), s.size()});
}
Address loopback(int family = AF_INET) {
  return Address::parse(family == AF_INET ? "127.0.0.1:0" : "[::1]:0").value();
}
Secret secret_of(int n) {
  Secret s{};
  s[0] = std::byte(n);
  return s;
}
// True if the other end has not closed its direction.
bool is_open(const Fd& fd) {
  pollfd one{fd.get(), POLLRDHUP, 0};
  return ::poll(&one, 1, 0) == 0;
}
// Fails instead of waiting for ever.
bool closes(int fd) {
  char c;
  for (;;) {
    const auto r = recv_all(fd, &c, 1, Deadline::after(20), nullptr);
    if (!r) return r.error().code == Errc::network;
  }
}

}  // namespace

TEST_CASE("a call that is aborted before it could prove itself says so") {
  const auto slow = listen_at(loopback());  // never greets
  REQUIRE(slow.has_value());
  const Address there = bound_address(slow->get()).value();
  detail::Status status;
  Errc code{};
  std::thread caller{[&] {
    const auto fd = auth_connect(there, secret_of(1), bytes_of("me"), Deadline::after(20), &status);
    code = fd ? Errc::internal : fd.error().code;
  }};
  pollfd one{slow->get(), POLLIN, 0};
  CHECK(::poll(&one, 1, 20'000) == 1);
  status.set({Errc::aborted, "enough"});
  caller.join();
  CHECK(code == Errc::aborted);
  const Fd fd{::accept(slow->get(), nullptr, nullptr)};
  REQUIRE(fd);
  unsigned char said[8]{};
  CHECK(recv_all(fd.get(), said, sizeof said, Deadline::after(20), nullptr).has_value());
  CHECK(std::memcmp(said, "ccl\2\xff\xff\xff\xff", sizeof said) == 0);

  // The listener is then closed.
  CHECK_FALSE(
      auth_connect(there, secret_of(1), bytes_of("me"), Deadline::after(20), &status).has_value());
  CHECK(::poll(&one, 1, 0) == 0);
}

TEST_CASE("a call whose time is over before it could prove itself says so") {
  const auto stopped = listen_at(loopback());  // greets nobody until it goes on
  REQUIRE(stopped.has_value());
  const Address there = bound_address(stopped->get()).value();
  const auto fd = auth_connect(there, secret_of(1), bytes_of("me"), Deadline::after(0.1), nullptr);
  REQUIRE_FALSE(fd.has_value());
  CHECK(fd.error().code == Errc::timed_out);
  const Fd caller{::accept(stopped->get(), nullptr, nullptr)};
  REQUIRE(caller);
  unsigned char said[8]{};
  CHECK(recv_all(caller.get(), said, sizeof said, Deadline::after(20), nullptr).has_value());
  CHECK(std::memcmp(said, "ccl\2\xff\xff\xff\xff", sizeof said) == 0);
}

TEST_CASE("a connection with the secret carries bytes both ways") {
  const auto where = GENERATE(0, 1, 2);
  const Address at = where == 0   ? loopback()
                     : where == 1 ? loopback(AF_INET6)
                                  : Address::unix_name(fmt::format("ccl{}", ::getpid()));
  auto listener = AuthListener::listen(at, secret_of(1)).value();
  const auto soon = Deadline::after(20);
  // Connect first, accept later, in one thread: the engine does the other half.
  auto second = auth_connect(listener.address(), secret_of(1), bytes_of("two"), soon, nullptr);
  auto first = auth_connect(listener.address(), secret_of(1), bytes_of("one"), soon, nullptr);
  REQUIRE(first);
  REQUIRE(second);
  auto accepted = listener.accept(soon, nullptr, [](Bytes hello) { return char(hello[0]) == 'o'; });
  REQUIRE(accepted);
  CHECK(accepted->hello.size() == 3);
  int x = 42, y = 0;
  REQUIRE(send_all(first->get(), &x, sizeof x, soon, nullptr));
  REQUIRE(recv_all(accepted->socket.get(), &y, sizeof y, soon, nullptr));
  CHECK(y == 42);
  CHECK(listener.accept(soon, nullptr)->hello.size() == 3);
}

TEST_CASE("strangers are refused and delay nobody") {
  auto listener = AuthListener::listen(loopback(), secret_of(1)).value();
  const auto soon = Deadline::after(30);
  std::vector<Fd> silent;
  const auto add_silent = [&] {
    for (int i = 0; i < 20; ++i) {
      silent.push_back(std::move(*connect_once(listener.address(), soon, nullptr)));
    }
  };
  add_silent();
  Fd garbage = std::move(*connect_once(listener.address(), soon, nullptr));
  REQUIRE(send_all(garbage.get(), "GET / HTTP/1.0\r\n\r\n", 18, soon, nullptr));
  Fd half = std::move(*connect_once(listener.address(), soon, nullptr));
  REQUIRE(send_all(half.get(), "ccl\2\0\0", 6, soon, nullptr));
  ::shutdown(half.get(), SHUT_WR);
  Fd huge = std::move(*connect_once(listener.address(), soon, nullptr));
  Claim large;
  large.hello_bytes = 0x7fffffff;
  REQUIRE(send_all(huge.get(), &large, sizeof large, soon, nullptr));
  const auto wrong = auth_connect(listener.address(), secret_of(2), {}, soon, nullptr);
  REQUIRE_FALSE(wrong);
  CHECK(wrong.error().code == Errc::refused);
  // A rank is served while the silent ones hold their connections, for 5 s. A machine that was too
  // slow for that tries again, with new ones.
  const auto serve_beside_silent = [&] {
    REQUIRE(auth_connect(listener.address(), secret_of(1), {}, soon, nullptr));
    REQUIRE(listener.accept(soon, nullptr));
    return std::ranges::all_of(silent, is_open);
  };
  bool beside = serve_beside_silent();
  for (int attempt = 0; attempt < 3 && !beside; ++attempt) {
    silent.clear();
    add_silent();
    beside = serve_beside_silent();
  }
  CHECK(beside);
  CHECK(closes(garbage.get()));
  CHECK(closes(half.get()));
  CHECK(closes(huge.get()));
  for (const Fd& fd : silent) CHECK(closes(fd.get()));
  CHECK(listener.accept(Deadline::after(0), nullptr).error().code == Errc::timed_out);
}

TEST_CASE("a caller checks the listener too, and waits end") {
  const auto listener = listen_at(loopback()).value();
  const Address at = bound_address(listener.get()).value();
  // The peer never answers: the listening queue accepts the connection, and no thread serves it.
  const auto find_unresponsive = auth_connect(at, secret_of(1), {}, Deadline::after(0.2), nullptr);
  CHECK(find_unresponsive.error().code == Errc::timed_out);
  CHECK(find_unresponsive.error().what.find(at.to_string() + " says nothing") != std::string::npos);
  detail::Status status;
  Error stop;
  stop.code = Errc::aborted;
  status.set(stop);
  CHECK(auth_connect(at, secret_of(1), {}, Deadline::after(20), &status).error().code ==
        Errc::aborted);
  std::thread liar{[&] {
    for (int i = 0; i < 2; ++i) {  // the two callers above
      Fd{::accept(listener.get(), nullptr, nullptr)};
    }
    if (!wait_ready(listener.get(), POLLIN, Deadline::after(20), nullptr)) return;
    Fd fd{::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK)};
    const Greeting greeting;
    if (!send_all(fd.get(), &greeting, sizeof greeting, Deadline::after(20), nullptr)) return;
    // It sends the caller's own proof back.
    std::array<std::byte, sizeof(Claim) + sizeof(Digest)> message;
    if (!recv_all(fd.get(), message.data(), message.size(), Deadline::after(20), nullptr)) return;
    (void)send_all(fd.get(), message.data() + sizeof(Claim), sizeof(Digest), Deadline::after(20),
                   nullptr);
  }};
  const auto fooled = auth_connect(at, secret_of(1), {}, Deadline::after(20), nullptr);
  liar.join();
  REQUIRE_FALSE(fooled);
  CHECK(fooled.error().code == Errc::refused);
}

TEST_CASE("who was there and is gone is not waited for") {
  Address at;
  {
    auto listener = AuthListener::listen(loopback(), secret_of(1)).value();
    at = listener.address();
  }
  const auto deadline = Deadline::after(3600);
  const auto gone = auth_connect(at, secret_of(1), {}, deadline, nullptr, Listener::has_started);
  REQUIRE_FALSE(gone);
  CHECK(gone.error().code == Errc::peer_lost);
  CHECK(gone.error().os_code == ECONNREFUSED);
}

TEST_CASE("the last descriptor is enough for a caller") {
  auto listener = AuthListener::listen(loopback(), secret_of(1)).value();
  std::vector<Fd> taken;
  for (;;) {
    Fd fd{::open("/dev/null", O_RDONLY | O_CLOEXEC)};
    if (!fd) break;
    taken.push_back(std::move(fd));
  }
  REQUIRE(taken.size() > 2);
  taken.resize(taken.size() - 2);  // for the two ends
  const auto soon = Deadline::after(30);
  const auto caller = auth_connect(listener.address(), secret_of(1), {}, soon, nullptr);
  const auto accepted = listener.accept(soon, nullptr);
  taken.clear();
  INFO((caller ? std::string{} : caller.error().message()));
  CHECK(caller.has_value());
  CHECK(accepted.has_value());
}

TEST_CASE("a free port refuses until the deadline, and a late listener is found") {
  Address at;
  {
    auto taken = AuthListener::listen(loopback(), secret_of(1)).value();
    at = taken.address();
  }
  CHECK(auth_connect(at, secret_of(1), {}, Deadline::after(0.1), nullptr).error().code ==
        Errc::timed_out);
  std::thread late{[&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    auto listener = AuthListener::listen(at, secret_of(1));
    if (listener) (void)listener->accept(Deadline::after(20), nullptr);
  }};
  CHECK(auth_connect(at, secret_of(1), {}, Deadline::after(20), nullptr));
  late.join();
}
