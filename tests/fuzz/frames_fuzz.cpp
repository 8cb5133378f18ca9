// Hellos and frames from ranks and roots, to a rank of a job of four.
#include "bootstrap/core.hpp"
#include "bootstrap/frame_rules.hpp"
#include "fuzz/fuzz.hpp"
#include "net/message_rules.hpp"
#include <sys/socket.h>

namespace ccl::fuzz {

using namespace detail;
using namespace detail::net;
using Core = Bootstrap::Core;

namespace {

constexpr int rank = 1, ranks = 4;
constexpr std::size_t head_bytes = sizeof(RingGather::PartHead);

/// Description of a rank, equal in all processes: seeds come from another one.
Member member_of(int r) {
  const auto at = Address::parse("127.0.0.1:" + std::to_string(7000 + r)).value();
  Member member = this_member(r, at.wire());
  member.pid = 4711;
  return member;
}
std::shared_ptr<Conn> closed_conn() {
  return std::make_shared<Conn>(
      Fd{}, [](Conn&, const FrameHeader&, Bytes) {}, [](Conn&, int) {});
}
/// A rank whose neighbors are connected, with sockets that take nothing.
std::shared_ptr<Core> make_core(bool knows_members, bool has_ring) {
  auto core = std::make_shared<Core>(rank, ranks, Secret{}, 0.001, nullptr);
  const Lock lock = Engine::get().lock();
  core->membership().me = member_of(rank);
  if (knows_members) {
    std::vector<Member> all;
    for (int r = 0; r < ranks; ++r) all.push_back(member_of(r));
    core->membership().set_members(lock, std::move(all));
  }
  if (has_ring) {
    core->sockets().set_next(lock, closed_conn(), member_of(2));
    core->sockets().set_prev(lock, closed_conn(), member_of(0));
  }
  return core;
}

/// One event: its kind, the role and rank of the sender, and the frame.
struct Event {
  std::uint8_t hello, role, sender, short_rank;
  std::uint32_t kind;
  std::uint32_t rank;
  std::uint32_t bytes;
  std::uint64_t tag;
};

/// Handles one event. The other ends of callers go to `far`; they end with the input.
void take(Core& core, const Event& event, Bytes payload, std::vector<Fd>& far) {
  if (event.hello % 4 == 1) {
    int both[2];
    demand(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, both) == 0, "pair");
    far.emplace_back(both[0]);
    const Lock lock = Engine::get().lock();
    core.accept(lock, {SecureSocket{Fd{both[1]}}, {payload.begin(), payload.end()}, Address{}, {}});
    return;
  }
  const Lock lock = Engine::get().lock();
  const auto conn = closed_conn();
  FrameHeader header{FrameKind(event.kind), int(event.rank), event.tag, payload.size()};
  if (event.hello % 4 == 2) header.bytes = event.tag;
  if (!wrong_header(header).empty()) return;
  header.bytes = payload.size();
  if (!wrong_header(header).empty()) return;
  const auto role = PeerRole(event.role % 5);
  core.take_frame(lock, *conn, role, role == PeerRole::root ? -1 : event.sender % ranks, header,
                  payload);
}

template <class T>
std::string event_of(PeerRole role, int sender, FrameKind kind, int of, std::uint64_t tag,
                     const T& payload) {
  const Event event{0,
                    std::uint8_t(role),
                    std::uint8_t(sender),
                    0,
                    std::uint32_t(kind),
                    std::uint32_t(of),
                    std::uint32_t(sizeof payload),
                    tag};
  return bytes_of(event, payload);
}

}  // namespace

void prepare() {}

void read(Input input) {
  Source source{input};
  const auto how = source.take<std::uint8_t>();
  std::vector<Fd> far;
  const auto core = make_core((how & 1) != 0, (how & 2) != 0);
  while (!source.empty()) {
    const auto event = source.take<Event>();
    take(*core, event, source.take_bytes(std::min<std::uint32_t>(event.bytes, 4096)), far);
  }
  if ((how & 4) == 0 || (how & 2) == 0) return;
  std::array<std::array<std::byte, 8>, ranks> all{};
  (void)core->gather().all_gather(all.data(), 8, 1e-9, {"a fuzzed call"});
  (void)core->gather().barrier(1e-9);
}

std::vector<std::string> seeds() {
  const std::uint8_t how = 7, early = 0;
  struct Part {
    RingGather::PartHead head;
    std::array<std::byte, 8> content{};
  } part;
  std::string_view{"a fuzzed call"}.copy(part.head.kind, sizeof part.head.kind);
  static_assert(sizeof part == head_bytes + 8);
  const Progress progress{1, 4, 0, 2, {2, 3}};
  const RootNotice notice = to_notice({Errc::aborted, "a fuzzed error", -1, 2});
  const std::uint8_t status = 1;
  const Hello ring{HelloKind::ring, ranks, 0, 0, member_of(0)};
  const Hello peer{HelloKind::peer, ranks, 0, 0, member_of(3)};
  const ShrinkHello stay{{HelloKind::stay, ranks, 0, 0, member_of(0)}};
  const auto hello_of = [](const auto& hello) {
    return bytes_of(Event{1, 0, 0, 0, 0, 0, sizeof hello, 0}, hello);
  };
  const auto prev = PeerRole::prev, next = PeerRole::next, root = PeerRole::root;
  std::string parts = bytes_of(how) + event_of(prev, 0, FrameKind::part, 0, 0, part) +
                      event_of(prev, 0, FrameKind::part, 3, 0, part) +
                      event_of(next, 2, FrameKind::part, 2, 0, part);
  return {
      parts,
      bytes_of(how) + event_of(prev, 0, FrameKind::token, 0, 1, status) +
          event_of(prev, 0, FrameKind::rank_status, 3, 1, status),
      bytes_of(early) + event_of(root, 0, FrameKind::progress, -1, 0, progress) +
          event_of(root, 0, FrameKind::next, -1, 0, member_of(2)),
      bytes_of(how) + event_of(next, 2, FrameKind::notice, 2, 0, notice),
      bytes_of(how) + event_of(next, 2, FrameKind::message, 2, 5, notice),
      bytes_of(early) + hello_of(ring),
      bytes_of(how) + hello_of(peer) + hello_of(stay),
  };
}

}  // namespace ccl::fuzz
