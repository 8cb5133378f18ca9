#include "bootstrap/members/membership.hpp"

#include <ccl/detail/runtime/host_id.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/text.hpp"
#include "net/message_rules.hpp"

namespace ccl::detail {

using namespace net;

Membership::Membership(int rank, int ranks, const Secret& secret, double deadline_s)
    : rank(rank),
      ranks(ranks),
      secret(secret),
      deadline_s(deadline_s),
      ring(static_cast<size_t>(ranks)) {
  std::iota(ring.begin(), ring.end(), 0);
}

Membership::Membership(const Membership& all, std::vector<int> surviving, double deadline_s)
    : rank(all.rank),
      ranks(all.ranks),
      secret(all.secret),
      deadline_s(deadline_s),
      survivors(true),
      me(all.me),
      members(all.members),
      places(all.places),
      ring(std::move(surviving)) {}

Result<void> Membership::check_member(int r, const Member& member) const {
  const std::string why = wrong_member(member, r, r);
  if (why.empty()) return {};
  return failed_at(r, protocol_error(fmt::format("rank {}", r), r, describe(me), why));
}

void Membership::set_members(const Lock&, std::vector<Member> all) {
  members = std::move(all);
  for (const Member& m : members) {
    places.push_back({m.rank, m.pid, m.host_hash, on_one_line({m.host, strnlen(m.host, 40)})});
  }
}

Address Membership::listening_at() const {
  Address a{me.listen};
  a.set_port(0);
  return a;
}

int Membership::position_of(int r) const {
  const auto at = std::lower_bound(ring.begin(), ring.end(), r);
  return at == ring.end() || *at != r ? -1 : int(at - ring.begin());
}

void Membership::complete(Error& e) const {
  if (e.rank < 0) e.rank = rank;
  if (e.host.empty()) e.host = host_name();
}

Result<void> Membership::failed(Errc code, std::string what) const {
  Error e;
  e.code = code;
  e.what = std::move(what);
  complete(e);
  return fail(std::move(e));
}

Result<void> Membership::failed_at(int peer, Error e) const {
  e.peer = peer;
  complete(e);
  return fail(std::move(e));
}

Error Membership::from_parent(Error error) const {
  const auto& there = ranks_in_parent;
  const auto at = std::find(there.begin(), there.end(), error.peer);
  const int peer = at == there.end() ? -1 : int(at - there.begin());
  if (peer != error.peer) error.what += "; ranks are those of the parent";
  error.peer = peer;
  return error;
}

Error Membership::in_parent(Error error) const {
  const auto peer = size_t(error.peer);  // without a peer: larger than any index
  if (peer < ranks_in_parent.size() && ranks_in_parent[peer] != error.peer) {
    error.peer = ranks_in_parent[peer];
    error.what += fmt::format("; rank {} is rank {} of the parent", peer, error.peer);
  }
  return error;
}

}  // namespace ccl::detail
