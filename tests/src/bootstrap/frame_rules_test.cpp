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
#include "support/bad_messages.hpp"
#include "support/bootstrap_ranks.hpp"
#include "support/error_matchers.hpp"
#include "support/played_rank.hpp"
#include "support/processes.hpp"
#include <poll.h>

using namespace ccl;
using namespace ccl::test;
using namespace ccl::detail::net;
using ccl::detail::net::SecureSocket;

namespace {

constexpr int ranks = 3, bad = 2;

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

}  // namespace

TEST_CASE("a frame that does not fit fails all ranks with an error that names both ends") {
  const Interfaces lo;
  for (const BadFrame& frame : bad_frames(ranks)) {
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

TEST_CASE("parts of calls to come fail all ranks before they use up memory") {
  const Interfaces lo;
  const bool twice = GENERATE(true, false);  // for one call, or large ones for many
  const UniqueId id = some_ids(1)[0];
  HonestRanks honest{id};
  PlayedRank played{id, ranks};
  played.join_ring();
  honest.wait_joined();
  const auto part = zeros(twice ? 96 : max_message_bytes);
  for (std::uint64_t n = 0; n < 6; ++n) {
    write_frame(played.next, {FrameKind::part, bad, twice ? 5 : 2 + n, part.size()}, part);
  }
  honest.all_fail(Errc::mismatch, twice ? "a second part of rank 2 for all-gather 5"
                                        : "parts of rank 2 of 320 MiB for all-gathers to come");
}

TEST_CASE("messages that nobody receives fail all ranks before they use up memory") {
  const Interfaces lo;
  const bool empty = GENERATE(true, false);
  const UniqueId id = some_ids(1)[0];
  HonestRanks honest{id};
  PlayedRank played{id, ranks};
  played.join_ring();
  honest.wait_joined();
  const auto payload = zeros(empty ? 0 : max_message_bytes);
  const std::uint64_t blocks = empty ? 400 : 6, each = empty ? 1000 : 1;
  for (std::uint64_t block = 0; block < blocks; ++block) {
    std::vector<std::byte> frames;
    for (std::uint64_t n = 0; n < each; ++n) {
      const FrameHeader header{FrameKind::message, bad, 1000 + block * each + n, payload.size()};
      const Bytes bytes = bytes_of(header);
      frames.insert(frames.end(), bytes.begin(), bytes.end());
    }
    write_bytes(played.next, frames);
    write_bytes(played.next, payload);
  }
  honest.all_fail(Errc::out_of_memory, "MiB of messages that this rank does not receive");
}

TEST_CASE("a rank has at most 8 connections to another one, also for shrinks, and fails nobody") {
  const Interfaces lo;
  const bool shrinks = GENERATE(false, true);
  const UniqueId id = some_ids(1)[0];
  HonestRanks honest{id};
  PlayedRank played{id, ranks};
  played.join_ring();
  honest.wait_joined();
  const auto one_more = [&] {
    const Hello hello{HelloKind::peer, ranks, 0, 0, played.me};
    ShrinkHello watch{{HelloKind::watch, ranks, 0, 0, played.me}};
    return shrinks ? call(played.other.listen, played.root.secret, watch)
                   : call(played.other.listen, played.root.secret, hello);
  };
  std::vector<SecureSocket> lines;
  for (int n = 0; n < 8; ++n) lines.push_back(one_more());
  for (int n = 0; n < 40; ++n) {
    const SecureSocket further = one_more();
    CHECK(mentions(read_notice(further), "has 8 connections to this rank"));
  }
  lines.pop_back();
  const auto is_taken = [&] {
    const SecureSocket line = one_more();
    pollfd wait{line.get(), POLLIN, 0};
    return ::poll(&wait, 1, 200) == 0;  // no notice comes
  };
  CHECK(wait_until(is_taken, 20));
  write_frame(played.next, {FrameKind::message, bad, 7, 0}, {});
  CHECK(honest.error(0).code == Errc::ok);
}

TEST_CASE("a hello that does not fit ends that connection alone") {
  const Interfaces lo;
  const UniqueId id = some_ids(1)[0];
  HonestRanks honest{id};
  PlayedRank played{id, ranks};
  played.join_ring();
  honest.wait_joined();
  for (const BadHello& one : bad_hellos(ranks, played.me)) {
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
