#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "bootstrap/core.hpp"

namespace ccl::detail {

using namespace net;

Result<void> Bootstrap::all_gather_hosts(void* all, Index bytes_each) {
  const int me = rank();
  // Hosts in the order of their first ranks, which are their leaders.
  std::vector<std::vector<int>> hosts;
  size_t my_host = 0;
  for (int r = 0; r < ranks(); ++r) {
    const auto same = [&](const auto& h) { return place(h[0]).host_hash == place(r).host_hash; };
    const auto it = std::find_if(hosts.begin(), hosts.end(), same);
    const size_t index = size_t(it - hosts.begin());
    if (it == hosts.end()) hosts.emplace_back();
    hosts[index].push_back(r);
    if (r == me) my_host = index;
  }
  if (hosts.size() == 1 || int(hosts.size()) == ranks()) return all_gather(all, bytes_each);
  if (all == nullptr || bytes_each < 0) return all_gather(all, bytes_each);  // fails
  auto* base = static_cast<std::byte*>(all);
  const std::uint64_t tag = core_->messages().next_tag();
  const auto expect = [&](int peer, Index bytes) -> Result<std::vector<std::byte>> {
    CCL_TRY(auto message, core_->messages().recv(peer, tag));
    if (Index(message.size()) != bytes) {
      const auto e = core_->membership().failed(
          Errc::mismatch,
          fmt::format("rank {} gave {} bytes to all_gather_hosts where {} were due; "
                      "all must give the same",
                      peer, message.size(), bytes));
      return fail(e.error());
    }
    return message;
  };
  const int leader = hosts[my_host][0];
  const Index whole = bytes_each * ranks();
  if (me != leader) {
    CCL_CHECK(core_->messages().send(leader, tag, base + me * bytes_each, bytes_each));
    CCL_TRY(const auto message, expect(leader, whole));
    std::memcpy(base, message.data(), size_t(whole));
    return {};
  }
  for (const int r : hosts[my_host]) {
    if (r == me) continue;
    CCL_TRY(const auto message, expect(r, bytes_each));
    std::memcpy(base + r * bytes_each, message.data(), size_t(bytes_each));
  }
  // Both ways around the ring of leaders: first the own host's parts, then those of the last step.
  const int count = int(hosts.size());
  const auto at = [&](int offset) -> const std::vector<int>& {
    return hosts[size_t(((int(my_host) + offset) % count + count) % count)];
  };
  const auto send_host = [&](int to, const std::vector<int>& ranks_of) -> Result<void> {
    std::vector<std::byte> message;
    for (const int r : ranks_of) {
      message.insert(message.end(), base + r * bytes_each, base + (r + 1) * bytes_each);
    }
    return core_->messages().send(to, tag, message.data(), Index(message.size()));
  };
  const auto recv_host = [&](int from, const std::vector<int>& ranks_of) -> Result<void> {
    CCL_TRY(const auto message, expect(from, bytes_each * Index(ranks_of.size())));
    for (size_t i = 0; i < ranks_of.size(); ++i) {
      std::memcpy(base + ranks_of[i] * bytes_each, message.data() + Index(i) * bytes_each,
                  size_t(bytes_each));
    }
    return {};
  };
  for (int step = 1; step <= count / 2; ++step) {
    const bool back = step <= (count - 1) / 2;
    CCL_CHECK(send_host(at(1)[0], at(1 - step)));
    if (back) CCL_CHECK(send_host(at(-1)[0], at(step - 1)));
    CCL_CHECK(recv_host(at(-1)[0], at(-step)));
    if (back) CCL_CHECK(recv_host(at(1)[0], at(step)));
  }
  for (const int r : hosts[my_host]) {
    if (r != me) CCL_CHECK(core_->messages().send(r, tag, base, whole));
  }
  return {};
}

}  // namespace ccl::detail
