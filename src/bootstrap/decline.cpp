#include "bootstrap/decline.hpp"

#include <ccl/detail/runtime/bootstrap.hpp>

#include <fmt/format.h>

#include <utility>

#include "base/exceptions.hpp"
#include "net/auth.hpp"
#include "net/conn.hpp"
#include "net/rendezvous.hpp"
#include "net/root.hpp"

namespace ccl::detail {

using namespace net;

namespace {

constexpr double connect_s = 2;

void tell(const IdContent& id, const Hello& hello, const Error& error) {
  {
    const Lock lock = Engine::get().lock();
    if (local_root_waits(id.secret)) return fail_local_root(id.secret, error);
  }
  const auto root_is = id.root_rank < 0 ? Listener::has_started : Listener::may_start;
  auto socket = auth_connect(Address{id.root}, id.secret, bytes_of(hello),
                             Deadline::after(connect_s), nullptr, root_is);
  if (!socket) return;
  const Lock lock = Engine::get().lock();
  const auto ignore = [](auto&&...) {};
  const auto conn = Conn::start(std::move(*socket), ignore, ignore);
  if (!conn) return;
  (*conn)->send_now(FrameKind::notice, hello.me.rank, 0, bytes_of(to_notice(error)));
  (*conn)->drain();
}

}  // namespace

void decline(std::span<const UniqueId> ids, int rank, int ranks, const Error& error) noexcept {
  if (ranks < 2 || rank < 0 || rank >= ranks || ids.empty() || Index(ids.size()) > ranks) return;
  (void)completes([&] {
    const int roots = int(ids.size()), mine = root_of_rank(rank, ranks, roots);
    const auto id = unpack(ids[std::size_t(mine)]);
    if (!id) return;
    const Member me = this_member(rank, id->root);  // an address that nobody connects to
    Error of_others = error;
    of_others.peer = rank;
    of_others.what = fmt::format("{} does not join: {}", describe(me), error.what);
    tell(*id, {HelloKind::decline, ranks, roots, mine, me}, of_others);
  });
}

}  // namespace ccl::detail
