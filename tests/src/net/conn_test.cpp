#include "net/conn.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <map>
#include <mutex>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include <sys/ioctl.h>
#include <sys/socket.h>

using namespace ccl;
using namespace ccl::detail::net;
using ccl::detail::Fd;

namespace {

/// Connection of the engine, and its other end, which no thread serves.
struct Ends {
  explicit Ends(
      Conn::OnFrame frame = [](Conn&, const FrameHeader&, Bytes) {},
      Conn::OnClosed closed = [](Conn&, int) {}) {
    int both[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, both) == 0);
    far = Fd{both[1]};
    const std::lock_guard lock{Engine::get().mutex()};
    near = Conn::start(Fd{both[0]}, std::move(frame), std::move(closed)).value();
  }
  ~Ends() {
    const std::lock_guard lock{Engine::get().mutex()};
    near->close();
  }
  std::shared_ptr<Conn> near;
  Fd far;
};

struct Frame {
  FrameHeader header;
  std::vector<std::byte> payload;
};
/// Returns the next frame.
Frame read_frame(const Fd& fd) {
  const auto soon = Deadline::after(20);
  Frame frame;
  REQUIRE(recv_all(fd.get(), &frame.header, sizeof frame.header, soon, nullptr).has_value());
  frame.payload.resize(frame.header.bytes);
  REQUIRE(recv_all(fd.get(), frame.payload.data(), Index(frame.header.bytes), soon, nullptr)
              .has_value());
  return frame;
}
void write_header(const Fd& fd, const FrameHeader& header) {
  REQUIRE(send_all(fd.get(), &header, sizeof header, Deadline::after(20), nullptr).has_value());
}

}  // namespace

TEST_CASE(
    "an end that does not read gets a few accounts, and the latest ones when it reads again") {
  constexpr int ranks = 100;
  constexpr std::uint64_t rounds = 20;
  const Ends ends;
  const std::vector<std::byte> text(1000, std::byte{7});
  for (std::uint64_t number = 1; number <= rounds; ++number) {
    for (int rank = 0; rank < ranks; ++rank) {
      const std::lock_guard lock{Engine::get().mutex()};
      ends.near->send_status(rank, number, text);
    }
  }
  int unread = 0;
  REQUIRE(::ioctl(ends.far.get(), FIONREAD, &unread) == 0);
  CHECK(unread > 0);
  CHECK(unread < 32'000);  // a connection's window is 64 KiB

  std::map<int, std::uint64_t> latest;
  const auto behind = [&] {
    return std::any_of(latest.begin(), latest.end(),
                       [](const auto& of) { return of.second < rounds; });
  };
  for (int n = 0; n < 2 * ranks && (latest.size() < ranks || behind()); ++n) {
    const Frame frame = read_frame(ends.far);
    CHECK(frame.header.kind == FrameKind::rank_status);
    CHECK(frame.payload == text);
    latest[frame.header.rank] = frame.header.tag;
    write_header(ends.far, {FrameKind::receipt, -1, 0, 0});
  }
  CHECK(latest.size() == ranks);
  CHECK_FALSE(behind());
}

TEST_CASE("the receiver of a status acknowledges it") {
  const Ends ends;
  write_header(ends.far, {FrameKind::rank_status, 3, 1, 0});
  CHECK(read_frame(ends.far).header.kind == FrameKind::receipt);
}

namespace {

// Waits for a value that the engine's thread sets; -1 after 20 s.
int wait_for(const std::atomic<int>& value) {
  const auto soon = Deadline::after(20);
  while (value < 0 && !soon.passed()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return value;
}

}  // namespace

TEST_CASE("a connection whose other end does not read ends, with a bounded queue") {
  std::atomic<int> closed{-1};
  const Ends ends{[](Conn&, const FrameHeader&, Bytes) {}, [&](Conn&, int code) { closed = code; }};
  const std::vector<std::byte> text(size_t{1} << 22);
  const size_t fits = Conn::max_unsent_bytes / text.size();
  for (size_t n = 0; n < fits + 3; ++n) {
    const std::lock_guard lock{Engine::get().mutex()};
    if (n == fits - 1) CHECK(closed == -1);
    ends.near->send(FrameKind::message, 0, n, text);
  }
  CHECK(wait_for(closed) == ENOBUFS);
}

TEST_CASE("a connection keeps no memory of large frames that are gone") {
  constexpr size_t bytes = size_t{4} << 20, kept = size_t{64} << 10;
  std::atomic<int> arrived{-1};
  const Ends ends{[&](Conn&, const FrameHeader& header, Bytes) { arrived = int(header.bytes); }};
  const std::vector<std::byte> text(bytes, std::byte{7});
  const auto held = [&] {
    const std::lock_guard lock{Engine::get().mutex()};
    return ends.near->buffer_bytes();
  };
  {
    const std::lock_guard lock{Engine::get().mutex()};
    ends.near->send(FrameKind::message, 0, 1, text);
  }
  CHECK(held() > kept);  // the socket does not take it all
  CHECK(read_frame(ends.far).payload == text);
  const auto soon = Deadline::after(20);
  while (held() > kept && !soon.passed()) std::this_thread::yield();
  CHECK(held() <= kept);

  write_header(ends.far, {FrameKind::message, 0, 2, bytes});
  REQUIRE(send_all(ends.far.get(), text.data(), Index(bytes), soon, nullptr).has_value());
  CHECK(wait_for(arrived) == int(bytes));
  CHECK(held() <= kept);
}

TEST_CASE("an exception of a connection ends that one and no other") {
  std::atomic<int> closed{-1};
  const Ends bad{[](Conn&, const FrameHeader&, Bytes) { throw std::bad_alloc{}; },
                 [&](Conn&, int code) { closed = code; }};
  const Ends good;
  write_header(bad.far, {FrameKind::message, 3, 1, 0});
  CHECK(wait_for(closed) == ENOMEM);
  write_header(good.far, {FrameKind::rank_status, 3, 1, 0});
  CHECK(read_frame(good.far).header.kind == FrameKind::receipt);
}
