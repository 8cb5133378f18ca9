// Hellos and frames that ranks with the secret send to a root.
#include "fuzz/fuzz.hpp"
#include "net/engine.hpp"
#include "net/message_rules.hpp"
#include "net/rendezvous.hpp"
#include "net/root.hpp"
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace ccl::fuzz {

using namespace detail;
using namespace detail::net;

namespace {

constexpr int ranks = 4, max_callers = 6;

const Secret secret = secret_of_text({});

Hello join_of(int rank) {
  const auto at = Address::parse("127.0.0.1:" + std::to_string(7000 + rank)).value().wire();
  return {HelloKind::join, ranks, 1, 0, this_member(rank, at)};
}

/// Connects one caller of the input, which sends its frames.
void call(Source& source, const Address& root, std::vector<SecureSocket>& callers) {
  const auto what = source.take<std::uint8_t>();
  const Hello hello = what % 4 == 0 ? source.take<Hello>() : join_of(what / 4 % ranks);
  const Input frames = source.take_bytes(8 * source.take<std::uint8_t>());
  auto socket = auth_connect(root, secret, bytes_of(hello), Deadline::after(10), nullptr,
                             Listener::has_started);
  if (!socket) return;  // the root has ended
  (void)send_all(socket->get(), frames.data(), Index(frames.size()), Deadline::after(1), nullptr);
  callers.push_back(*std::move(socket));
}

/// Ends the callers, and waits until the root has read what they sent.
void end_all(const std::vector<SecureSocket>& callers) {
  for (const SecureSocket& caller : callers) ::shutdown(caller.get(), SHUT_WR);
  for (const SecureSocket& caller : callers) {
    std::byte some[1024];
    const auto soon = Deadline::after(10);
    while (wait_ready(caller.get(), POLLIN, soon, nullptr) &&
           ::recv(caller.get(), some, sizeof some, 0) > 0) {
    }
    demand(!soon.passed(), "a root that keeps a caller that has left");
  }
}

}  // namespace

void prepare() {}

void read(Input input) {
  Source source{input};
  static int number = 0;
  const auto at = open_root(Address::unix_name("ccl.fuzz.root " + std::to_string(::getpid()) + " " +
                                               std::to_string(number++)),
                            secret, -1);
  demand(at.has_value(), "no root");
  std::vector<SecureSocket> callers;
  while (!source.empty() && int(callers.size()) < max_callers) call(source, *at, callers);
  end_all(callers);
  IdContent content;
  content.secret = secret;
  end_root(pack(content));
}

std::vector<std::string> seeds() {
  const auto frame = [](FrameKind kind, int rank, const auto& payload) {
    std::string text = fuzz::bytes_of(FrameHeader{kind, rank, 0, sizeof payload}, payload);
    text.resize((text.size() + 7) / 8 * 8);
    return text;
  };
  const auto caller = [](int what, const std::string& frames) {
    return std::string{char(what), char(frames.size() / 8)} + frames;
  };
  const std::string formed = fuzz::bytes_of(FrameHeader{FrameKind::formed, 1, 0, 0});
  const std::string left = fuzz::bytes_of(FrameHeader{FrameKind::goodbye, 1, 0, 0});
  const RootNotice notice = to_notice({Errc::aborted, "a fuzzed error", -1, 2});
  std::string all;
  for (int rank = 0; rank < ranks; ++rank) {
    all += caller(1 + 4 * rank, fuzz::bytes_of(FrameHeader{FrameKind::formed, rank, 0, 0}));
  }
  const std::string any = std::string{'\0'} + fuzz::bytes_of(join_of(2)) + std::string{'\0'};
  return {all, caller(5, formed + left) + caller(1, {}),
          caller(9, frame(FrameKind::notice, 2, notice)), any + caller(9, {}) + any,
          caller(1, frame(FrameKind::part, 0, notice))};
}

}  // namespace ccl::fuzz
