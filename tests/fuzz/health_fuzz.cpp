// Bytes of a client of the health service, in pieces, and answers that it reads in pieces.
#include <memory>

#include "fuzz/fuzz.hpp"
#include "observe/health/session.hpp"

namespace ccl::fuzz {

using namespace detail::health;

void prepare() {}

namespace {
std::size_t drain(Session& session, std::size_t most) {
  std::size_t sent = 0;
  while (sent < most && !session.output().empty()) {
    const std::size_t piece = std::min(most - sent, session.output().size());
    session.sent(piece);
    sent += piece;
  }
  return sent;
}
}  // namespace

void read(Input input) {
  Source source{input};
  const std::size_t piece = 1 + source.take<std::uint8_t>();
  const std::size_t reads = source.take<std::uint8_t>();  // bytes that the client reads after each
  const auto answer = std::make_shared<const std::string>("an answer\n");
  Session session;
  while (!source.empty() && session.accepts()) {
    session.receive(text_of(source.take_bytes(piece)));
    demand(session.output().size() <= Session::max_small_bytes, "more output than may be");
    if (session.request()) session.answer(answer);
    if (session.monitored() != 0) session.event("an event");
    (void)drain(session, reads);
  }
  session.end_of_input();
  // A client that reads all gets to the end of its session.
  for (int i = 0; i < 64 && !session.done(); ++i) {
    if (session.request()) session.answer(answer);
    (void)drain(session, Session::max_small_bytes * 2);
  }
  demand(session.done(), "a session without an end");
}

std::vector<std::string> seeds() {
  const std::uint8_t piece = 200, one = 0;
  const auto client = [](std::uint8_t size, std::uint8_t reads, const char* text) {
    return bytes_of(size, reads) + text;
  };
  return {client(piece, 255, "CLIENT PROTOCOL 2\nTIMEOUT 8\nSET FORMAT json\nSTATUS\n"),
          client(one, 1, "VERBOSE STATUS\r\n"),
          client(piece, 0, "MONITOR lifecycle,trace\nMONITOR all\nset format text\n"),
          client(piece, 3, "CONTROL PROFILER_MASK coll,p2p,0x1f\nDIAGNOSTICS\n"),
          client(piece, 255, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"),
          client(piece, 255, "POST / HTTP/1.0\r\n\r\nSTATUS\n"),
          client(piece, 255, "METRICS\n")};
}

}  // namespace ccl::fuzz
