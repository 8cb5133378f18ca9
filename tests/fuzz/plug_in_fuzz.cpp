// Control messages of the other end of a connection over a network plug-in, to a receiver and to a
// sender. All runs in a network namespace with loopback alone, so that no handle leads elsewhere.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "base/io/fd.hpp"
#include "fuzz/connected.hpp"
#include "fuzz/fuzz.hpp"
#include "fuzz/links.hpp"
#include "support/lent.hpp"
#include "transport/plug_in/task.hpp"
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

namespace ccl::fuzz {

using namespace detail;

namespace {
/// What the library of the plug-in keeps is found by the proxy and the secret of a communicator.
test::Lent& lent() {
  static test::Lent* const one = new test::Lent;
  return *one;
}
}  // namespace

void prepare() {
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) {
    std::fprintf(stderr, "SKIP: no network namespace of its own\n");
    std::exit(77);
  }
  const Fd any{::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
  ifreq loopback{};
  std::strcpy(loopback.ifr_name, "lo");
  loopback.ifr_flags = IFF_UP;
  demand(::ioctl(any.get(), SIOCSIFFLAGS, &loopback) == 0, "loopback");
  ::setenv("CCL_NET_PLUGIN", CCL_FUZZ_NET_PLUG_IN, 1);
}

void read(Input input) {
  Source source{input};
  const bool sends = source.take<std::uint8_t>() % 2 != 0;
  const std::size_t piece = 1 + 16 * source.take<std::uint8_t>();
  const auto link =
      make_link<PlugInLink>(lent().context, sends ? EdgeSide::sender : EdgeSide::receiver);
  auto [far, near] = Connected::make();
  std::shared_ptr<ProxyTask> task;
  if (sends) {
    task = make_plug_in_sender(link, std::move(near));
  } else {
    demand(link->arriving.put(0, near), "line");
    task = make_plug_in_receiver(link);
  }
  feed(source, piece, far, *task);
  ProxyCounters counters;
  link->closing = true;
  for (int turn = 0; turn < 100 && task->progress(counters) != ProxyTask::Progress::ended; ++turn) {
  }
}

std::vector<std::string> seeds() {
  const std::string receiver{"\0\377", 2}, sender{"\1\377", 2};
  const std::uint32_t two = 2, one = 1, none = 0;
  const std::int32_t code = 1, whole = 0;
  const Word steps = 3;
  return {sender + message(PlugInControl::listens, two, NetHandle{}, NetHandle{}),
          sender + message(PlugInControl::ending, two, steps, steps),
          receiver + message(PlugInControl::ending, two, steps, steps),
          receiver + message(PlugInControl::ending, one, steps),
          receiver + message(PlugInControl::refused, code, whole, one, 'x'),
          sender + message(PlugInControl::refused, code, whole, none),
          sender + message(PlugInControl::close_notify),
          receiver + message(PlugInControl::close_notify)};
}

}  // namespace ccl::fuzz
