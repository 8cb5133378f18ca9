#include "net/conn.hpp"

#include <algorithm>
#include <map>
#include <mutex>
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
  Ends() {
    int both[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, both) == 0);
    far = Fd{both[1]};
    const std::lock_guard lock{Engine::get().mutex()};
    near = Conn::start(
               Fd{both[0]}, [](Conn&, const FrameHeader&, Bytes) {}, [](Conn&, int) {})
               .value();
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
      ends.near->tell(rank, number, text);
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
