// A rank that knows the secret and gathers parts that do not fit: every other rank gets an error
// that names it, and none crashes or waits without end.
#include "comm/part_rules.hpp"

#include <ccl/algo/tree.hpp>
#include <ccl/collective.hpp>
#include <ccl/comm/communicator.hpp>
#include <ccl/comm/window.hpp>
#include <ccl/proto/simple.hpp>
#include <ccl/transport/shm.hpp>
#include <ccl/transport/socket.hpp>

#include <fmt/format.h>

#include <functional>
#include <limits>
#include <map>
#include <thread>
#include <vector>

#include "comm/edges/edge_handshake.hpp"
#include "support/bootstrap_ranks.hpp"
#include "support/error_matchers.hpp"
#include "support/played_rank.hpp"

using namespace ccl;
using namespace ccl::test;
using namespace ccl::detail::net;

namespace {

constexpr int ranks = 3, bad = 2;
constexpr int biggest = std::numeric_limits<int>::max(), smallest = std::numeric_limits<int>::min();
constexpr std::size_t head_bytes = 96;  // of a part

using Content = std::vector<std::byte>;
/// Changes the content of the n-th part or message that the played rank sends.
using Damage = std::function<void(int n, Content& content)>;

/// Plays the last rank of three: answers each part and each message of rank 0 with a copy, which is
/// right for most, and passes tokens on. Ends with its connections.
class MirrorRank {
 public:
  MirrorRank(const UniqueId& id, Damage damage) : played_{id, ranks}, damage_{std::move(damage)} {
    played_.join_ring();
    tokens_ = std::jthread{[this] { pass_tokens(); }};
    mirror();
  }
  int sent() const { return sent_; }

 private:
  static bool read(const detail::net::SecureSocket& fd, FrameHeader& header, Content& payload) {
    if (!recv_all(fd.get(), &header, sizeof header, soon(), nullptr)) return false;
    payload.resize(header.bytes);
    return bool(recv_all(fd.get(), payload.data(), Index(payload.size()), soon(), nullptr));
  }
  void pass_tokens() const {
    FrameHeader header;
    Content payload;
    while (read(played_.prev, header, payload)) {
      if (header.kind == FrameKind::token && header.rank == 0) {
        write_frame(played_.next, header, payload);
      }
    }
  }
  void mirror() {
    FrameHeader header;
    Content payload;
    while (read(played_.next, header, payload)) {
      const bool part = header.kind == FrameKind::part;
      if ((!part && header.kind != FrameKind::message) || (part && header.tag == 0)) continue;
      if (part && header.tag == 1) become(payload);
      const std::size_t head = part ? head_bytes : 0;
      Content content(payload.begin() + std::ptrdiff_t(head), payload.end());
      damage_(++sent_, content);
      payload.resize(head);
      payload.insert(payload.end(), content.begin(), content.end());
      header.rank = bad;
      header.bytes = payload.size();
      write_frame(played_.next, header, payload);
      if (part) write_frame(played_.prev, header, payload);
    }
  }
  /// Turns the description of rank 0 into that of this rank, of another process.
  static void become(Content& payload) {
    PeerInfo info;
    std::memcpy(&info, payload.data() + head_bytes, sizeof info);
    info.rank = bad;
    info.pid_hash ^= 1;
    std::memcpy(payload.data() + head_bytes, &info, sizeof info);
  }

  PlayedRank played_;
  Damage damage_;
  int sent_ = 0;
  std::jthread tokens_;
};

/// The errors of ranks 0 and 1, which create a communicator and `make` on it.
std::vector<Error> errors_with(const Damage& damage,
                               const std::function<Result<void>(const Communicator&)>& make) {
  const UniqueId id = some_ids(1)[0];
  std::vector<Error> errors;
  std::jthread honest{[&] {
    errors = on_ranks(bad, [&](int rank) -> Result<void> {
      Config config;
      config.device = Config::cpu;
      config.init_timeout_s = 10;
      config.timeout_s = 10;
      CCL_TRY(const auto comm, Communicator::create(id, rank, ranks, config));
      return make(comm);
    });
  }};
  { const MirrorRank mirror{id, damage}; }
  honest.join();
  return errors;
}
Result<void> nothing(const Communicator&) {
  return {};
}

}  // namespace

TEST_CASE("a description that does not fit fails all ranks with an error that names both ends") {
  const Interfaces lo;
  const auto with = [](const std::function<void(PeerInfo&)>& change, const char* why) {
    const Damage damage = [&](int n, Content& content) {
      if (n != 1) return;
      PeerInfo info;
      REQUIRE(content.size() == sizeof info);
      std::memcpy(&info, content.data(), sizeof info);
      change(info);
      std::memcpy(content.data(), &info, sizeof info);
    };
    for (const Error& e : errors_with(damage, nothing)) {
      INFO(e.message() << "\nexpected: " << why);
      CHECK(e.code == Errc::mismatch);
      CHECK(e.peer == bad);
      CHECK(mentions(e.what, why));
      CHECK(mentions(e.what, "rank 2 on"));
      CHECK(mentions(e.what, "sent rank"));
    }
  };
  with([](PeerInfo& p) { p.rank = 0; }, "rank is 0, not 2");
  with([](PeerInfo& p) { p.rank = biggest; }, "rank is 2147483647, not 2");
  with([](PeerInfo& p) { p.rank = smallest; }, "rank is -2147483648, not 2");
  with([](PeerInfo& p) { p.device = -2; }, "device is -2");
  with([](PeerInfo& p) { p.device = biggest; }, "device is 2147483647");
  with([](PeerInfo& p) { p.multiprocessors = -1; }, "number of multiprocessors is -1");
  with([](PeerInfo& p) { p.max_blocks = -1; }, "limit of blocks is -1");
  with([](PeerInfo& p) { p.compute_capability = -1; }, "compute capability is -1");
  with([](PeerInfo& p) { p.bus_id = -2; }, "bus id is -2");
  with([](PeerInfo& p) { p.numa = -2; }, "NUMA node is -2");
  with([](PeerInfo& p) { p.looks_closely = 2; }, "use of topology files is 2, not from 0 to 1");
  with([](PeerInfo& p) { p.pid = smallest; }, "pid is -2147483648");
  with([](PeerInfo& p) { p.ib_kinds = 4; }, "kinds of RDMA ports is 4");
  with([](PeerInfo& p) { p.ib_absence = 99; }, "reason for no RDMA port is 99");
  with([](PeerInfo& p) { p.net_plug_in_only = 2; }, "sole use of a network plug-in is 2, not from");
  with([](PeerInfo& p) { p.net_plug_in_only = smallest; }, "plug-in is -2147483648");
  with([](PeerInfo& p) { p.net_absence = -1; }, "reason for no network plug-in is -1, not from 0");
  with([](PeerInfo& p) { p.net_absence = 4; }, "reason for no network plug-in is 4");
  with([](PeerInfo& p) { std::memset(p.host, 'x', sizeof p.host); }, "host has no end");
}

TEST_CASE(
    "whatever a rank gathers and sends while a collective is created, the others get an error") {
  const Interfaces lo;
  const auto make = [](const Communicator& comm) -> Result<void> {
    CCL_CHECK((Collective<AllReduce, Tree, Simple, ShmTransport>::create(comm)));
    return {};
  };
  std::map<int, int> sizes;
  for (int at = 2; at <= 6; ++at) {
    for (const unsigned pattern : {0xffu, 0x80u, 0x7fu, 0x01u, 0x100u}) {
      const Damage damage = [&](int n, Content& content) {
        sizes[n] = int(content.size());
        if (n != at) return;
        if (pattern == 0x100u) {
          content.pop_back();
        } else {
          std::fill(content.begin(), content.end(), std::byte(pattern));
        }
      };
      for (const Error& e : errors_with(damage, make)) {
        INFO(fmt::format("part {} of {} bytes, filled with {:#x}: {}", at, sizes[at], pattern,
                         e.message()));
        CHECK(e.code != Errc::ok);
        CHECK(e.code != Errc::internal);
        CHECK_FALSE(e.what.empty());
        if (at == 2) CHECK(e.peer == bad);  // the inputs of the creation
      }
    }
  }
  CHECK(sizes.size() >= 3);
}

TEST_CASE("a rank that claims to be in this process cannot give it addresses") {
  const Interfaces lo;
  const auto make = [](const Communicator& comm) -> Result<void> {
    std::vector<std::byte> memory(4096);
    CCL_CHECK(Window::create(comm, memory.data(), Index(memory.size())));
    return {};
  };
  // Its part of the window is that of rank 0: an address that is mapped here.
  const Damage claims = [](int n, Content& content) {
    if (n != 1) return;
    PeerInfo info;
    std::memcpy(&info, content.data(), sizeof info);
    info.pid_hash ^= 1;  // undoes what the mirror has changed
    std::memcpy(content.data(), &info, sizeof info);
  };
  for (const Error& e : errors_with(claims, make)) {
    INFO(e.message());
    CHECK(e.code == Errc::not_supported);
    CHECK(mentions(e.what, "rank 2 claims a window of 4096 bytes in the process of rank"));
  }
}

TEST_CASE("results of a rank are checked at the extremes of each field") {
  const auto wrong = [](const std::function<void(detail::RankResult&)>& damage) {
    detail::RankResult result = detail::result_of(fail(Errc::system, "a test"));
    damage(result);
    return detail::wrong_rank_result(result);
  };
  CHECK(wrong([](detail::RankResult&) {}).empty());
  CHECK(mentions(wrong([](auto& r) { r.code = -1; }), "error code is -1, not from 0 to 20"));
  CHECK(mentions(wrong([](auto& r) { r.code = 21; }), "error code is 21"));
  CHECK(mentions(wrong([](auto& r) { r.peer = -2; }), "rank at fault is -2"));
  CHECK(mentions(wrong([](auto& r) { r.peer = biggest; }), "rank at fault is 2147483647"));
  CHECK(
      mentions(wrong([](auto& r) { std::memset(r.what, 'x', sizeof r.what); }), "error text has"));
  CHECK(mentions(wrong([](auto& r) { std::memset(r.transport, 'x', sizeof r.transport); }),
                 "transport has no end within its 20 bytes"));
}

TEST_CASE("a call of another rank is checked at the extremes of each field") {
  const auto wrong = [](const std::function<void(detail::CallInfo&)>& damage) {
    detail::CallInfo call;
    damage(call);
    return detail::wrong_call(call, ranks);
  };
  CHECK(wrong([](detail::CallInfo&) {}).empty());
  CHECK(mentions(wrong([](auto& c) { std::memset(c.what, 'x', sizeof c.what); }), "operation has"));
  CHECK(
      mentions(wrong([](auto& c) { std::memset(c.type, 'x', sizeof c.type); }), "type has no end"));
  CHECK(
      mentions(wrong([](auto& c) { std::memset(c.redop, 'x', sizeof c.redop); }), "reduction has"));
  CHECK(mentions(wrong([](auto& c) { c.root = 3; }), "root is 3, not from -1 to 2"));
  CHECK(mentions(wrong([](auto& c) { c.root = smallest; }), "root is -2147483648"));
  CHECK(mentions(wrong([](auto& c) { c.composition = -2; }), "composition is -2"));
  CHECK(mentions(wrong([](auto& c) { c.composition = biggest; }), "composition is 2147483647"));
}

TEST_CASE("an offer of another size, or with a name without an end, is none") {
  detail::Offer offer{{}, "shm"}, read;
  const auto bytes = [&] { return std::as_bytes(std::span{&offer, 1}); };
  CHECK(detail::read_offer(read, bytes()).empty());
  CHECK(std::string_view{read.by} == "shm");
  CHECK(mentions(detail::read_offer(read, bytes().first(7)), "length of an offer is 7, not 272"));
  CHECK(mentions(detail::read_offer(read, {}), "length of an offer is 0"));
  std::memset(offer.by, 'x', sizeof offer.by);
  CHECK(mentions(detail::read_offer(read, bytes()), "transport has no end within its 16 bytes"));
}
