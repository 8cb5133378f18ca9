// Control messages of a peer that do not fit, at both ends of a connection over a plug-in.
#include "transport/plug_in/task.hpp"

#include <vector>

#include "support/catch.hpp"
#include "support/environment.hpp"
#include "support/error_matchers.hpp"
#include "support/lone_end.hpp"
#include "support/net_plug_in.hpp"

using namespace ccl;
using namespace ccl::test;
using namespace ccl::detail;

namespace {

constexpr WireShape shape{2, 4, 4096};

struct Chosen {
  const Environment by{"CCL_NET_PLUGIN", TestNet{12}.path()};
};
struct End : Chosen,
             LoneEnd<PlugInLink, PlugInControl, make_plug_in_receiver, make_plug_in_sender> {
  explicit End(EdgeSide side) : LoneEnd{side, shape} {}
};

template <class T>
ControlWriter list(const std::vector<T>& values) {
  ControlWriter body;
  body.put_all(values);
  return body;
}
void check_refused(EdgeSide side, PlugInControl say, const ControlWriter& body, const char* why) {
  const Error error = End{side}.after(say, body);
  INFO(error.message() << "\nexpected: " << why);
  CHECK(error.code == Errc::mismatch);
  CHECK(error.rank == (side == EdgeSide::sender ? 0 : 1));
  CHECK(error.peer == 1 - error.rank);
  CHECK(mentions(error.what, why));
}

}  // namespace

TEST_CASE("a sender refuses what a receiver does not send") {
  const auto sender = EdgeSide::sender;
  check_refused(sender, PlugInControl::listens, list<NetHandle>({{}}), "on 1 channels, not 2");
  check_refused(sender, PlugInControl::listens, list<NetHandle>({{}, {}, {}}),
                "on 3 channels, not 2");
  check_refused(sender, PlugInControl::listens, {}, "on 0 channels, not 2");
  check_refused(sender, PlugInControl::ending, list<Word>({1}), "ends 1 channels, not 2");
  check_refused(sender, PlugInControl(77), {}, "type of a control message is 77, not from 1 to 4");
  ControlWriter claims;
  claims.put(std::uint32_t{1u << 31});
  check_refused(sender, PlugInControl::listens, claims, "on 0 channels, not 2");
}

TEST_CASE("a receiver refuses what a sender does not send") {
  const auto receiver = EdgeSide::receiver;
  check_refused(receiver, PlugInControl::listens, list<NetHandle>({{}, {}}),
                "the sender sends what a receiver does");
  check_refused(receiver, PlugInControl::ending, list<Word>({1, 2, 3}), "ends 3 channels, not 2");
  check_refused(receiver, PlugInControl::refused, {}, "its end is missing");
}

TEST_CASE("an end that leaves before there is a connection is an error of the other") {
  for (const EdgeSide side : {EdgeSide::sender, EdgeSide::receiver}) {
    End end{side};
    end.link->context.status = nullptr;  // else it waits for an account of a third rank
    const Error error = end.after(PlugInControl::close_notify, {});
    CHECK(error.code == Errc::peer_lost);
    CHECK(mentions(error.what, "it closed its end of the connection"));
  }
}

TEST_CASE("the error of the other end is that of this one, too") {
  End end{EdgeSide::sender};
  Error theirs{Errc::over_budget, "there is no memory"};
  theirs.peer = 7;
  ControlWriter body;
  body.body = refusal(theirs);
  const Error error = end.after(PlugInControl::refused, body);
  CHECK(error.code == Errc::over_budget);
  CHECK(error.peer == 7);
  CHECK(mentions(error.what, "gave up: there is no memory"));
}
