#include "connect/registry/handle_sockets.hpp"

#include <ccl/comm/communicator.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "base/io/mapping.hpp"
#include "support/catch.hpp"
#include "support/driver.hpp"
#include "support/gpu_ranks.hpp"
#include "support/id_between.hpp"
#include "support/region_attributes.hpp"
#include <sys/socket.h>

using namespace ccl;
using namespace ccl::test;
using detail::HandleSockets;

namespace {
using Handles = std::vector<detail::SharedHandle>;

/// Descriptor of memory that holds a number.
detail::SharedHandle numbered(int number) {
  detail::SharedHandle handle;
  handle.bytes = 4096;
  handle.fd = detail::shareable_memory("numbered", 4096).value();
  auto mapping = detail::Mapping::of(handle.fd, 4096).value();
  *reinterpret_cast<int*>(mapping.base()) = number;
  return handle;
}
int number_of(const detail::SharedHandle& handle) {
  const auto mapping = detail::Mapping::of(handle.fd, 4096);
  return mapping ? *reinterpret_cast<const int*>(mapping->base()) : -1;
}

template <class T>
std::optional<T> next(const HandleSockets& sockets) {
  std::optional<HandleSockets::Message> message;
  if (!wait_until([&] { return (message = sockets.receive()).has_value(); })) return {};
  T* const wanted = std::get_if<T>(&*message);
  return wanted == nullptr ? std::nullopt : std::optional<T>{std::move(*wanted)};
}

struct RankEnd {
  Result<Communicator> comm = fail(Errc::internal, "not created");
  std::optional<HandleSockets> sockets{};

  std::string open(int rank, int fd) {
    (void)install_gpus(2);
    Config config;
    config.device = rank;
    comm = Communicator::create(id_between(rank, fd), rank, 2, config);
    if (!comm) return comm.error().message();
    auto made = HandleSockets::open(*detail::Access::state(*comm), 0, "handles");
    if (!made) return made.error().message();
    sockets.emplace(*std::move(made));
    return "";
  }
  std::string close() {
    sockets.reset();
    const auto ended = comm->finalize();
    return ended ? "" : ended.error().message();
  }
};

std::string ask(int fd) {
  RankEnd end;
  if (auto wrong = end.open(1, fd); !wrong.empty()) return wrong;
  if (!end.sockets->ask(0, 77, 16)) return "the request is lost";
  const auto full = next<HandleSockets::Reply>(*end.sockets);
  if (!full || full->owner != 0 || full->id != 77 || full->first != 16) return "another reply";
  if (full->handles.size() != HandleSockets::max_handles) return "another number of handles";
  for (int n = 0; n < HandleSockets::max_handles; ++n) {
    if (number_of(full->handles[std::size_t(n)]) != n) return "another descriptor";
  }
  const auto mixed = next<HandleSockets::Reply>(*end.sockets);
  if (!mixed || mixed->handles.size() != 3) return "no mixed reply";
  if (number_of(mixed->handles[0]) != 1 || number_of(mixed->handles[2]) != 2) return "mixed up";
  if (mixed->handles[1].fd || mixed->handles[1].fabric[3] != std::byte{42}) return "no fabric";
  const auto refused = next<HandleSockets::Reply>(*end.sockets);
  if (!refused || !refused->handles.empty()) return "handles in a refusal";
  // Requests that nobody reads are lost in the end, and said to be so.
  for (int n = 0; n < 100'000; ++n) {
    if (!end.sockets->ask(0, 1, n)) {
      (void)::send(fd, "x", 1, MSG_NOSIGNAL);
      return end.close();
    }
  }
  return "no request is lost";
}

std::string answer(int fd) {
  RankEnd end;
  if (auto wrong = end.open(0, fd); !wrong.empty()) return wrong;
  const auto request = next<HandleSockets::Request>(*end.sockets);
  if (!request || request->reader != 1 || request->id != 77 || request->first != 16) {
    return "another request";
  }
  Handles full;
  for (int n = 0; n < HandleSockets::max_handles; ++n) full.push_back(numbered(n));
  if (!end.sockets->reply(*request, full)) return "the handles are lost";
  Handles mixed;
  mixed.push_back(numbered(1));
  mixed.emplace_back().bytes = 1;
  mixed.back().fabric[3] = std::byte{42};
  mixed.push_back(numbered(2));
  if (!end.sockets->reply(*request, mixed)) return "the mixed handles are lost";
  if (!end.sockets->reply(*request, {})) return "the refusal is lost";
  char full_now = 0;
  (void)::recv(fd, &full_now, 1, MSG_WAITALL);
  int after = 0;
  while (const auto message = end.sockets->receive()) {
    if (std::get<HandleSockets::Request>(*message).first != after++) return "out of order";
  }
  return after > 1 ? end.close() : "no request was kept";
}
}  // namespace

TEST_CASE("requests and handles travel between processes, and what does not fit is lost") {
  CHECK(alone_with_child([](int fd) { return ask(fd); },
                         [](int fd, pid_t) { return answer(fd); }) == "");
}

namespace {
/// Head of a message. 16 handles of 80 bytes follow.
struct Head {
  std::int32_t is_reply = 0, from = 1;
  Word id = 5;
  std::int32_t first = 0, count = 0;
  detail::Nonce nonce{};
};
constexpr std::size_t whole = sizeof(Head) + std::size_t{16} * 80;

/// Sends bytes to the peer's socket, as a process that goes wrong would.
void send_raw(const Head& head, std::size_t bytes) {
  std::vector<std::byte> message(bytes);
  std::memcpy(message.data(), &head, std::min(bytes, sizeof head));
  for (int fd = 3; fd < 256; ++fd) {
    int kind = 0;
    socklen_t length = sizeof kind;
    if (::getsockopt(fd, SOL_SOCKET, SO_TYPE, &kind, &length) != 0 || kind != SOCK_SEQPACKET) {
      continue;
    }
    (void)::send(fd, message.data(), message.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
}

std::string send_nonsense(int fd) {
  RankEnd end;
  if (auto wrong = end.open(1, fd); !wrong.empty()) return wrong;
  const Head heads[] = {{0, -1},       {0, 0},           {0, 2},           {0, 1 << 30},
                        {0, 1, 5, -1}, {1, 1, 5, 0, -1}, {1, 1, 5, 0, 17}, {1, 1, 5, 0, 3}};
  for (const Head& head : heads) send_raw(head, whole);
  for (const std::size_t bytes : {std::size_t{1}, sizeof(Head), whole - 1, whole + 1}) {
    send_raw({}, bytes);
  }
  send_raw({0, 1, 6}, whole);  // well formed
  if (!end.sockets->ask(0, 7, 0)) return "the request is lost";
  char received = 0;
  (void)::recv(fd, &received, 1, MSG_WAITALL);
  return end.close();
}

std::string receive_nonsense(int fd) {
  RankEnd end;
  if (auto wrong = end.open(0, fd); !wrong.empty()) return wrong;
  for (const Word id : {6, 7}) {
    const auto request = next<HandleSockets::Request>(*end.sockets);
    if (!request || request->reader != 1 || request->id != id) return "nonsense is taken";
  }
  (void)::send(fd, "x", 1, MSG_NOSIGNAL);
  return end.close();
}
}  // namespace

TEST_CASE("what is no message of a peer is dropped") {
  CHECK(alone_with_child([](int fd) { return send_nonsense(fd); },
                         [](int fd, pid_t) { return receive_nonsense(fd); }) == "");
}

namespace {
/// Sockets of three ranks, connected as `open` does.
struct ThreeRanks {
  std::vector<HandleSockets> ranks;
  std::vector<detail::Fd> ends;  // by rank that reads

  ThreeRanks() {
    for (int rank = 0; rank < 3; ++rank) {
      int both[2];
      REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, both) == 0);
      ends.emplace_back(both[1]);
      ranks.push_back(HandleSockets::of(rank, 3, detail::Fd{both[0]}).value());
    }
    for (int rank = 0; rank < 3; ++rank) {
      for (int peer = 0; peer < 3; ++peer) {
        if (peer != rank) connect(ranks[std::size_t(rank)], peer);
      }
    }
  }
  void connect(HandleSockets& from, int peer) const {
    from.connect(peer, detail::Fd{::dup(ends[std::size_t(peer)].get())});
  }
};
std::optional<HandleSockets::Request> request_of(const HandleSockets& sockets) {
  const auto message = sockets.receive();
  const auto* const found = message ? std::get_if<HandleSockets::Request>(&*message) : nullptr;
  return found == nullptr ? std::nullopt : std::optional{*found};
}
}  // namespace

TEST_CASE("no rank can answer in the name of another one") {
  const ThreeRanks three;
  const auto& ranks = three.ranks;
  REQUIRE(ranks[0].ask(1, 5, 0));
  REQUIRE(ranks[0].ask(2, 6, 0));
  const auto to_owner = request_of(ranks[1]), to_other = request_of(ranks[2]);
  REQUIRE((to_owner && to_other));
  // Rank 2 claims to be rank 1, with all that it has received itself.
  HandleSockets liar = HandleSockets::of(1, 3, detail::Fd{}).value();
  three.connect(liar, 0);
  HandleSockets::Request forged = *to_other;
  forged.id = 5;
  Handles handles;
  handles.push_back(numbered(9));
  REQUIRE(liar.reply(forged, handles));
  forged.nonce = {};
  REQUIRE(liar.reply(forged, handles));
  CHECK_FALSE(ranks[0].receive());
  REQUIRE(ranks[1].reply(*to_owner, handles));
  const auto reply = next<HandleSockets::Reply>(ranks[0]);
  REQUIRE(reply);
  CHECK((reply->owner == 1 && reply->id == 5 && number_of(reply->handles[0]) == 9));
}

TEST_CASE("no message leaves a descriptor open") {
  const ThreeRanks three;
  const auto open_descriptors = [] {
    return std::distance(std::filesystem::directory_iterator{"/proc/self/fd"}, {});
  };
  const auto before = open_descriptors();
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, whole}) {
    CAPTURE(bytes);
    std::vector<std::byte> content(bytes);
    iovec data{content.data(), content.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* const head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int));
    const int fd = three.ends[1].get();
    std::memcpy(CMSG_DATA(head), &fd, sizeof fd);
    REQUIRE(::sendmsg(three.ends[0].get(), &message, MSG_NOSIGNAL) == ssize_t(bytes));
    CHECK_FALSE(three.ranks[0].receive());
    CHECK(open_descriptors() == before);
  }
}

TEST_CASE("ranks of one process exchange no descriptors") {
  (void)install_gpus(2);
  const auto comms = create({0, 1});
  std::vector<std::string> wrong(2, "did not run");
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < 2; ++r) {
    REQUIRE(comms[r]);
    threads.emplace_back([&, r] {
      const auto sockets = HandleSockets::open(*detail::Access::state(*comms[r]), 0, "handles");
      wrong[r] = !sockets                                               ? sockets.error().message()
                 : sockets->ask(1 - int(r), 1, 0) || sockets->receive() ? "a message"
                                                                        : "";
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(wrong == std::vector<std::string>(2));
}
