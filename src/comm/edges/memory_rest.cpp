#include "comm/edges/memory_rest.hpp"

#include <ccl/comm/log.hpp>
#include <ccl/detail/runtime/levels.hpp>

#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/exceptions.hpp"
#include "base/random.hpp"
#include "comm/edges/edge_handshake.hpp"
#include "comm/edges/memory_exchange.hpp"
#include "comm/edges/woken_memory.hpp"
#include "comm/rank_results.hpp"
#include "gpu/memory.hpp"
#include "topo/graph/p2p_path.hpp"
#include "transport/fd_server.hpp"

namespace ccl::detail {
namespace {

using Memories = std::vector<std::shared_ptr<GpuMemory>>;
using MemoryId = std::array<Word, 2>;

/// The communicator and its levels, each with memory and ranks of its own.
std::vector<CommState*> parts_of(CommState& state) {
  std::vector<CommState*> all{&state};
  if (const auto levels = state.levels.current()) {
    all.push_back(Access::state(levels->inner).get());
    if (levels->outer) all.push_back(Access::state(*levels->outer).get());
  }
  return all;
}

Memories memories_of(const CommState& state) {
  return state.device.gpu ? GpuMemory::that_can_rest(*state.device.gpu) : Memories{};
}

/// Result of all ranks; with a lone rank its own.
Result<void> agree(CommState& state, const char* who, const Result<void>& mine) {
  if (state.rendezvous.bootstrap() == nullptr) return mine;
  return all_agree(state, who, mine);
}

/// Lets the other owners' mappings go before the memory: only then the GPU has it back.
Result<void> rest(const std::vector<CommState*>& parts) {
  Result<void> done;
  for (const bool own : {false, true}) {
    for (CommState* const part : parts) {
      for (const auto& one : memories_of(*part)) {
        if (one->is_own() != own) continue;
        auto rested = one->rest();
        if (done && !rested) done = std::move(rested);
      }
    }
  }
  return done;
}

/// Keeps threads that use memory beside calls from it, or lets them use it again.
void set_resting(const std::vector<CommState*>& parts, bool rests) {
  for (CommState* const part : parts) {
    if (!part->device.gpu) continue;
    Gpu::Rest& rest = part->device.gpu->rest();
    const std::lock_guard lock{rest.mutex};
    if (rests && !rest.rests && rest.before) rest.before();
    rest.rests = rests;
  }
}

template <class F>
Result<void> each_own(const std::vector<CommState*>& parts, F f) {
  for (CommState* const part : parts) {
    for (const auto& one : memories_of(*part)) {
      if (one->is_own()) CCL_CHECK(f(*one));
    }
  }
  return {};
}

/// Exchange of the memory that ranks of other processes have mapped. Each step is taken for all
/// peers, whatever has failed before: they wait for it.
class Remap {
 public:
  explicit Remap(CommState& state) : state_{state}, context_{transport_context(state, nullptr)} {
    const auto& peers = state.identity.peers();
    const PeerInfo& self = peers[std::size_t(state.identity.rank())];
    for (const PeerInfo& peer : peers) {
      const bool near = peer.host_hash == self.host_hash || same_fabric(self, peer);
      if (peer.pid_hash != self.pid_hash && near) peers_.push_back(peer.rank);
    }
    mapped_.resize(peers.size());
  }

  Result<void> run() {
    for (const auto& one : memories_of(state_)) {
      if (!one->is_own()) mapped_[std::size_t(one->maker())].push_back(one);
    }
    Result<void> done;
    const auto take = [&](const auto& step) {
      for (const int p : peers_) {
        auto result = without_exceptions([&]() -> Result<void> { return step(p); });
        if (done && !result) done = std::move(result);
      }
    };
    take([this](int p) { return ask(p); });
    take([this](int p) { return answer(p); });
    take([this](int p) { return map(p); });
    return done;
  }

 private:
  template <class T>
  Result<void> send(int p, const std::vector<T>& all) {
    return state_.rendezvous.bootstrap()->send(p, tag_, all.data(), Index(all.size() * sizeof(T)));
  }
  template <class T>
  Result<std::vector<T>> receive(int p) {
    CCL_TRY(const auto bytes, state_.rendezvous.bootstrap()->recv(
                                  p, tag_, state_.limits.init_timeout_s, "CCL_INIT_TIMEOUT"));
    std::string why;
    auto all = read_array<T>(bytes, why);
    if (!all) return fail(state_.rendezvous.break_off(p, why).error());
    return *std::move(all);
  }
  Edge edge_to(int p) const { return even_edge(state_, edge_number, p); }

  Result<void> ask(int p) {
    std::vector<MemoryId> wanted;
    for (const auto& one : mapped_[std::size_t(p)]) wanted.push_back(one->name().id);
    return send(p, wanted);
  }

  Result<void> answer(int p) {
    CCL_TRY(const auto wanted, receive<MemoryId>(p));
    std::vector<WokenMemory> all;
    Result<void> done;
    for (const MemoryId& id : wanted) {
      WokenMemory& said = all.emplace_back();
      auto offered = offer(p, id, said);
      if (done && !offered) done = std::move(offered);
    }
    CCL_CHECK(send(p, all));  // it knows memory without a name as one that is not there
    return done;
  }
  Result<void> offer(int p, const MemoryId& id, WokenMemory& said) {
    for (const auto& one : memories_of(state_)) {
      if (!one->is_own() || one->name().id != id) continue;
      const Edge edge = edge_to(p);
      if (edge.self.host_hash == edge.peer.host_hash) {
        CCL_CHECK(fill_random(&said.nonce, sizeof said.nonce));
        CCL_TRY(Fd fd, one->share());
        const unsigned end = unsigned(edge.side == EdgeSide::sender);
        CCL_TRY(FdOffer offer, FdOffer::make(proof_of(context_, said.nonce, edge.id, end),
                                             edge.shape, std::move(fd)));
        said.at = offer.name();
        offers_.push_back(std::move(offer));
      }
      said.name = one->name();
      return {};
    }
    Error error{Errc::mismatch, fmt::format("rank {} has mapped memory that rank {} does not have",
                                            p, state_.identity.rank())};
    error.peer = p;
    return fail(std::move(error));
  }

  Result<void> map(int p) {
    CCL_TRY(const auto all, receive<WokenMemory>(p));
    const auto& mapped = mapped_[std::size_t(p)];
    if (all.size() != mapped.size()) {
      return state_.rendezvous.break_off(
          p,
          fmt::format("number of descriptions of memory is {}, not {}", all.size(), mapped.size()));
    }
    const Edge edge = edge_to(p);
    for (std::size_t n = 0; n < all.size(); ++n) {
      const WokenMemory& said = all[n];
      if (said.name.id != mapped[n]->name().id || said.name.bytes != mapped[n]->name().bytes) {
        Error error{Errc::peer_lost, fmt::format("rank {} has not got its memory back", p)};
        error.peer = p;
        return fail(std::move(error));
      }
      if (const std::string why = wrong_woken_memory(said); !why.empty()) {
        return state_.rendezvous.break_off(p, why);
      }
      Fd fd;
      if (edge.self.host_hash == edge.peer.host_hash) {
        const unsigned end = unsigned(edge.side != EdgeSide::sender);
        CCL_TRY(fd, fetch_fd(context_, edge, "memory that was given back", said.at,
                             proof_of(context_, said.nonce, edge.id, end)));
      }
      CCL_CHECK(mapped[n]->wake(said.name, fd));
    }
    return {};
  }

  static constexpr int edge_number = 0;                          // proofs have nonces of their own
  static constexpr std::uint64_t tag_ = std::uint64_t{1} << 61;  // no edge has it
  CommState& state_;
  const TransportContext context_;
  std::vector<int> peers_;
  std::vector<Memories> mapped_;  // by rank that has made it
  std::vector<FdOffer> offers_;
};

/// Maps peers' memory again on all ranks. What a rank offers stays until all have fetched it.
Result<void> remap(CommState& state, const char* who, const std::vector<CommState*>& parts) {
  std::deque<Remap> remaps;
  Result<void> done;
  for (CommState* const part : parts) {
    if (part->rendezvous.bootstrap() == nullptr) continue;
    auto mapped = remaps.emplace_back(*part).run();
    if (done && !mapped) done = std::move(mapped);
  }
  return agree(state, who, done);
}

/// Waits for calls of a communicator that has failed, which leave because of that.
Result<void> await_leaving_calls(const CommState& state, const char* who) {
  constexpr double without_timeout_s = 60;
  const double limit_s = state.limits.timeout_s > 0 ? state.limits.timeout_s : without_timeout_s;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>{limit_s};
  while (state.device.busy()) {
    if (std::chrono::steady_clock::now() > deadline) {
      return fail(state.annotate(
          {Errc::timed_out,
           fmt::format("{} waits for calls on streams that have not ended in {} s (the streams "
                       "have other work before them); synchronize the streams first",
                       who, limit_s)}));
    }
    std::this_thread::sleep_for(std::chrono::microseconds{100});
  }
  return {};
}

}  // namespace

GpuBytes gpu_bytes(const CommState& state) {
  GpuBytes bytes;
  const auto add = [&bytes](const CommState& part) {
    if (!part.device.gpu) return;
    for (const auto& one : GpuMemory::all_of(*part.device.gpu)) {
      if (!one->is_own()) continue;
      bytes.all += Index(one->name().bytes);
      if (one->can_rest()) bytes.can_rest += Index(one->name().bytes);
    }
  };
  add(state);
  if (const auto levels = state.levels.current()) {
    add(*Access::state(levels->inner));
    if (levels->outer) add(*Access::state(*levels->outer));
  }
  return bytes;
}

Result<void> rest_memory(CommState& state, const char* who) {
  const auto parts = parts_of(state);
  for (CommState* const part : parts) CCL_CHECK(part->await_calls(who));
  const auto lock = state.rendezvous.lock();
  CCL_CHECK(agree(state, who, {}));  // no rank's kernel uses another's memory any more
  set_resting(parts, true);
  const auto saved = without_exceptions(
      [&] { return each_own(parts, [](GpuMemory& one) { return one.save(); }); });
  if (auto agreed = agree(state, who, saved); !agreed) {
    (void)each_own(parts, [](GpuMemory& one) -> Result<void> {
      one.forget();
      return {};
    });
    set_resting(parts, false);
    return agreed;
  }
  Result<void> rested = rest(parts);
  if (!rested) {  // a fault of the driver: what some of the memory is mapped to is not known
    state.rendezvous.fail_all(state.annotate(rested.error()));
    return rested;
  }
  return agree(state, who, {});  // now the GPUs have the memory
}

Result<void> rest_failed_memory(CommState& state, CommState& by, const char* who) {
  const auto parts = parts_of(state);
  Result<void> left;
  for (CommState* const part : parts) {
    if (left) left = await_leaving_calls(*part, who);
  }
  const auto lock = by.rendezvous.lock();
  CCL_CHECK(agree(by, who, left));  // no rank's kernel uses another's memory any more
  set_resting(parts, true);
  return agree(by, who, without_exceptions([&] { return rest(parts); }));
}

Result<void> wake_memory(CommState& state, const char* who) {
  const auto parts = parts_of(state);
  const auto lock = state.rendezvous.lock();
  const auto woken = without_exceptions(
      [&] { return each_own(parts, [](GpuMemory& one) { return one.wake(); }); });
  auto agreed = agree(state, who, woken);
  if (agreed) agreed = remap(state, who, parts);
  if (!agreed) {
    if (auto again = rest(parts); !again) {
      state.rendezvous.fail_all(state.annotate(again.error()));
    }
    return agreed;
  }
  set_resting(parts, false);
  return each_own(parts, [](GpuMemory& one) -> Result<void> {
    one.forget();
    return {};
  });
}

}  // namespace ccl::detail
