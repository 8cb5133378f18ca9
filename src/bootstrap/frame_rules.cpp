#include "bootstrap/frame_rules.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <initializer_list>

#include "base/field_check.hpp"
#include "bootstrap/ring_gather.hpp"
#include "net/message_rules.hpp"

namespace ccl::detail {

using namespace net;

namespace {

constexpr std::uint64_t max_statuses = std::uint64_t{1} << 48;  // of one rank

bool may_send(PeerRole role, FrameKind kind) {
  const auto one_of = [kind](std::initializer_list<FrameKind> kinds) {
    return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
  };
  if (role == PeerRole::root) {
    return one_of({FrameKind::next, FrameKind::progress, FrameKind::release, FrameKind::notice});
  }
  if (kind == FrameKind::part) return role == PeerRole::next || role == PeerRole::prev;
  if (kind == FrameKind::token) return role == PeerRole::prev;
  return one_of({FrameKind::message, FrameKind::notice, FrameKind::goodbye, FrameKind::rank_status,
                 FrameKind::departure});
}

const char* text_of(PeerRole role) {
  switch (role) {
    case PeerRole::next:
      return "the next rank of the ring";
    case PeerRole::prev:
      return "the previous rank of the ring";
    case PeerRole::root:
      return "a root";
    case PeerRole::peer:
    case PeerRole::caller:
      break;
  }
  return "a rank that is no neighbor";
}

/// A part comes on the shorter way around the ring, and never back to its owner.
std::string wrong_part(const Membership& members, PeerRole role, int owner, Bytes payload) {
  const int position = members.position_of(owner), mine = members.position_of(members.rank);
  FieldCheck check;
  check.require(position >= 0 && owner != members.rank,
                fmt::format("owner of a part is {}, not another rank of the {} in the ring", owner,
                            members.in_ring()));
  if (!check.good()) return check.why();
  const int behind = (mine - position + members.in_ring()) % members.in_ring();
  const bool forward = behind <= members.forward_steps();
  check.require(role == (forward ? PeerRole::prev : PeerRole::next),
                fmt::format("a part of rank {} from {}", owner, text_of(role)));
  check.in_range("length of a part", payload.size(), sizeof(RingGather::PartHead),
                 std::int64_t(max_message_bytes));
  return check.why();
}

std::string wrong_next(const Membership& members, Bytes payload) {
  Member next;
  const bool whole = read_into(next, payload);
  return FieldCheck{}
      .require(whole, "length of the next rank's description")
      .part("the next rank", wrong_member(next, members.next_peer(), members.next_peer()))
      .why();
}

std::string wrong_report(const Membership& members, Bytes payload) {
  Progress progress;
  const bool whole = read_into(progress, payload);
  return FieldCheck{}
      .require(whole, "length of a root's report")
      .part("the root's report", wrong_progress(progress, members.ranks))
      .why();
}

std::string wrong_error(Bytes payload) {
  RootNotice notice;
  const bool whole = read_into(notice, payload);
  return FieldCheck{}
      .require(whole, "length of a notice")
      .part("notice", wrong_notice(notice))
      .why();
}

}  // namespace

std::string wrong_hello(const Membership& members, const Hello& hello) {
  FieldCheck check;
  check
      .in_range("purpose", std::uint32_t(hello.kind), std::int64_t(HelloKind::ring),
                std::int64_t(HelloKind::ask))
      .in_range("number of ranks", hello.ranks, members.ranks, members.ranks)
      .part("the rank that calls", wrong_member(hello.me, 0, members.ranks - 1))
      .require(hello.me.rank != members.rank,
               fmt::format("rank is {}, which is this rank itself", hello.me.rank));
  if (hello.kind == HelloKind::ring) {
    check.in_range("rank of the ring's previous rank", hello.me.rank, members.prev_peer(),
                   members.prev_peer());
  }
  if (!check.good() || members.members.empty()) return check.why();
  const Member& known = members.members[size_t(hello.me.rank)];
  return check
      .require(std::memcmp(&known, &hello.me, sizeof known) == 0,
               fmt::format("it claims to be {} and is not that process", describe(known)))
      .why();
}

std::string too_many_connections(const Member& rank, std::size_t open) {
  if (open < max_from_peer) return {};
  return fmt::format("{} has {} connections to this rank, and may have no more", describe(rank),
                     open);
}

std::string wrong_frame(const Membership& members, PeerRole role, int sender,
                        const FrameHeader& header, Bytes payload) {
  FieldCheck check;
  check.require(may_send(role, header.kind),
                fmt::format("a {} frame from {}", name(header.kind), text_of(role)));
  if (!check.good()) return check.why();
  const std::string rank = fmt::format("rank of a {} frame", name(header.kind));
  switch (header.kind) {
    case FrameKind::message:
    case FrameKind::goodbye:
      check.in_range(rank, header.rank, sender, sender);
      break;
    case FrameKind::notice:
      check.in_range(rank, header.rank, sender, sender)
          .in_range("number of attempts", header.tag, 0, std::int64_t(max_attempts))
          .part("error", wrong_error(payload));
      break;
    case FrameKind::part:
      check.part("part", wrong_part(members, role, header.rank, payload));
      break;
    case FrameKind::token:
      check.in_range("round of a barrier", header.rank, 0, 1)
          .require(header.rank == 0 || payload.empty(), "a token of the second round with a text");
      break;
    case FrameKind::rank_status:
      check.in_range(rank, header.rank, 0, members.ranks - 1)
          .in_range("number of a status", header.tag, 1, std::int64_t(max_statuses));
      break;
    case FrameKind::departure:
      check.in_range(rank, header.rank, 0, members.ranks - 1)
          .require(header.rank != members.rank,
                   fmt::format("a departure of rank {}, which is this rank itself", header.rank));
      break;
    case FrameKind::next:
      check.part("next", wrong_next(members, payload));
      break;
    case FrameKind::progress:
      check.in_range("index of the root", header.tag, 0, members.ranks - 1)
          .part("progress", wrong_report(members, payload));
      break;
    case FrameKind::release:
    case FrameKind::formed:
    case FrameKind::receipt:
      break;
  }
  return check.why();
}

}  // namespace ccl::detail
