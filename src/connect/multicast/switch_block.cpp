#include "connect/multicast/switch_block.hpp"

#include <fmt/format.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "base/detached_call.hpp"
#include "base/random.hpp"
#include "comm/edges/edge_handshake.hpp"
#include "comm/edges/memory_exchange.hpp"
#include "comm/rank_results.hpp"
#include "transport/edge_error.hpp"
#include "transport/fd_server.hpp"
#include "transport/handshake_fields.hpp"

namespace ccl::detail {
namespace {

constexpr const char* by = "nvls";
constexpr double poll_s = 0.02;

/// Words of the rank that made the object to each other rank.
struct ObjectWords {
  Nonce nonce{};
  UnixName name;
  std::size_t bytes = 0;
};

class Maker {
 public:
  Maker(CommState& state, int number, std::string_view name, std::size_t bytes,
        std::byte* lent = nullptr)
      : state_{state}, number_{number}, name_{name}, bytes_{bytes}, lent_{lent} {}

  Result<std::shared_ptr<MulticastBlock>> run(const Result<void>& so_far) {
    const auto prepare = [&]() -> Result<void> {
      CCL_CHECK(so_far);
      if (!makes()) return MulticastBlock::check(state_.device.gpu);
      return keep(
          MulticastBlock::create(state_.device.gpu, bytes_, state_.identity.ranks(), lent_));
    };
    const Result<void> prepared = prepare();
    CCL_CHECK(swap_handshakes(state_, name_, by, prepared, handshakes()));
    CCL_CHECK(all_agree(
        state_, name_,
        in_driver("add the GPU of this rank to", [](MulticastBlock& b) { return b.add(); })));
    CCL_CHECK(all_agree(
        state_, name_,
        in_driver("bind memory of this rank to", [](MulticastBlock& b) { return b.bind(); })));
    return block_;
  }

 private:
  bool makes() const { return state_.identity.rank() == 0; }
  Result<void> keep(Result<std::unique_ptr<MulticastBlock>> made) {
    if (!made) return fail(std::move(made).error());
    block_ = *std::move(made);
    return {};
  }

  /// Edges between the first rank and each other one, which gets the object.
  std::vector<EdgeHandshake> handshakes() {
    offers_.resize(std::size_t(state_.identity.ranks()));
    std::vector<EdgeHandshake> all;
    for (int p = 0; p < state_.identity.ranks(); ++p) {
      if (p == state_.identity.rank() || (!makes() && p != 0)) continue;
      const Edge edge = even_edge(state_, number_, p);
      const auto offer = [this, edge, p]() -> Result<Handshake> {
        Handshake mine{};
        if (makes()) {
          CCL_TRY(const ObjectWords words, show_to(edge, p));
          HandshakeCursor{}.put(mine, words);
        }
        return mine;
      };
      const auto connect = [this, edge](const Handshake& theirs) -> Result<void> {
        return makes() ? Result<void>{} : open(edge, HandshakeCursor{}.get<ObjectWords>(theirs));
      };
      all.push_back({p, edge.id, offer, connect});
    }
    return all;
  }
  Result<ObjectWords> show_to(const Edge& edge, int p) {
    ObjectWords words;
    CCL_CHECK(fill_random(&words.nonce, sizeof words.nonce));
    CCL_TRY(Fd fd, block_->share());
    FdOffer& offer = offers_[std::size_t(p)];
    CCL_TRY(offer,
            FdOffer::make(proof_of(context_, words.nonce, edge.id, 0), edge.shape, std::move(fd)));
    words.name = offer.name();
    words.bytes = block_->bytes();
    return words;
  }
  Result<void> open(const Edge& edge, const ObjectWords& words) {
    // Sizes are rounded up to what the driver recommends, which is below 1 GiB.
    constexpr std::size_t max_rounding = std::size_t{1} << 30;
    if (words.bytes < bytes_ || words.bytes - bytes_ > (lent_ != nullptr ? 0 : max_rounding)) {
      return fail(edge_error(
          edge, by, Errc::mismatch,
          fmt::format("rank {} made a multicast object of {} bytes, and rank {} wants {}; run the "
                      "same version of ccl on all ranks",
                      edge.peer.rank, words.bytes, edge.self.rank, bytes_)));
    }
    CCL_TRY(const Fd fd,
            fetch_fd(context_, edge, by, words.name, proof_of(context_, words.nonce, edge.id, 0)));
    return keep(MulticastBlock::open(state_.device.gpu, words.bytes, fd, lent_));
  }

  /// Runs a call of the driver that may never return, on a thread of its own.
  Result<void> in_driver(const char* what, Result<void> (*call)(MulticastBlock&)) {
    using Clock = std::chrono::steady_clock;
    CCL_TRY(const auto result, start_detached("multicast", [block = block_, call]() mutable {
              const auto held = std::move(block);  // let go before the result is there
              return call(*held);
            }));
    const double limit_s = state_.limits.init_timeout_s / 2;  // the others wait for this rank
    const auto began = Clock::now();
    while (!returns_within(result, poll_s)) {
      if (auto well = state_.status.result(); !well) return well;
      const std::chrono::duration<double> waited = Clock::now() - began;
      if (limit_s == 0 || waited.count() < limit_s) continue;
      const PeerInfo& me = state_.identity.peers()[std::size_t(state_.identity.rank())];
      Error error{
          Errc::timed_out,
          fmt::format("the driver did not {} the multicast object of {} within {:.3g} s "
                      "(rank {} on {}, device {}; Fabric Manager stalls, or another program "
                      "holds the NVSwitches, and a thread of this process stays in the "
                      "driver); unset CCL_NVLS_ENABLE, or use TwoShot or Direct on "
                      "one host, Ring or Tree on several",
                      what, name_, limit_s, me.rank, me.host, me.device)};
      error.transport = by;
      return fail(std::move(error));
    }
    return result.get();
  }

  CommState& state_;
  const int number_;
  const std::string_view name_;
  const std::size_t bytes_;
  std::byte* const lent_;
  const TransportContext context_ = transport_context(state_, nullptr);
  std::shared_ptr<MulticastBlock> block_;
  std::vector<FdOffer> offers_;  // the first rank's, one for each other rank
};

}  // namespace

Result<std::shared_ptr<MulticastBlock>> make_switch_block(CommState& state, int number,
                                                          std::string_view name, std::size_t bytes,
                                                          const Result<void>& so_far) {
  return Maker{state, number, name, bytes}.run(so_far);
}

Result<SwitchRange> switch_range(const CommState& state, const GpuBlock& own, std::size_t bytes) {
  const int me = state.identity.rank();
  const auto refuse = [](std::string why) { return fail(Errc::not_supported, std::move(why)); };
  CCL_TRY(const std::size_t grain,
          multicast_granularity(state.device.gpu, state.identity.ranks(), bytes));
  const GpuMemoryName& name = own.memory->name();
  if (name.handles == 0) {
    return refuse(fmt::format("the memory of rank {} has no cuMem handle; take SharedMemory", me));
  }
  const auto at = reinterpret_cast<std::uintptr_t>(own.at());
  SwitchRange range;
  range.lead = at % grain;
  range.bytes = (range.lead + bytes + grain - 1) / grain * grain;
  range.at = own.at() - range.lead;
  if (range.lead <= own.offset && own.offset - range.lead + range.bytes <= name.bytes) return range;
  return refuse(
      fmt::format("the allocation of rank {} has {} bytes, and the window is from byte {} on; "
                  "switches bind whole granules of {} bytes, so let the allocation end with one",
                  me, name.bytes, own.offset, grain));
}

namespace {
/// Fails on all ranks if the windows of some are at another place of a granule.
Result<void> same_leads(CommState& state, std::string_view name, const SwitchRange& range) {
  std::vector<Word> leads(std::size_t(state.identity.ranks()));
  leads[std::size_t(state.identity.rank())] = range.lead;
  CCL_CHECK(state.rendezvous.after_creation(state.rendezvous.bootstrap()->all_gather(
      leads.data(), Index{sizeof(Word)}, {}, {"the creation of", name})));
  for (std::size_t r = 1; r < leads.size(); ++r) {
    if (leads[r] == leads[0]) continue;
    Error error{Errc::not_supported,
                fmt::format("the memory of rank 0 begins {} bytes behind a granule of multicast, "
                            "that of rank {} {} bytes; take SharedMemory on all ranks",
                            leads[0], r, leads[r])};
    error.peer = int(r);
    return fail(std::move(error));
  }
  return {};
}
}  // namespace

Result<std::shared_ptr<MulticastBlock>> bind_switch_range(CommState& state, std::string_view name,
                                                          const SwitchRange& range,
                                                          const Result<void>& so_far) {
  CCL_CHECK(all_agree(state, name, so_far));
  CCL_CHECK(same_leads(state, name, range));
  const int number = state.rendezvous.next_composition();
  return Maker{state, number, name, range.bytes, range.at}.run({});
}

}  // namespace ccl::detail
