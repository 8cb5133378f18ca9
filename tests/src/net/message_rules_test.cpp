// What a rank may say to a root, and a root to a rank, at the extremes of each field.
#include "net/message_rules.hpp"

#include <ccl/detail/runtime/bootstrap.hpp>

#include <functional>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "base/text.hpp"
#include "support/bootstrap_ranks.hpp"
#include "support/error_matchers.hpp"
#include "support/played_rank.hpp"

using namespace ccl;
using namespace ccl::test;
using namespace ccl::detail::net;
using ccl::detail::net::SecureSocket;

namespace {

constexpr int biggest = std::numeric_limits<int>::max(), smallest = std::numeric_limits<int>::min();

Result<void> join(const UniqueId& id, int rank, int ranks) {
  CCL_TRY(const auto made, detail::Bootstrap::join({&id, 1}, rank, ranks, {20, nullptr}));
  return made->finalize();
}

/// A root that a test plays: the only rank that joins is honest.
struct PlayedRoot {
  PlayedRoot() {
    IdContent content;
    content.secret.fill(std::byte{42});
    content.root = gate.address().wire();
    id = pack(content);
  }
  /// The error of rank 0 of three after this frame.
  Error error_after(const FrameHeader& header, Bytes payload) {
    Result<void> made;
    std::jthread rank{[&] { made = join(id, 0, 3); }};
    auto one = gate.accept(soon(), nullptr);
    REQUIRE(one.has_value());
    write_frame(one->socket, header, payload);
    rank.join();
    REQUIRE_FALSE(made.has_value());
    return made.error();
  }
  Secret secret = [] {
    Secret s;
    s.fill(std::byte{42});
    return s;
  }();
  AuthListener gate = listen(secret);
  UniqueId id;
};

void check_damage(PlayedRoot& root, const Error& error, const char* why) {
  INFO(error.message() << "\nexpected: " << why);
  CHECK(error.code == Errc::mismatch);
  CHECK(mentions(error.what, why));
  CHECK(mentions(error.what, "the root sent rank 0 on"));
  (void)root;
}

}  // namespace

TEST_CASE("a root refuses a hello that does not fit, and serves its ranks afterwards") {
  const Interfaces lo;
  const UniqueId id = some_ids(1)[0];
  const IdContent root = unpack(id).value();
  const AuthListener gate = listen(root.secret);
  const Member me = this_member(0, gate.address().wire());
  const auto refusal = [&](const std::function<void(Hello&)>& damage, const char* why) {
    Hello hello{HelloKind::join, 2, 1, 0, me};
    damage(hello);
    const std::string text = read_notice(call(root.root, root.secret, hello));
    INFO(text << "\nexpected: " << why);
    CHECK(mentions(text, why));
    CHECK(mentions(text, "sent the root"));
  };
  refusal([](Hello& h) { h.kind = HelloKind::ring; }, "purpose is 2, not 1");
  refusal([](Hello& h) { h.kind = HelloKind(0); }, "purpose is 0");
  refusal([](Hello& h) { h.ranks = 0; }, "number of ranks is 0, not from 1 to 1048576");
  refusal([](Hello& h) { h.ranks = smallest; }, "number of ranks is -2147483648");
  refusal([](Hello& h) { h.ranks = biggest; }, "number of ranks is 2147483647");
  refusal([](Hello& h) { h.roots = 0; }, "number of ids is 0, not from 1 to 2");
  refusal([](Hello& h) { h.roots = 3; }, "number of ids is 3");
  refusal([](Hello& h) { h.root = 1; }, "index of the id is 1, not 0");
  refusal([](Hello& h) { h.root = -1; }, "index of the id is -1");
  refusal([](Hello& h) { h.me.rank = 2; }, "rank is 2, not from 0 to 1");
  refusal([](Hello& h) { h.me.rank = -1; }, "rank is -1");
  refusal([](Hello& h) { h.me.rank = biggest; }, "rank is 2147483647");
  refusal([](Hello& h) { h.me.pid = smallest; }, "pid is -2147483648");
  refusal([](Hello& h) { h.me.listen = {}; }, "family is 0");
  refusal([](Hello& h) { h.me.listen.port = 0; }, "port is 0");
  refusal([](Hello& h) { std::memset(h.me.host, 'x', sizeof h.me.host); }, "host has no end");
  CHECK(mentions(read_notice(call(root.root, root.secret, std::array<char, 7>{})),
                 "its hello is none of a rank"));
  all_ok(on_ranks(2, [&](int rank) { return join(id, rank, 2); }));
}

TEST_CASE("a frame that a root cannot receive fails all of its ranks") {
  const Interfaces lo;
  const auto all_fail = [](const FrameHeader& header, Bytes payload, const char* why) {
    const UniqueId id = some_ids(1)[0];
    Result<void> made;
    std::jthread honest{[&] { made = join(id, 0, 2); }};
    const PlayedRank played{id, 2};
    (void)read_frame(played.to_root, FrameKind::next);  // all have joined
    write_frame(played.to_root, header, payload);
    honest.join();
    REQUIRE_FALSE(made.has_value());
    INFO(made.error().message() << "\nexpected: " << why);
    CHECK(made.error().code == Errc::mismatch);
    CHECK(made.error().peer == 1);
    CHECK(mentions(made.error().what, why));
    CHECK(mentions(made.error().what, "rank 1 on"));
    CHECK(mentions(made.error().what, "sent the root"));
  };
  const std::vector<std::byte> member(sizeof(Member));
  all_fail({FrameKind(13), 1, 0, 0}, {}, "kind of frame is 13");
  all_fail({FrameKind::message, 1, 0, 0}, {}, "a message frame, which no root receives");
  all_fail({FrameKind::part, 1, 0, 0}, {}, "a part frame");
  all_fail({FrameKind::token, 1, 0, 0}, {}, "a token frame");
  all_fail({FrameKind::next, 1, 0, sizeof(Member)}, member, "a next frame");
  all_fail({FrameKind::release, 1, 0, 0}, {}, "a release frame");
  all_fail({FrameKind::formed, 0, 0, 0}, {}, "rank of a formed frame is 0, not 1");
  all_fail({FrameKind::goodbye, 5, 0, 0}, {}, "rank of a goodbye frame is 5, not 1");
  all_fail({FrameKind::message, 1, 0, std::uint64_t{1} << 40}, {},
           "length of a message frame is 1099511627776, not from 0 to 67108864");
  RootNotice notice = to_notice({Errc::aborted, "a test"});
  notice.code = 0;
  all_fail({FrameKind::notice, 1, 0, sizeof notice}, bytes_of(notice), "error code is 0");
}

TEST_CASE("a rank refuses what no root sends") {
  const Interfaces lo;
  PlayedRoot root;
  const auto next_is = [&](const std::function<void(Member&)>& damage, const char* why) {
    Member member = this_member(1, root.gate.address().wire());
    damage(member);
    check_damage(root, root.error_after({FrameKind::next, -1, 0, sizeof member}, bytes_of(member)),
                 why);
  };
  next_is([](Member& m) { m.rank = 2; }, "rank is 2, not 1");
  next_is([](Member& m) { m.rank = biggest; }, "rank is 2147483647, not 1");
  next_is([](Member& m) { m.listen.family = 5; }, "family is 5");
  next_is([](Member& m) { std::memset(m.host, 'x', sizeof m.host); }, "host has no end");
  const auto progress_is = [&](const std::function<void(Progress&)>& damage, const char* why,
                               std::uint64_t tag = 0) {
    Progress progress{1, 3, -1, 2, {1, 2}};
    damage(progress);
    check_damage(
        root, root.error_after({FrameKind::progress, -1, tag, sizeof progress}, bytes_of(progress)),
        why);
  };
  progress_is([](Progress& p) { p.missing_count = 9; }, "number of missing ranks is 9, not from 0");
  progress_is([](Progress& p) { p.missing_count = -1; }, "number of missing ranks is -1");
  progress_is([](Progress& p) { p.missing[1] = 3; }, "missing rank is 3, not from 0 to 2");
  progress_is([](Progress& p) { p.missing[0] = smallest; }, "missing rank is -2147483648");
  progress_is([](Progress& p) { p.expected = 0; }, "number of expected ranks is 0");
  progress_is([](Progress& p) { p.expected = 77; }, "number of expected ranks is 77");
  progress_is([](Progress& p) { p.joined = 4; }, "number of joined ranks is 4");
  progress_is([](Progress& p) { p.root_rank = 3; }, "rank of the root is 3, not from -1 to 2");
  progress_is([](Progress& p) { p.root_rank = -2; }, "rank of the root is -2");
  progress_is([](Progress&) {}, "index of the root is 18446744073709551615", ~std::uint64_t{0});
  const auto frame_is = [&](const FrameHeader& header, Bytes payload, const char* why) {
    check_damage(root, root.error_after(header, payload), why);
  };
  frame_is({FrameKind::message, -1, 0, 0}, {}, "a message frame from a root");
  frame_is({FrameKind::part, 1, 0, 0}, {}, "a part frame from a root");
  frame_is({FrameKind::goodbye, -1, 0, 0}, {}, "a goodbye frame from a root");
  frame_is({FrameKind::next, -1, 0, 1}, {}, "length of a next frame is 1, not 80");
  frame_is({FrameKind::progress, -1, 0, ~std::uint64_t{0}}, {}, "length of a progress frame is");
  RootNotice notice = to_notice({Errc::aborted, "a test"});
  notice.code = biggest;
  frame_is({FrameKind::notice, -1, 0, sizeof notice}, bytes_of(notice), "error code is 2147483647");
}

TEST_CASE("a unique id with damaged content is refused") {
  const auto damaged = [](const std::function<void(IdContent&)>& damage) {
    IdContent content;
    content.root = Address::parse("127.0.0.1:80").value().wire();
    damage(content);
    const auto read = UniqueId::from_string(pack(content).to_string());
    return read ? std::string{} : read.error().what;
  };
  CHECK(damaged([](IdContent&) {}).empty());
  CHECK(mentions(damaged([](IdContent& c) { c.root.family = 3; }), "family is 3"));
  CHECK(mentions(damaged([](IdContent& c) { c.root.port = 0; }), "port is 0"));
  CHECK(mentions(damaged([](IdContent& c) { c.root_rank = -2; }), "rank of the root is -2"));
  CHECK(mentions(damaged([](IdContent& c) { c.root_rank = biggest; }), "rank of the root is 214"));
}

TEST_CASE("a text that is too long for a notice ends with a whole character") {
  std::string what;
  while (what.size() < 2 * sizeof(RootNotice::what)) what += "\xc3\xa9";
  for (const std::string before : {"", "x"}) {
    const Error received = to_error(to_notice({Errc::aborted, before + what}));
    CHECK(detail::is_utf8(received.what));
    CHECK(received.what.size() >= sizeof(RootNotice::what) - 2);
  }
}
