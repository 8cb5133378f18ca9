#include "observe/health/gather.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <utility>

#include "base/exceptions.hpp"
#include "base/thread.hpp"

namespace ccl::detail::health {
namespace {

using Steady = std::chrono::steady_clock;
constexpr std::size_t max_threads = 16;  // communicators that are asked side by side
constexpr double min_ask_s = 0.05;       // in which ranks that are well answer

void ask(Asked& one, double limit_s) {
  CommView& view = one.view;
  if (one.addresses) {
    const auto addresses = one.addresses();
    for (std::size_t r = 0; r < std::min(view.ranks.size(), addresses.size()); ++r) {
      // Ranks without an address are on this host.
      view.ranks[r].address = addresses[r].empty() ? "127.0.0.1" : addresses[r];
    }
  }
  if (!one.statuses) return;
  if (limit_s < min_ask_s) {
    view.asked = false;
    return;
  }
  const auto bytes = one.statuses(limit_s);
  const auto mine = std::size_t(view.asking);
  view.asked = mine < bytes.size() && !bytes[mine].empty();
  for (std::size_t r = 0; r < std::min(view.ranks.size(), bytes.size()); ++r) {
    if (int(r) != view.asking) read_status(bytes[r], int(r), int(view.ranks.size()), view.ranks[r]);
  }
}

}  // namespace

void read_status(const std::vector<std::byte>& bytes, int rank, int ranks, RankView& of) {
  const auto is_peer = [ranks](int peer) { return peer >= -1 && peer < ranks; };
  RankHealth health;
  RankStatus status;
  if (!unpack(bytes, health) || !unpack(without_health(bytes), status) || status.rank != rank ||
      !is_peer(status.waits.peer) || !is_peer(health.lost_peer)) {
    return;
  }
  of.health = health;
  of.status = std::move(status);
  of.device = health.device;
}

Snapshot gather(std::vector<Asked> all, double limit_s) {
  const auto begin = Steady::now();
  const auto left_s = [&] {
    const std::chrono::duration<double> spent = Steady::now() - begin;
    return std::max(0.0, limit_s - spent.count());
  };
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < all.size(); i = next++) {
      // Without memory: no answer.
      if (!completes([&] { ask(all[i], left_s()); })) all[i].view.asked = false;
    }
  };
  std::vector<std::thread> threads;
  threads.reserve(max_threads);
  for (std::size_t i = 1; i < std::min(all.size(), max_threads); ++i) {
    auto thread = own_thread("the health service", work);
    if (!thread) break;  // the others do its work
    threads.push_back(*std::move(thread));
  }
  work();
  for (std::thread& thread : threads) thread.join();
  Snapshot out;
  out.collection_s = std::chrono::duration<double>(Steady::now() - begin).count();
  out.taken_ns = Word(std::chrono::duration_cast<std::chrono::nanoseconds>(
                          std::chrono::system_clock::now().time_since_epoch())
                          .count());
  for (Asked& one : all) {
    conclude(one.view);
    const auto is_late = [](const RankView& of) { return !of.status.answered && !of.departed; };
    if (one.view.asked && std::ranges::any_of(one.view.ranks, is_late)) ++out.timeouts;
    out.communicators.push_back(std::move(one.view));
  }
  return out;
}

}  // namespace ccl::detail::health
