#include "net/message_rules.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "base/field_check.hpp"
#include <sys/socket.h>

namespace ccl::detail::net {
namespace {

constexpr std::uint64_t max_token_bytes = 256;  // the name of a barrier

struct Payload {
  std::uint64_t least, most;
};
std::optional<Payload> payload_of(FrameKind kind) {
  switch (kind) {
    case FrameKind::message:
    case FrameKind::part:
      return Payload{0, max_message_bytes};
    case FrameKind::token:
      return Payload{0, max_token_bytes};
    case FrameKind::rank_status:
      return Payload{0, max_status_bytes};
    case FrameKind::next:
      return Payload{sizeof(Member), sizeof(Member)};
    case FrameKind::progress:
      return Payload{sizeof(Progress), sizeof(Progress)};
    case FrameKind::notice:
      return Payload{sizeof(RootNotice), sizeof(RootNotice)};
    case FrameKind::formed:
    case FrameKind::release:
    case FrameKind::goodbye:
    case FrameKind::receipt:
    case FrameKind::departure:
      return Payload{0, 0};
  }
  return {};
}

}  // namespace

std::string_view name(FrameKind kind) {
  constexpr std::string_view names[] = {"message",  "part",        "token",   "next",
                                        "progress", "formed",      "release", "notice",
                                        "goodbye",  "rank_status", "receipt", "departure"};
  const auto index = std::size_t(kind) - 1;
  return index < std::size(names) ? names[index] : "unknown";
}

std::string wrong_header(const FrameHeader& header) {
  const auto payload = payload_of(header.kind);
  if (!payload) {
    return fmt::format("kind of frame is {}, not from 1 to {}", std::uint32_t(header.kind),
                       std::uint32_t(FrameKind::departure));
  }
  return FieldCheck{}
      .in_range(fmt::format("length of a {} frame", name(header.kind)), header.bytes,
                std::int64_t(payload->least), std::int64_t(payload->most))
      .in_range(fmt::format("rank of a {} frame", name(header.kind)), header.rank, -1,
                max_ranks - 1)
      .why();
}

std::string wrong_address(const WireAddress& address) {
  FieldCheck check;
  if (address.family == AF_UNIX) {
    check.require(address.ip[0] != 0, "its Unix name is empty");
  } else {
    check.require(
        address.family == AF_INET || address.family == AF_INET6,
        fmt::format("family is {}, not {}, {} or {}", address.family, AF_UNIX, AF_INET, AF_INET6));
    check.in_range("port", address.port, 1, 65535);
  }
  return check.why();
}

std::string wrong_member(const Member& member, int low, int high) {
  return FieldCheck{}
      .in_range("rank", member.rank, low, high)
      .in_range("pid", member.pid, 0, INT32_MAX)
      .text("host", member.host)
      .part("address", wrong_address(member.listen))
      .why();
}

std::string wrong_join(const Hello& hello) {
  return FieldCheck{}
      .require(hello.kind == HelloKind::join || hello.kind == HelloKind::decline,
               fmt::format("purpose is {}, not {} or {}", std::uint32_t(hello.kind),
                           std::uint32_t(HelloKind::join), std::uint32_t(HelloKind::decline)))
      .in_range("number of ranks", hello.ranks, 1, max_ranks)
      .in_range("number of ids", hello.roots, 1, std::max(hello.ranks, 1))
      .in_range("index of the id", hello.root, 0, std::max(hello.roots, 1) - 1)
      .part("the rank that joins", wrong_member(hello.me, 0, std::max(hello.ranks, 1) - 1))
      .why();
}

std::string wrong_shrink(const ShrinkHello& hello) {
  return FieldCheck{}
      .in_range("purpose", std::uint32_t(hello.hello.kind), std::int64_t(HelloKind::stay),
                std::int64_t(HelloKind::watch))
      .text("list of excluded ranks", hello.excluded_text)
      .in_range("number of attempts", hello.number, 0, std::int64_t(max_attempts))
      .why();
}

std::string wrong_progress(const Progress& progress, int ranks) {
  FieldCheck check;
  check.in_range("number of expected ranks", progress.expected, 1, ranks + 1)
      .in_range("number of joined ranks", progress.joined, 0, progress.expected)
      .in_range("rank of the root", progress.root_rank, -1, ranks - 1)
      .in_range("number of missing ranks", progress.missing_count, 0,
                std::int64_t(std::size(progress.missing)));
  for (int n = 0; check.good() && n < progress.missing_count; ++n) {
    check.in_range("missing rank", progress.missing[n], 0, ranks - 1);
  }
  return check.why();
}

std::string wrong_notice(const RootNotice& notice) {
  return FieldCheck{}
      .in_range("error code", notice.code, std::int64_t(Errc::ok) + 1, std::int64_t(last_errc))
      .in_range("rank at fault", notice.peer, -1, max_ranks - 1)
      .text("error text", notice.what)
      .why();
}

std::string wrong_to_root(int rank, const FrameHeader& header, Bytes payload) {
  FieldCheck check;
  switch (header.kind) {
    case FrameKind::formed:
    case FrameKind::goodbye:
      check.in_range(fmt::format("rank of a {} frame", name(header.kind)), header.rank, rank, rank);
      break;
    case FrameKind::rank_status:  // ranks send both over all their connections
    case FrameKind::departure:
      break;
    case FrameKind::notice: {
      RootNotice notice;
      check.require(read_into(notice, payload), "length of a notice");
      check.part("notice", wrong_notice(notice));
      break;
    }
    default:
      check.require(false, fmt::format("a {} frame, which no root receives", name(header.kind)));
  }
  return check.why();
}

Error protocol_error(std::string_view sender, int peer, std::string_view receiver,
                     std::string_view why) {
  Error error;
  error.code = Errc::mismatch;
  error.peer = peer;
  error.os_code = EPROTO;
  error.what = fmt::format(
      "{} sent {} a message that does not fit ({}); run the same version of ccl on all ranks",
      sender, receiver, why);
  return error;
}

}  // namespace ccl::detail::net
