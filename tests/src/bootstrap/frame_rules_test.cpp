// A rank that knows the secret and breaks the protocol: every other rank gets an error that names
// both ends and the field, and none crashes or waits.
#include <ccl/detail/runtime/bootstrap.hpp>

#include <fmt/format.h>

#include <functional>
#include <latch>
#include <limits>
#include <thread>
#include <vector>

#include "net/message_rules.hpp"
#include "support/bootstrap_ranks.hpp"
#include "support/error_matchers.hpp"
#include "support/played_rank.hpp"

using namespace ccl;
using namespace ccl::test;
using namespace ccl::detail::net;
using ccl::detail::net::SecureSocket;

namespace {

constexpr int ranks = 3, bad = 2;
constexpr std::uint64_t endless = std::numeric_limits<std::uint64_t>::max();
constexpr int biggest = std::numeric_limits<int>::max(), smallest = std::numeric_limits<int>::min();

/// Ranks 0 and 1 of a job of three, each on a thread, until an error or the end of `recv`.
class HonestRanks {
 public:
  explicit HonestRanks(const UniqueId& id) {
    for (int rank = 0; rank < bad; ++rank) {
      threads_.emplace_back([this, id, rank] {
        const auto run = [&]() -> Result<void> {
          CCL_TRY(const auto b, detail::Bootstrap::join({&id, 1}, rank, ranks, {20, nullptr}));
          joined_.count_down();
          CCL_CHECK(b->recv(bad, 7, 20));
          return {};
        };
        if (auto done = run(); !done) errors_[rank] = std::move(done).error();
      });
    }
  }
  /// Blocks until both have joined.
  void wait_joined() { joined_.wait(); }
  const Error& error(int rank) {
    for (auto& thread : threads_) {
      if (thread.joinable()) thread.join();
    }
    return errors_[rank];
  }
  void all_fail(Errc code, const std::string& text) {
    for (int rank = 0; rank < bad; ++rank) {
      const Error& e = error(rank);
      INFO("rank " << rank << ": " << e.message() << "\nexpected: " << text);
      CHECK(e.code == code);
      CHECK(e.peer == bad);
      CHECK(mentions(e.what, text.c_str()));
    }
  }

 private:
  Error errors_[bad] = {{Errc::ok, "", -1}, {Errc::ok, "", -1}};
  std::latch joined_{bad};
  std::vector<std::jthread> threads_;
};

struct BadFrame {
  FrameHeader header;
  std::vector<std::byte> payload;
  std::string why;
};
std::vector<std::byte> zeros(std::size_t bytes) {
  return std::vector<std::byte>(bytes);
}
template <class T>
std::vector<std::byte> copy_of(const T& value) {
  const Bytes bytes = bytes_of(value);
  return {bytes.begin(), bytes.end()};
}
BadFrame bad_notice(const std::function<void(RootNotice&)>& damage, std::string why) {
  RootNotice notice = to_notice({Errc::aborted, "a test", -1, bad});
  damage(notice);
  return {{FrameKind::notice, bad, 0, sizeof notice}, copy_of(notice), std::move(why)};
}

/// Frames from the previous rank of rank 0.
std::vector<BadFrame> bad_frames() {
  constexpr auto head = std::uint64_t{96};  // of a part
  std::vector<BadFrame> all{
      {{FrameKind(0), bad, 0, 0}, {}, "kind of frame is 0, not from 1 to 11"},
      {{FrameKind(99), bad, 0, 0}, {}, "kind of frame is 99"},
      {{FrameKind(~0u), bad, 0, 0}, {}, "kind of frame is 4294967295"},
      {{FrameKind::message, bad, 1, max_message_bytes + 1}, {}, "length of a message frame is"},
      {{FrameKind::message, bad, 1, endless}, {}, "length of a message frame is 18446744073709"},
      {{FrameKind::message, 1, 1, 0}, {}, "rank of a message frame is 1, not 2"},
      {{FrameKind::message, biggest, 1, 0}, {}, "rank of a message frame is 2147483647"},
      {{FrameKind::message, smallest, 1, 0}, {}, "rank of a message frame is -2147483648"},
      {{FrameKind::part, 0, 1, head}, zeros(head), "owner of a part is 0"},
      {{FrameKind::part, 77, 1, head}, zeros(head), "owner of a part is 77"},
      {{FrameKind::part, -1, 1, head}, zeros(head), "owner of a part is -1"},
      {{FrameKind::part, 1, 1, head}, zeros(head), "a part of rank 1 from the previous rank"},
      {{FrameKind::part, bad, 1, 5}, zeros(5), "length of a part is 5, not from 96"},
      {{FrameKind::part, bad, 1, max_message_bytes + 1}, {}, "length of a part frame is"},
      {{FrameKind::part, bad, endless, head}, zeros(head), "number of an all-gather is 184467"},
      {{FrameKind::token, 2, 1, 0}, {}, "round of a barrier is 2, not from 0 to 1"},
      {{FrameKind::token, -1, 1, 0}, {}, "round of a barrier is -1"},
      {{FrameKind::token, 1, 1, 3}, zeros(3), "a token of the second round with a text"},
      {{FrameKind::token, 1, 5, 0}, {}, "number of a barrier is 5"},
      {{FrameKind::token, 0, endless, 0}, {}, "number of a barrier is 184467"},
      {{FrameKind::token, 0, 1, 257}, {}, "length of a token frame is 257, not from 0 to 256"},
      {{FrameKind::next, bad, 0, sizeof(Member)}, zeros(sizeof(Member)), "a next frame from"},
      {{FrameKind::next, bad, 0, 3}, {}, "length of a next frame is 3"},
      {{FrameKind::progress, bad, 0, sizeof(Progress)},
       zeros(sizeof(Progress)),
       "a progress frame"},
      {{FrameKind::release, bad, 0, 0}, {}, "a release frame from the previous rank"},
      {{FrameKind::formed, bad, 0, 0}, {}, "a formed frame from the previous rank"},
      {{FrameKind::formed, bad, 0, 1}, {}, "length of a formed frame is 1, not 0"},
      {{FrameKind::goodbye, bad, 0, 8}, {}, "length of a goodbye frame is 8, not 0"},
      {{FrameKind::goodbye, 1, 0, 0}, {}, "rank of a goodbye frame is 1, not 2"},
      {{FrameKind::receipt, bad, 0, 5}, {}, "length of a receipt frame is 5, not 0"},
      {{FrameKind::rank_status, 3, 1, 0}, {}, "rank of a rank_status frame is 3, not from 0 to 2"},
      {{FrameKind::rank_status, -1, 1, 0}, {}, "rank of a rank_status frame is -1"},
      {{FrameKind::rank_status, bad, 0, 0}, {}, "number of a status is 0"},
      {{FrameKind::rank_status, bad, endless, 0}, {}, "number of a status is 184467"},
      {{FrameKind::rank_status, bad, 1, max_status_bytes + 1}, {}, "length of a rank_status frame"},
      {{FrameKind::notice, bad, 0, 3}, {}, "length of a notice frame is 3"},
      bad_notice([](RootNotice& n) { n.code = 0; }, "error code is 0, not from 1 to 19"),
      bad_notice([](RootNotice& n) { n.code = 20; }, "error code is 20"),
      bad_notice([](RootNotice& n) { n.code = smallest; }, "error code is -2147483648"),
      bad_notice([](RootNotice& n) { n.peer = -2; }, "rank at fault is -2"),
      bad_notice([](RootNotice& n) { n.peer = biggest; }, "rank at fault is 2147483647"),
      bad_notice([](RootNotice& n) { std::memset(n.what, 'x', sizeof n.what); },
                 "error text has no end within its 500 bytes"),
  };
  BadFrame other = bad_notice([](RootNotice&) {}, "rank of a notice frame is 1, not 2");
  other.header.rank = 1;
  all.push_back(other);
  other = bad_notice([](RootNotice&) {}, "number of attempts is 184467");
  other.header.tag = endless;
  all.push_back(other);
  return all;
}

struct BadHello {
  Hello hello;
  std::string why;
};
/// Hellos to rank 0, which knows all members.
std::vector<BadHello> bad_hellos(const Member& me) {
  const auto with = [&](const std::function<void(Hello&)>& damage, std::string why) {
    BadHello out{{HelloKind::peer, ranks, 0, 0, me}, std::move(why)};
    damage(out.hello);
    return out;
  };
  return {
      with([](Hello& h) { h.kind = HelloKind(0); }, "purpose is 0, not from 2 to 6"),
      with([](Hello& h) { h.kind = HelloKind::join; }, "purpose is 1"),
      with([](Hello& h) { h.kind = HelloKind(7); }, "purpose is 7"),
      with([](Hello& h) { h.kind = HelloKind(~0u); }, "purpose is 4294967295"),
      with([](Hello& h) { h.kind = HelloKind::stay; }, "purpose of a shrink"),
      with([](Hello& h) { h.kind = HelloKind::watch; }, "purpose of a shrink"),
      with([](Hello& h) { h.kind = HelloKind::ring; }, "(pid " /* its first one */),
      with([](Hello& h) { h.ranks = 0; }, "number of ranks is 0, not 3"),
      with([](Hello& h) { h.ranks = biggest; }, "number of ranks is 2147483647"),
      with([](Hello& h) { h.me.rank = -1; }, "rank is -1, not from 0 to 2"),
      with([](Hello& h) { h.me.rank = 3; }, "rank is 3"),
      with([](Hello& h) { h.me.rank = smallest; }, "rank is -2147483648"),
      with([](Hello& h) { h.me.rank = 0; }, "rank is 0, which is this rank itself"),
      with([](Hello& h) { h.me.rank = 1; }, "it claims to be rank 1 on"),
      with([](Hello& h) { h.kind = HelloKind::ring, h.me.rank = 1; }, "is 1, not 2"),
      with([](Hello& h) { h.me.pid = -1; }, "pid is -1"),
      with([](Hello& h) { h.me.pid += 1; }, "it claims to be rank 2 on"),
      with([](Hello& h) { std::memset(h.me.host, 'x', sizeof h.me.host); }, "host has no end"),
      with([](Hello& h) { h.me.listen.family = 0; }, "family is 0"),
      with([](Hello& h) { h.me.listen.family = 77; }, "family is 77"),
      with([](Hello& h) { h.me.listen.port = 0; }, "port is 0, not from 1 to 65535"),
  };
}

}  // namespace

TEST_CASE("a frame that does not fit fails all ranks with an error that names both ends") {
  const Interfaces lo;
  for (const BadFrame& frame : bad_frames()) {
    const UniqueId id = some_ids(1)[0];
    HonestRanks honest{id};
    PlayedRank played{id, ranks};
    played.join_ring();
    honest.wait_joined();
    write_frame(played.next, frame.header, frame.payload);
    honest.all_fail(Errc::mismatch, frame.why);
    INFO(frame.why);
    CHECK(mentions(honest.error(0).what, "sent rank 0 on"));
    CHECK(mentions(honest.error(0).what, "rank 2 on"));
    CHECK(mentions(read_notice(played.next), frame.why.c_str()));  // the sender has it, too
  }
}

TEST_CASE("a rank that is no neighbor cannot send what only neighbors send") {
  const Interfaces lo;
  for (const FrameKind kind : {FrameKind::part, FrameKind::token, FrameKind::next}) {
    const UniqueId id = some_ids(1)[0];
    HonestRanks honest{id};
    PlayedRank played{id, ranks};
    played.join_ring();
    honest.wait_joined();
    const SecureSocket line = call(played.other.listen, played.root.secret,
                                   Hello{HelloKind::peer, ranks, 0, 0, played.me});
    write_frame(line, {kind, bad, 1, sizeof(Member)}, zeros(sizeof(Member)));
    honest.all_fail(Errc::mismatch, fmt::format("a {} frame from a rank that is no", name(kind)));
  }
}

TEST_CASE("a hello that does not fit ends that connection alone") {
  const Interfaces lo;
  const UniqueId id = some_ids(1)[0];
  HonestRanks honest{id};
  PlayedRank played{id, ranks};
  played.join_ring();
  honest.wait_joined();
  for (const BadHello& one : bad_hellos(played.me)) {
    const SecureSocket line = call(played.other.listen, played.root.secret, one.hello);
    const std::string text = read_notice(line);
    INFO(text << "\nexpected: " << one.why);
    CHECK(mentions(text, one.why.c_str()));
    CHECK(mentions(text, "sent rank 0 on"));
  }
  const SecureSocket line = call(played.other.listen, played.root.secret, std::array<char, 3>{});
  CHECK(mentions(read_notice(line), "its hello is none of a rank"));
  for (const SecureSocket* to : {&played.next, &played.prev}) {  // the job goes on
    write_frame(*to, {FrameKind::message, bad, 7, 0}, {});
  }
  for (int rank = 0; rank < bad; ++rank) {
    const Error& e = honest.error(rank);
    INFO(e.message());
    CHECK((e.code == Errc::ok || mentions(e.what, "left without finalize")));
  }
}

TEST_CASE("a shrink's hello that does not fit ends that connection alone") {
  const Interfaces lo;
  const UniqueId id = some_ids(1)[0];
  HonestRanks honest{id};
  PlayedRank played{id, ranks};
  played.join_ring();
  honest.wait_joined();
  const auto refusal = [&](const std::function<void(ShrinkHello&)>& damage) {
    ShrinkHello stay{{HelloKind::stay, ranks, 0, 0, played.me}};
    damage(stay);
    return read_notice(call(played.other.listen, played.root.secret, stay));
  };
  CHECK(mentions(refusal([](ShrinkHello& h) { h.hello.kind = HelloKind::ring; }), "purpose is 2"));
  CHECK(mentions(
      refusal([](ShrinkHello& h) { std::memset(h.excluded_text, 'x', sizeof h.excluded_text); }),
      "list of excluded ranks has no end within its 256 bytes"));
  CHECK(
      mentions(refusal([](ShrinkHello& h) { h.number = endless; }), "number of attempts is 1844"));
  CHECK(mentions(refusal([](ShrinkHello& h) { h.hello.me.rank = 1; }), "it claims to be rank 1"));
  CHECK(mentions(refusal([](ShrinkHello& h) { h.hello.me.rank = -7; }), "rank is -7"));
  CHECK(mentions(refusal([](ShrinkHello& h) { h.hello.ranks = 0; }), "number of ranks is 0"));
}

TEST_CASE("a rank that describes itself as another one is named") {
  const Interfaces lo;
  const auto with = [](const std::function<void(Member&)>& damage, const char* why) {
    const UniqueId id = some_ids(1)[0];
    HonestRanks honest{id};
    PlayedRank played{id, ranks};
    played.form_ring();
    Member damaged = played.me;
    damage(damaged);
    played.exchange_members(damaged);
    honest.all_fail(Errc::mismatch, why);
  };
  with([](Member& m) { m.rank = 0; }, "rank is 0, not 2");
  with([](Member& m) { m.rank = biggest; }, "rank is 2147483647, not 2");
  with([](Member& m) { m.listen.family = 99; }, "family is 99");
  with([](Member& m) { std::memset(m.host, 'x', sizeof m.host); }, "host has no end");
}
