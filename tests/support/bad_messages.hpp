#pragma once

// Messages of a rank that knows the secret, each with a field at an extreme.
#include <fmt/format.h>

#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "net/message_rules.hpp"
#include "net/rendezvous.hpp"

namespace ccl::test {

constexpr std::uint64_t endless = std::numeric_limits<std::uint64_t>::max();
constexpr int biggest = std::numeric_limits<int>::max(), smallest = std::numeric_limits<int>::min();

struct BadFrame {
  detail::net::FrameHeader header;
  std::vector<std::byte> payload;
  std::string why;
};
inline std::vector<std::byte> zeros(std::size_t bytes) {
  return std::vector<std::byte>(bytes);
}
template <class T>
std::vector<std::byte> copy_of(const T& value) {
  const auto bytes = detail::net::bytes_of(value);
  return {bytes.begin(), bytes.end()};
}
inline BadFrame bad_notice(int bad, const std::function<void(detail::net::RootNotice&)>& damage,
                           std::string why) {
  using namespace detail::net;
  RootNotice notice = to_notice({Errc::aborted, "a test", -1, bad});
  damage(notice);
  return {{FrameKind::notice, bad, 0, sizeof notice}, copy_of(notice), std::move(why)};
}

/// Frames from the last rank of a job, which is the previous one of rank 0.
inline std::vector<BadFrame> bad_frames(int ranks) {
  using namespace detail::net;
  const int bad = ranks - 1, other_rank = bad - 1;
  constexpr auto head = std::uint64_t{96};  // of a part
  std::vector<BadFrame> all{
      {{FrameKind(0), bad, 0, 0}, {}, "kind of frame is 0, not from 1 to 12"},
      {{FrameKind(99), bad, 0, 0}, {}, "kind of frame is 99"},
      {{FrameKind(~0u), bad, 0, 0}, {}, "kind of frame is 4294967295"},
      {{FrameKind::message, bad, 1, max_message_bytes + 1}, {}, "length of a message frame is"},
      {{FrameKind::message, bad, 1, endless}, {}, "length of a message frame is 18446744073709"},
      {{FrameKind::message, other_rank, 1, 0},
       {},
       fmt::format("rank of a message frame is {}, not {}", other_rank, bad)},
      {{FrameKind::message, biggest, 1, 0}, {}, "rank of a message frame is 2147483647"},
      {{FrameKind::message, smallest, 1, 0}, {}, "rank of a message frame is -2147483648"},
      {{FrameKind::part, 0, 1, head}, zeros(head), "owner of a part is 0"},
      {{FrameKind::part, 77, 1, head}, zeros(head), "owner of a part is 77"},
      {{FrameKind::part, -1, 1, head}, zeros(head), "owner of a part is -1"},
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
      {{FrameKind::goodbye, other_rank, 0, 0},
       {},
       fmt::format("rank of a goodbye frame is {}, not {}", other_rank, bad)},
      {{FrameKind::receipt, bad, 0, 5}, {}, "length of a receipt frame is 5, not 0"},
      {{FrameKind::rank_status, ranks, 1, 0},
       {},
       fmt::format("rank of a rank_status frame is {}, not from 0 to {}", ranks, bad)},
      {{FrameKind::rank_status, -1, 1, 0}, {}, "rank of a rank_status frame is -1"},
      {{FrameKind::rank_status, bad, 0, 0}, {}, "number of a status is 0"},
      {{FrameKind::rank_status, bad, endless, 0}, {}, "number of a status is 184467"},
      {{FrameKind::rank_status, bad, 1, max_status_bytes + 1}, {}, "length of a rank_status frame"},
      {{FrameKind::notice, bad, 0, 3}, {}, "length of a notice frame is 3"},
      bad_notice(
          bad, [](RootNotice& n) { n.code = 0; }, "error code is 0, not from 1 to 20"),
      bad_notice(
          bad, [](RootNotice& n) { n.code = 21; }, "error code is 21"),
      bad_notice(
          bad, [](RootNotice& n) { n.code = smallest; }, "error code is -2147483648"),
      bad_notice(
          bad, [](RootNotice& n) { n.peer = -2; }, "rank at fault is -2"),
      bad_notice(
          bad, [](RootNotice& n) { n.peer = biggest; }, "rank at fault is 2147483647"),
      bad_notice(
          bad, [](RootNotice& n) { std::memset(n.what, 'x', sizeof n.what); },
          "error text has no end within its 500 bytes"),
  };
  BadFrame other = bad_notice(
      bad, [](RootNotice&) {},
      fmt::format("rank of a notice frame is {}, not {}", other_rank, bad));
  other.header.rank = other_rank;
  all.push_back(other);
  other = bad_notice(
      bad, [](RootNotice&) {}, "number of attempts is 184467");
  other.header.tag = endless;
  all.push_back(other);
  if (ranks == 3) {  // else it can be its way
    all.push_back(
        {{FrameKind::part, 1, 1, head}, zeros(head), "a part of rank 1 from the previous rank"});
  }
  return all;
}

struct BadHello {
  detail::net::Hello hello;
  std::string why;
};
/// Hellos of the last rank, `me`, to rank 0, which knows all members.
inline std::vector<BadHello> bad_hellos(int ranks, const detail::net::Member& me) {
  using namespace detail::net;
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
      with([](Hello& h) { h.ranks = 0; }, fmt::format("number of ranks is 0, not {}", ranks)),
      with([](Hello& h) { h.ranks = biggest; }, "number of ranks is 2147483647"),
      with([](Hello& h) { h.me.rank = -1; },
           fmt::format("rank is -1, not from 0 to {}", ranks - 1)),
      with([&](Hello& h) { h.me.rank = ranks; }, fmt::format("rank is {}", ranks)),
      with([](Hello& h) { h.me.rank = smallest; }, "rank is -2147483648"),
      with([](Hello& h) { h.me.rank = 0; }, "rank is 0, which is this rank itself"),
      with([](Hello& h) { h.me.rank = 1; }, "it claims to be rank 1 on"),
      with([](Hello& h) { h.kind = HelloKind::ring, h.me.rank = 1; },
           fmt::format("is 1, not {}", ranks - 1)),
      with([](Hello& h) { h.me.pid = -1; }, "pid is -1"),
      with([](Hello& h) { h.me.pid += 1; }, fmt::format("it claims to be rank {} on", ranks - 1)),
      with([](Hello& h) { std::memset(h.me.host, 'x', sizeof h.me.host); }, "host has no end"),
      with([](Hello& h) { h.me.listen.family = 0; }, "family is 0"),
      with([](Hello& h) { h.me.listen.family = 77; }, "family is 77"),
      with([](Hello& h) { h.me.listen.port = 0; }, "port is 0, not from 1 to 65535"),
  };
}

}  // namespace ccl::test
