// Shrink whose last barrier one rank passes and the other does not. The other is emulated, so that
// it fails at that moment each time.
#include <ccl/detail/runtime/bootstrap.hpp>

#include <cstring>
#include <thread>
#include <vector>

#include "net/crypto/sha256.hpp"
#include "net/rendezvous.hpp"
#include "support/bootstrap_ranks.hpp"
#include "support/error_matchers.hpp"
#include "support/played_rank.hpp"

using namespace ccl;
using namespace ccl::test;
using namespace ccl::detail::net;
using ccl::detail::net::SecureSocket;

namespace {

/// Two ranks' all-gather, from the second one's side.
template <class T>
T swap(const SecureSocket& next, const SecureSocket& prev, const char* kind, std::uint64_t number,
       const T& mine) {
  auto out = part_of(kind, mine);
  write_frame(next, {FrameKind::part, 1, number, sizeof out}, bytes_of(out));
  REQUIRE(read_into(out, read_frame(prev, FrameKind::part)));
  return out.value;
}

}  // namespace

TEST_CASE("who alone has passed the last barrier of a shrink gets an error, as the others do") {
  const Interfaces lo;
  const UniqueId id = create_unique_id().value();
  Result<void> made;
  std::jthread real{[&] {
    made = [&]() -> Result<void> {
      CCL_TRY(const auto b, detail::Bootstrap::join({&id, 1}, 0, 2, {20, nullptr}));
      CCL_CHECK(b->shrink({}, {20, nullptr}));
      return {};
    }();
  }};

  const IdContent root = unpack(id).value();
  const Secret& secret = root.secret;
  AuthListener acceptor = listen(secret);
  const Member me = this_member(1, acceptor.address().wire());
  const SecureSocket to_root = call(root.root, secret, Hello{HelloKind::join, 2, 1, 0, me});
  Member other;
  REQUIRE(read_into(other, read_frame(to_root, FrameKind::next)));
  const SecureSocket next = call(other.listen, secret, Hello{HelloKind::ring, 2, 0, 0, me});
  const SecureSocket prev = accept(acceptor, HelloKind::ring);
  write_frame(to_root, {FrameKind::formed, 1, 0, 0}, {});
  (void)swap(next, prev, "the formation of the ring", 0, me);

  // The ring of those who stay, here both.
  ShrinkHello stay{{HelloKind::stay, 2, 0, 0, me}};
  stay.excluded = hmac_sha256(secret, {});
  const SecureSocket rest_next = call(other.listen, secret, stay);
  const SecureSocket rest_prev = accept(acceptor, HelloKind::stay);
  const SecureSocket watched = accept(acceptor, HelloKind::watch);
  struct Entry {
    std::int32_t color = 0, key = 0;
    std::array<std::byte, 16> random{};
  };
  const Entry theirs = swap(rest_next, rest_prev, "shrink", 0, Entry{});
  std::vector<std::byte> text(theirs.random.begin(), theirs.random.end());
  text.resize(32);
  const Secret child_secret = derived_secret(secret, text);
  AuthListener child_gate = listen(child_secret);
  const Member child = this_member(1, child_gate.address().wire());
  const Member child_other = swap(rest_next, rest_prev, "shrink", 1, child);
  const SecureSocket child_next =
      call(child_other.listen, child_secret, Hello{HelloKind::ring, 2, 0, 0, child});
  const SecureSocket child_prev = accept(child_gate, HelloKind::ring);

  // All have arrived. This rank fails, and queries the other, which has not passed yet.
  (void)read_frame(rest_prev, FrameKind::token);
  const SecureSocket asks =
      call(child_other.listen, child_secret, Hello{HelloKind::ask, 2, 0, 0, child});
  char yes = 1;
  REQUIRE(recv_all(asks.get(), &yes, sizeof yes, soon(), nullptr).has_value());
  CHECK(yes == 0);
  // This rank then passes, and queries too.
  write_frame(rest_next, {FrameKind::token, 0, 1, 0}, {});
  const SecureSocket asked = accept(child_gate, HelloKind::ask);
  REQUIRE(send_all(asked.get(), &yes, sizeof yes, soon(), nullptr).has_value());
  const RootNotice why = to_notice({Errc::peer_lost, "a rank died in a test"});
  write_frame(rest_next, {FrameKind::notice, 1, 0, sizeof why}, bytes_of(why));
  real.join();
  REQUIRE_FALSE(made.has_value());
  INFO(made.error().message());
  CHECK(made.error().code == Errc::peer_lost);
  CHECK(mentions(made.error().what, "a rank died in a test"));
}
