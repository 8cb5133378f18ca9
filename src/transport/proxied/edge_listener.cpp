#include "transport/proxied/edge_listener.hpp"

#include <ccl/comm/log.hpp>

#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "base/fork_mutex.hpp"
#include "base/made_once.hpp"
#include "net/engine.hpp"

namespace ccl::detail {
namespace {
using Key = std::pair<std::string, net::Secret>;  // the address that was asked for
}

/// A listening socket and its edges. The engine's mutex guards it.
struct EdgeListener::Shared {
  Key key;
  std::shared_ptr<net::Acceptor> acceptor;
  std::map<Nonce, Take> edges;

  void route(net::Accepted caller) const {
    if (!caller.differs.empty()) return;  // its rank fails
    Nonce nonce{};
    if (caller.hello.size() >= sizeof nonce) {
      std::memcpy(&nonce, caller.hello.data(), sizeof nonce);
    }
    const auto edge = edges.find(nonce);
    if (edge != edges.end()) return edge->second(std::move(caller));
    log_info(
        LogPart::net,
        "refused a connection from {} (it is for no edge that listens at {}; the edge may have "
        "ended)",
        caller.from.to_string(), acceptor->address().to_string());
  }

  /// Sockets of the process, by what shares them. A lock of the engine comes first.
  struct Table {
    std::map<Key, std::weak_ptr<Shared>> sockets;
    ForkMutex mutex{[this] { renew(sockets); }};
    static Table& get() {
      static constinit MadeOnce<Table> one;
      return one.get();
    }
  };
};

Result<EdgeListener> EdgeListener::open(const net::Address& where, const net::Secret& secret,
                                        const Nonce& nonce, Take take) {
  const std::lock_guard engine{net::Engine::get().mutex()};
  Shared::Table& table = Shared::Table::get();
  const std::lock_guard lock{table.mutex};
  const Key key{where.to_string(), secret};
  const auto known = table.sockets.find(key);
  std::shared_ptr<Shared> shared = known == table.sockets.end() ? nullptr : known->second.lock();
  // A forked child has closed the socket of its parent, whose edges it leaves alone.
  if (shared && shared->acceptor->fd() < 0) shared = nullptr;
  if (shared) {
    shared->edges.emplace(nonce, std::move(take));
  } else {
    shared = std::make_shared<Shared>();
    shared->key = key;
    shared->edges.emplace(nonce, std::move(take));
    std::weak_ptr<Shared>& place = table.sockets[key];  // before the socket: may need memory
    const auto route = [to = std::weak_ptr{shared}](net::Accepted caller) {
      if (const auto alive = to.lock()) alive->route(std::move(caller));
    };
    CCL_TRY(shared->acceptor, net::Acceptor::open(where, secret, route));
    place = shared;
  }
  return EdgeListener{std::move(shared), nonce};
}

EdgeListener::~EdgeListener() {
  if (!shared_) return;
  const std::lock_guard engine{net::Engine::get().mutex()};
  shared_->edges.erase(nonce_);
  if (!shared_->edges.empty()) return;
  shared_->acceptor->close();
  Shared::Table& table = Shared::Table::get();
  const std::lock_guard lock{table.mutex};
  const auto known = table.sockets.find(shared_->key);
  if (known != table.sockets.end() && known->second.lock() == shared_) table.sockets.erase(known);
}

const net::Address& EdgeListener::address() const {
  return shared_->acceptor->address();
}

}  // namespace ccl::detail
