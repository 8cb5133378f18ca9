#pragma once

#include <ccl/transport/transport.hpp>

#include <map>
#include <memory>
#include <mutex>
#include <tuple>

#include "base/fork_mutex.hpp"
#include "base/made_once.hpp"

namespace ccl::detail {

/// Connects a rank's ends of the two edges between it and one peer, by their engine and their ids,
/// which encode sender and receiver. `Link` is the derived class.
template <class Link>
class ReverseLink : public std::enable_shared_from_this<Link> {
 public:
  /// This end of the edge in the other direction; null if there is none.
  std::shared_ptr<Link> mate() const {
    const std::lock_guard lock{mutex_};
    return mate_.lock();
  }

 protected:
  /// Registers the link once it has its edge and its engine.
  void enter() {
    const Link& self = static_cast<const Link&>(*this);
    const Edge& edge = self.edge;
    if (id_of(edge, false) != edge.id) return;
    std::shared_ptr<Link> back;  // released after the lock, which the last owner takes, too
    const std::lock_guard lock{ends().mutex};
    key_ = {self.context.proxy, edge.id, edge.side};
    ends().all[key_] = this->weak_from_this();
    const EdgeSide other = edge.side == EdgeSide::sender ? EdgeSide::receiver : EdgeSide::sender;
    const auto found = ends().all.find({self.context.proxy, id_of(edge, true), other});
    if (found != ends().all.end()) back = found->second.lock();
    // The tasks of a connection that has closed may still hold its end, while a new one is made.
    if (back == nullptr || back->closing.load(std::memory_order_acquire)) return;
    meet(back);
    back->meet(this->shared_from_this());
  }
  ~ReverseLink() {
    if (std::get<0>(key_) == nullptr) return;  // it was not entered
    const std::lock_guard lock{ends().mutex};
    const auto own = ends().all.find(key_);
    if (own != ends().all.end() && own->second.expired()) ends().all.erase(own);
  }

 private:
  using Key = std::tuple<const ProxyEngine*, unsigned long long, EdgeSide>;
  struct Ends {
    std::map<Key, std::weak_ptr<Link>> all;
    ForkMutex mutex{[this] { renew(all); }};
  };
  static Ends& ends() {
    static constinit MadeOnce<Ends> one;
    return one.get();
  }
  static constexpr int rank_bits = 20;  // see edge_id()
  static unsigned long long id_of(const Edge& edge, bool back) {
    const bool sends = (edge.side == EdgeSide::sender) != back;
    const auto from = static_cast<unsigned long long>(sends ? edge.self.rank : edge.peer.rank);
    const auto to = static_cast<unsigned long long>(sends ? edge.peer.rank : edge.self.rank);
    return edge.id >> 2 * rank_bits << 2 * rank_bits | from << rank_bits | to;
  }
  void meet(const std::shared_ptr<Link>& mate) {
    const std::lock_guard lock{mutex_};
    mate_ = mate;
  }

  Key key_{};
  mutable std::mutex mutex_;
  std::weak_ptr<Link> mate_;
};

}  // namespace ccl::detail
