#include "observe/health/session.hpp"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "base/profiler_mask.hpp"
#include "support/catch.hpp"

using namespace ccl::detail::health;
using ccl::detail::profiler_mask;

namespace {
/// Takes all that the session has to send.
std::string take(Session& session) {
  std::string all;
  while (!session.output().empty()) {
    all += session.output();
    session.sent(session.output().size());
  }
  return all;
}
/// Answers to `bytes`.
std::string said(const std::string& bytes) {
  Session session;
  session.receive(bytes);
  return take(session);
}
void answer(Session& session, const char* text) {
  session.answer(std::make_shared<const std::string>(text));
}
}  // namespace

TEST_CASE("the exchange of NCCL's client, byte for byte") {
  Session session;
  session.receive("CLIENT PROTOCOL 2\n");
  CHECK(take(session) == "SERVER PROTOCOL 2\n");
  session.receive("TIMEOUT 8\n");
  CHECK(take(session) == "OK\n");
  session.receive("SET FORMAT json\n");
  CHECK(take(session) == "OK\n");
  session.receive("STATUS\n");
  CHECK(take(session).empty());
  REQUIRE(session.request());
  CHECK(session.request()->kind == Kind::status);
  CHECK(session.request()->format == Format::json);
  CHECK_FALSE(session.done());
  answer(session, "{}\n");
  CHECK_FALSE(session.done());
  CHECK(take(session) == "{}\n");
  CHECK(session.done());  // the end of the file is the end of the answer
}

TEST_CASE("exchanges of NCCL 2.30.7's client, as a relay has recorded them") {
  // A line of the client, and what it must get before it sends the next one.
  struct Line {
    const char *sent, *answer;
  };
  struct Recorded {
    const char* arguments;
    std::vector<Line> lines;
    Kind kind;
    Format format;
    unsigned monitored;  // groups
  };
  const Line hello{"CLIENT PROTOCOL 2\n", "SERVER PROTOCOL 2\n"};
  const Line json{"SET FORMAT json\n", "OK\n"};
  const std::vector<Recorded> all{
      {"", {hello, {"STATUS\n", ""}}, Kind::status, Format::text, 0},
      {"-v", {hello, {"VERBOSE STATUS\n", ""}}, Kind::verbose_status, Format::text, 0},
      {"-f json -t 8",
       {hello, {"TIMEOUT 8\n", "OK\n"}, json, {"STATUS\n", ""}},
       Kind::status,
       Format::json,
       0},
      {"-t 0 -v",
       {hello, {"TIMEOUT 0\n", "OK\n"}, {"VERBOSE STATUS\n", ""}},
       Kind::verbose_status,
       Format::text,
       0},
      {"--monitor=all", {hello, {"MONITOR all\n", "OK\n"}}, {}, Format::text, lifecycle | trace},
      {"-m -f json", {hello, json, {"MONITOR\n", "OK\n"}}, {}, Format::json, lifecycle},
  };
  for (const Recorded& one : all) {
    INFO("ncclras " << one.arguments);
    Session session;
    for (const Line& line : one.lines) {
      session.receive(line.sent);
      CHECK(take(session) == line.answer);
    }
    CHECK(session.monitored() == one.monitored);
    CHECK(session.format() == one.format);
    CHECK_FALSE(session.done());
    if (one.monitored != 0) {
      session.event("an event");
      CHECK(take(session) == "an event\n");
      session.end_of_input();  // Ctrl-C
      CHECK(session.done());
      continue;
    }
    REQUIRE(session.request());
    CHECK(session.request()->kind == one.kind);
    CHECK(session.request()->format == one.format);
    answer(session, "the state\n");
    CHECK(take(session) == "the state\n");
    CHECK(session.done());
  }
}

TEST_CASE("commands may come together, in pieces, in any case and with carriage returns") {
  Session session;
  session.receive("SET FORMAT json\nSTATUS\nTIMEOUT 3\n");
  CHECK(take(session) == "OK\n");
  REQUIRE(session.request());
  answer(session, "x");
  CHECK(take(session) == "x");  // what follows STATUS has no answer
  Session other;
  for (const char c :
       std::string{"client  protocol 7\r\n  sEt format TEXT \r\n\r\nverbose STATUS\r\n"}) {
    if (other.accepts()) other.receive({&c, 1});
  }
  CHECK(take(other) == "SERVER PROTOCOL 2\nOK\n");
  REQUIRE(other.request());
  CHECK(other.request()->kind == Kind::verbose_status);
}

TEST_CASE("an unknown command is answered, and its bytes do not come back as they are") {
  CHECK(said("HELP\n") == "ERROR: Unknown command 'HELP'\n");
  CHECK(said("\x1b[2J\x01\n") == "ERROR: Unknown command '?[2J?'\n");
  CHECK(said(std::string(200, 'a') + "\n") ==
        "ERROR: Unknown command '" + std::string(64, 'a') + "'\n");
  CHECK(said("STATUS now\n") == "ERROR: Unknown command 'STATUS now'\n");
  CHECK(said("\n\n \n").empty());
}

TEST_CASE("values of commands are checked") {
  CHECK(said("TIMEOUT 0.5\nTIMEOUT 0\n") == "OK\nOK\n");
  for (const char* bad : {"", "-1", "soon", "1e99", "nan", "inf", "5 s"}) {
    INFO(bad);
    CHECK(said(std::string{"TIMEOUT "} + bad + "\n").starts_with("ERROR: Invalid timeout value"));
  }
  CHECK(said("SET FORMAT xml\n").starts_with("ERROR: Invalid format 'xml'"));
  CHECK(said("MONITOR sports\n") == "ERROR: Invalid event group 'sports'\n");
  CHECK(said("CONTROL PROFILER_MASK coll,p2p\n").starts_with("ERROR: no profiler plug-in"));
  CHECK(said("CONTROL PROFILER_MASK 0x1f\n").starts_with("ERROR: no profiler plug-in"));
  CHECK(said("CONTROL PROFILER_MASK cull\n").starts_with("ERROR: Invalid profiler mask"));
  int mask = -1;
  profiler_mask = &mask;  // as of a plug-in
  const auto set = [&](const std::string& text) {
    CHECK(said("CONTROL PROFILER_MASK " + text + "\n") == "OK\n");
    return mask;
  };
  CHECK(set("none") == 0);
  CHECK(set("all") == 0x7fff);
  CHECK(set("group, Coll,cebatch") == (1 | 2 | 1 << 14));
  CHECK(set("0x1f") == 0x1f);
  CHECK(set("12") == 12);
  for (const char* const bad : {"", "0x", "12x", "-1", "99999999999999999999", "0x80000000"}) {
    INFO(bad);
    CHECK(said(fmt::format("CONTROL PROFILER_MASK {}\n", bad)).starts_with("ERROR: "));
  }
  CHECK(mask == 12);
  profiler_mask = nullptr;
  CHECK(said("SET FORMAT json\nDIAGNOSTICS\n") ==
        "OK\nERROR: diagnostics only supports text output\n");
}

TEST_CASE("a monitor gets the groups that it asked for") {
  Session session;
  session.receive("MONITOR\n");
  CHECK(session.monitored() == lifecycle);
  session.receive("MONITOR trace, LIFECYCLE\n");
  CHECK(session.monitored() == (lifecycle | trace));
  session.event("[now] PEER_NEW: ...");
  CHECK(take(session) == "OK\nOK\n[now] PEER_NEW: ...\n");
}

TEST_CASE("a scraper with a long token in its headers gets the metrics") {
  Session session;
  session.receive("GET /metrics HTTP/1.1\r\nAuthorization: Bearer " + std::string(4096, 'x') +
                  "\r\n\r\n");
  REQUIRE(session.request());
  CHECK(session.request()->kind == Kind::metrics);
}

TEST_CASE("a line that is too long ends the session") {
  Session fits;
  fits.receive(std::string(Session::max_line_bytes - 1, 'x') + "\n");
  CHECK_FALSE(fits.done());
  for (const char* end : {"", "\n"}) {
    Session session;
    session.receive(std::string(Session::max_line_bytes, 'x') + end);
    CHECK(take(session).empty());
    CHECK(session.done());
  }
}

TEST_CASE("a client that sends much and reads nothing costs a bounded number of bytes") {
  Session session;
  std::string many;
  while (many.size() < 4096) many += "x\n";
  int received = 0;
  while (session.accepts() && ++received < 1000) session.receive(many);
  CHECK(received < 10);
  CHECK(session.output().size() < Session::max_small_bytes);
  CHECK_FALSE(session.done());
  session.sent(session.output().size());
  CHECK(session.accepts());  // it goes on when the client reads
  Session monitor;
  monitor.receive("MONITOR\n");
  for (int i = 0; i < 10000; ++i) monitor.event(std::string(100, 'e'));
  CHECK(monitor.output().size() <= Session::max_small_bytes);
  CHECK(monitor.monitored() == 0);
}

TEST_CASE("a scraper gets the metrics by HTTP, and a web page gets nothing else") {
  Session session;
  session.receive("GET /metrics HTTP/1.1\r\nHost: here\r\nAccept: */*\r\n");
  CHECK_FALSE(session.request());
  session.receive("\r\n");
  REQUIRE(session.request());
  CHECK(session.request()->kind == Kind::metrics);
  answer(session, "up 1\n");
  const std::string text = take(session);
  CHECK(text.starts_with("HTTP/1.1 200 OK\r\n"));
  CHECK(text.ends_with("Content-Length: 5\r\nConnection: close\r\n\r\nup 1\n"));
  Session query;  // Prometheus sends the `params` of a scrape
  query.receive("GET /metrics?name=a&b HTTP/1.1\r\n\r\n");
  REQUIRE(query.request());
  CHECK(query.request()->kind == Kind::metrics);
  for (const char* const other : {"/metrics2", "/?/metrics", "/metrics /metrics", "?", ""}) {
    INFO(other);
    CHECK(said(fmt::format("GET {} HTTP/1.1\r\n\r\n", other)).starts_with("HTTP/1.1 404 "));
  }
  CHECK(said("GET / HTTP/1.1\r\nSTATUS\r\n\r\n").starts_with("HTTP/1.1 404 Not Found\r\n"));
  Session post;
  post.receive("POST /metrics HTTP/1.1\r\n\r\nMONITOR\r\n");
  CHECK(post.monitored() == 0);
  CHECK(take(post).starts_with("HTTP/1.1 405 "));
  CHECK(post.done());
}

TEST_CASE("the end of the input ends the session, except for an answer that is due") {
  Session idle;
  idle.receive("MONITOR\n");
  idle.end_of_input();
  CHECK(take(idle) == "OK\n");
  CHECK(idle.done());
  Session asks;
  asks.receive("STATUS\n");
  asks.end_of_input();
  CHECK_FALSE(asks.done());
  answer(asks, "fine");
  CHECK(take(asks) == "fine");
  CHECK(asks.done());
}
