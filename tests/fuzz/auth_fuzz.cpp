// What a caller and a listener send before they have proved the secret, and a hello after it.
#include <algorithm>
#include <atomic>
#include <thread>

#include "fuzz/fuzz.hpp"
#include "net/auth.hpp"
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace ccl::fuzz {

using namespace detail;
using namespace detail::net;

namespace {

const Secret secret = secret_of_text({});
std::atomic<int> accepted{0};

Address own_name(const char* purpose) {
  return Address::unix_name(std::string{"ccl.fuzz.auth "} + purpose + std::to_string(::getpid()));
}
std::shared_ptr<Acceptor>& acceptor() {
  static std::shared_ptr<Acceptor> one;
  return one;
}

/// Sends bytes to the listener and returns its bytes after the greeting.
std::string answer_to(const std::function<std::string(const Greeting&)>& message) {
  const auto soon = Deadline::after(10);
  const auto fd = connect_once(acceptor()->address(), soon, nullptr);
  demand(fd.has_value(), "no connection to the listener");
  Greeting greeting;
  demand(recv_all(fd->get(), &greeting, sizeof greeting, soon, nullptr).has_value(), "no greeting");
  const std::string bytes = message(greeting);
  (void)send_all(fd->get(), bytes.data(), Index(bytes.size()), soon, nullptr);
  ::shutdown(fd->get(), SHUT_WR);
  std::string out;
  for (char c = 0; recv_all(fd->get(), &c, 1, soon, nullptr);) out += c;
  demand(!soon.passed(), "a listener that keeps a caller");
  return out;
}

void claim_anything(Source source) {
  const int before = accepted;
  const std::string bytes{text_of(source.rest())};
  demand(answer_to([&](const Greeting&) { return bytes; }).empty(), "an answer without a proof");
  demand(accepted == before, "a caller without a proof is accepted");
}

/// A caller that knows the secret, with any hello and terms.
void claim_with_secret(Source source) {
  const auto encryption = source.take<Encryption>();
  const auto mode = source.take<std::uint8_t>() % 8 == 0 ? ProofMode::exchange : ProofMode::hmac;
  const Input hello = source.rest();
  bool right = false;
  const std::string answer = answer_to([&](const Greeting& greeting) {
    Claim claim;
    claim.hello_bytes = std::uint32_t(hello.size());
    claim.terms.encryption = encryption;
    claim.terms.mode = mode;
    right = mode == greeting.terms.mode && Index(hello.size()) <= max_hello_bytes;
    const auto keys = handshake_keys(secret, HandshakeSide::caller, {}, greeting, claim, hello);
    return bytes_of(claim) + std::string{text_of(hello)} + bytes_of(keys->caller_tag);
  });
  demand(answer.size() == (right ? sizeof(Digest) : 0), "another answer than the claim deserves");
}

/// A listener that does not know the secret.
void greet_with_anything(Source source) {
  const auto listener = listen_at(own_name("greeter"));
  demand(listener.has_value(), "no socket");
  const Address at = bound_address(listener->get()).value();
  std::thread greets{[&] {
    if (!wait_ready(listener->get(), POLLIN, Deadline::after(10), nullptr)) return;
    const Fd fd{::accept4(listener->get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)};
    const Input bytes = source.rest();
    (void)send_all(fd.get(), bytes.data(), Index(bytes.size()), Deadline::after(1), nullptr);
    ::shutdown(fd.get(), SHUT_WR);
    char some[4096];
    while (recv_all(fd.get(), some, 1, Deadline::after(1), nullptr)) {
    }
  }};
  const auto made = auth_connect(at, secret, {}, Deadline::after(0.02), nullptr);
  greets.join();
  demand(!made, "a listener that does not know the secret is believed");
}

}  // namespace

void prepare() {
  const std::lock_guard lock{Engine::get().mutex()};
  auto opened = Acceptor::open(own_name("acceptor"), secret, [](Accepted) { ++accepted; });
  demand(opened.has_value(), "no listener");
  acceptor() = *opened;
}

void read(Input input) {
  Source source{input};
  const auto what = source.take<std::uint8_t>() % 8;
  if (what < 4) return claim_anything(source);
  if (what < 7) return claim_with_secret(source);
  greet_with_anything(source);
}

std::vector<std::string> seeds() {
  Claim claim, close_notify;
  claim.hello_bytes = 3;
  close_notify.hello_bytes = Claim::gives_up;
  const std::string anything{'\0'}, with_secret{'\4'}, greets{'\7'};
  Greeting exchange;
  exchange.terms.mode = ProofMode::exchange;
  const char busy[32] = {'c', 'c', 'l', 'b'};
  return {anything + bytes_of(claim, Digest{}) + "abc",
          anything + bytes_of(close_notify),
          anything + "GET / HTTP/1.0\r\n\r\n",
          with_secret + bytes_of(Encryption::off, std::uint8_t{1}) + "a hello",
          with_secret + bytes_of(Encryption::full, std::uint8_t{1}) + std::string(1024, 'x'),
          greets + bytes_of(Greeting{}, Digest{}),
          greets + bytes_of(exchange, Digest{}),
          greets + bytes_of(busy),
          greets + bytes_of(Greeting{}, busy)};
}

}  // namespace ccl::fuzz
