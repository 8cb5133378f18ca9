#include "bootstrap/decline.hpp"

#include <ccl/detail/runtime/bootstrap.hpp>

#include <fmt/format.h>

#include <chrono>
#include <thread>
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
constexpr double stay_s = 2;  // for ranks that come a little later

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

/// The error of the others.
Error declined(const Member& me, const Error& error) {
  Error out = error;
  out.peer = me.rank;
  out.what = fmt::format("{} does not join: {}", describe(me), error.what);
  return out;
}

}  // namespace

void decline(std::span<const UniqueId> ids, int rank, int ranks, const Error& error) noexcept {
  if (ranks < 2 || rank < 0 || rank >= ranks || ids.empty() || Index(ids.size()) > ranks) return;
  (void)completes([&] {
    const int roots = int(ids.size()), mine = root_of_rank(rank, ranks, roots);
    const auto id = unpack(ids[std::size_t(mine)]);
    if (!id) return;
    const Member me = this_member(rank, id->root);  // an address that nobody connects to
    tell(*id, {HelloKind::decline, ranks, roots, mine, me}, declined(me, error));
  });
}

void decline_as_root(const UniqueId& id, const Error& error) noexcept {
  (void)completes([&] {
    const auto content = unpack(id);
    if (!content || !open_root(Address{content->root}, content->secret, 0)) return;
    {
      const Lock lock = Engine::get().lock();
      fail_local_root(content->secret, declined(this_member(0, content->root), error));
    }
    std::this_thread::sleep_for(std::chrono::duration<double>(stay_s));
    end_root(id);
  });
}

}  // namespace ccl::detail
