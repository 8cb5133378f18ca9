// Bytes of a connection that carries frames, in pieces, and what a root does with its frames.
#include "fuzz/fuzz.hpp"
#include "net/message_rules.hpp"
#include <sys/epoll.h>
#include <sys/socket.h>

namespace ccl::fuzz {

using namespace detail;
using namespace detail::net;

void prepare() {}

void read(Input input) {
  int both[2];
  demand(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, both) == 0, "pair");
  const Fd far{both[1]};
  Source source{input};
  const std::size_t piece = 1 + source.take<std::uint8_t>();
  int frames = 0, ends = 0;
  const auto conn = std::make_shared<Conn>(
      Fd{both[0]},
      [&](Conn& c, const FrameHeader& header, Bytes payload) {
        ++frames;
        demand(payload.size() == header.bytes, "a payload of another length");
        demand(wrong_header(header).empty(), "a header that does not fit");
        Hello hello;
        if (read_into(hello, payload)) (void)wrong_join(hello);
        ShrinkHello shrink;
        if (read_into(shrink, payload)) (void)wrong_shrink(shrink);
        RootNotice notice;
        if (read_into(notice, payload) && wrong_notice(notice).empty()) (void)to_error(notice);
        if (std::string why = wrong_to_root(1, header, payload); !why.empty()) {
          c.reject(std::move(why));
        }
      },
      [&](Conn& c, int) {
        ++ends;
        c.close();
      });
  const std::lock_guard lock{Engine::get().mutex()};
  while (!source.empty() && conn->is_open()) {
    const Input bytes = source.take_bytes(piece);
    demand(::send(far.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) == ssize_t(bytes.size()),
           "send");
    conn->ready(EPOLLIN);
    char answer[4096];
    while (::recv(far.get(), answer, sizeof answer, 0) > 0) {
    }
  }
  demand(ends == (conn->is_open() ? 0 : 1), "an end that is not reported once");
  conn->close();
}

std::vector<std::string> seeds() {
  const std::uint8_t piece = 200, one = 0;
  const auto frame = [](FrameKind kind, const auto& payload) {
    return bytes_of(FrameHeader{kind, 1, 1, sizeof payload}, payload);
  };
  const RootNotice notice = to_notice({Errc::aborted, "a fuzzed error", -1, 2});
  const FrameHeader formed{FrameKind::formed, 1, 0, 0}, goodbye{FrameKind::goodbye, 1, 0, 0};
  const Hello hello{HelloKind::join, 4, 1, 0, this_member(1, {})};
  const ShrinkHello shrink{{HelloKind::stay, 4, 0, 0, this_member(1, {})}};
  return {bytes_of(piece) + frame(FrameKind::notice, notice),
          bytes_of(piece, formed, goodbye),
          bytes_of(one) + frame(FrameKind::rank_status, notice.code),
          bytes_of(piece) + frame(FrameKind::message, hello),
          bytes_of(piece) + frame(FrameKind::message, shrink),
          bytes_of(piece, FrameHeader{FrameKind::message, 1, 1, max_message_bytes})};
}

}  // namespace ccl::fuzz
