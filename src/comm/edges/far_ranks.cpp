#include "comm/edges/far_ranks.hpp"

#include <ccl/detail/lanes/host_memory.hpp>
#include <ccl/transport/any_of.hpp>
#include <ccl/transport/host_wire.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "comm/edges/edge_handshake.hpp"
#include "comm/edges/window_state.hpp"
#include "comm/rank_results.hpp"

namespace ccl::detail {

/// Both wires between this rank and a peer.
struct FarPeer {
  int rank = -1;
  Wire out, in;
  bool said_end = false, has_ended = false;
};

namespace {

using Network = AnyOf<IbTransport, PluginTransport, SocketTransport>;
constexpr const char* far_name = "a DeviceComm's network path";
constexpr int wire_slots = 16, max_messages = 32;  // of a wire; of one turn of the task
constexpr std::size_t drained_bytes = 128;         // a line of its own, before the slots

Word load(const Word* at) {
  return HostMemory::load_acquire(at);
}

/// Stores packets that lanes poll: the last word of each line carries its flag.
void store_lines(char* to, const char* from, Index bytes) {
  constexpr Index line = 128;
  for (Index begin = 0; begin < bytes; begin += line) {
    const Index end = std::min(begin + line, bytes);
    for (Index at = begin; at < end; at += Index{sizeof(Word)}) {
      Word word;
      std::memcpy(&word, from + at, sizeof word);
      auto* const place = reinterpret_cast<Word*>(to + at);
      if (at + Index{sizeof(Word)} < end) {
        HostMemory::store_relaxed(place, word);
      } else {
        HostMemory::store_release(place, word);
      }
    }
  }
}

}  // namespace

/// Task of the proxy. Its owner, which may hold the communicator, closes it before it ends.
class FarRanks::Task final : public ProxyTask {
 public:
  Task(CommState& state, const FarTarget& target)
      : state_{state}, gpu_{state.device.gpu}, target_{target} {}

  Result<void> make_queue() {
    const std::size_t bytes =
        drained_bytes + std::size_t(FarQueue::slot_count) * std::size_t(FarQueue::slot_bytes);
    if (gpu_) {
      const Gpu::Current current{*gpu_};
      CCL_TRY(pinned_, Pinned::take(gpu_->driver(), bytes));
      CCL_TRY(staging_, Pinned::take(gpu_->driver(), std::size_t(FarQueue::payload_bytes)));
      memory_ = static_cast<char*>(pinned_.at());
      return {};
    }
    host_.resize(bytes / sizeof(Packet) + 8);
    const auto skew = reinterpret_cast<std::uintptr_t>(host_.data()) % 128;
    memory_ = reinterpret_cast<char*>(host_.data()) + (128 - skew) % 128;
    return {};
  }
  FarQueue queue() const { return {memory_ + drained_bytes, reinterpret_cast<Word*>(memory_)}; }
  FarPeer& add(int rank) {
    peers_.emplace_back().rank = rank;
    return peers_.back();
  }
  /// Ends the use of wires and of the ranks' memory.
  void close() {
    const std::lock_guard lock{mutex_};
    closed_ = true;
  }
  void leave_window(Word number) {
    const std::lock_guard lock{mutex_};
    left_window_ = number;
  }
  /// Asks for `end` messages behind all others.
  void finish() {
    const std::lock_guard lock{mutex_};
    finishing_ = true;
  }
  /// Returns a peer whose messages are not all here, or -1.
  int late() {
    const std::lock_guard lock{mutex_};
    for (const FarPeer& peer : peers_) {
      if (!peer.said_end || !peer.has_ended) return peer.rank;
    }
    return -1;
  }

  Progress progress(ProxyCounters&) override {
    const std::unique_lock lock{mutex_, std::try_to_lock};
    if (!lock) return Progress::none;
    if (closed_) return Progress::ended;
    if (!state_.status.ok()) return Progress::none;
    const bool sent = send_some();
    bool received = false;
    for (FarPeer& peer : peers_) received = receive_some(peer) || received;
    return sent || received ? Progress::some : Progress::none;
  }
  ProxyInterest interest() const override { return {-1, 0, false, state_.status.ok()}; }
  bool ending() const override { return closed_; }

 private:
  bool send_some() {
    const FarQueue queue = this->queue();
    int moved = 0;
    for (; moved < max_messages; ++moved) {
      const FarHeader* const slot = queue.slot(head_);
      if (load(&slot->number) != head_ + 1) break;
      FarPeer* const peer = find(int(slot->peer));
      if (peer == nullptr || slot->bytes > Word(FarQueue::payload_bytes)) {
        wrong(state_.identity.rank(), "its queue holds a message to no rank");
        return true;
      }
      if (!post_message(*peer, *slot)) break;
      post(queue.drained, ++head_);
    }
    if (finishing_ && load(&queue.slot(head_)->number) != head_ + 1) {
      for (FarPeer& peer : peers_) {
        if (peer.said_end) continue;
        FarHeader end;
        end.kind = FarHeader::end;
        peer.said_end = post_message(peer, end);
        moved += peer.said_end;
      }
    }
    return moved > 0;
  }
  /// Returns false if the wire has no free slot.
  bool post_message(FarPeer& peer, const FarHeader& header) {
    const Wire& wire = peer.out;
    const Word step = *wire.sent;
    if (step >= load_drained(wire.drained) + Word(wire.slot_count)) return false;
    const auto bytes = std::size_t(FarQueue::header_bytes) + std::size_t(header.bytes);
    const std::size_t rest = header.bytes > 0 ? bytes : sizeof header;
    std::memcpy(static_cast<void*>(wire.slot(step)), &header, rest);
    wire.sizes[step % Word(wire.slot_count)] = (bytes + 15) / 16 * 16;
    *wire.sent = step + 1;
    post(wire.posted, step + 1);
    return true;
  }

  bool receive_some(FarPeer& peer) {
    const Wire& wire = peer.in;
    int moved = 0;
    for (; moved < max_messages && load_posted(wire.posted) > *wire.received; ++moved) {
      const Word step = *wire.received;
      if (!deliver(peer, reinterpret_cast<const char*>(wire.slot(step)))) return true;
      *wire.received = step + 1;
      drain(wire.drained, step + 1);
    }
    return moved > 0;
  }
  bool deliver(FarPeer& peer, const char* slot) {
    FarHeader header;
    std::memcpy(&header, slot, sizeof header);
    const char* const payload = slot + FarQueue::header_bytes;
    const auto bytes = Index(header.bytes), offset = Index(header.offset);
    const auto fits = [&](Index size, Index all) {
      return size >= 0 && size <= FarQueue::payload_bytes && offset >= 0 && offset <= all - size;
    };
    if (header.kind == FarHeader::to_window && fits(bytes, target_.window_bytes)) {
      WindowMapping open;  // kept for the copy
      if (left_window_ != 0) {
        open = window_mapping(state_, left_window_, state_.identity.rank());
        if (!open.holds) return true;
      }
      if (gpu_) return put(target_.window + offset, payload, std::size_t(bytes));
      std::memcpy(target_.window + offset, payload, std::size_t(bytes));
      return true;
    }
    if (header.kind == FarHeader::to_scratch && fits(bytes, target_.scratch_bytes) &&
        offset % 16 == 0 && bytes % 16 == 0) {
      if (gpu_) return put(target_.scratch + offset, payload, std::size_t(bytes));
      store_lines(target_.scratch + offset, payload, bytes);
      return true;
    }
    if (header.kind == FarHeader::set_word && fits(sizeof(Word), target_.scratch_bytes) &&
        offset % Index{sizeof(Word)} == 0) {
      char* const at = target_.scratch + offset;
      if (gpu_) return put(at, &header.value, sizeof(Word));
      HostMemory::store_release(reinterpret_cast<Word*>(at), header.value);
      return true;
    }
    if (header.kind == FarHeader::end) return peer.has_ended = true;
    return wrong(peer.rank, "it sent a message that no memory of this rank holds");
  }
  /// Copies into the GPU's memory; fails the communicator if that fails. Allocates nothing, which
  /// could wait for the kernel that waits for this message.
  bool put(char* to, const void* from, std::size_t bytes) {
    std::memcpy(staging_.at(), from, bytes);
    Result<void> done = gpu_->put_pinned(to, staging_.at(), bytes);
    if (!done) state_.status.set(state_.annotate(std::move(done).error()));
    return done.has_value();
  }
  bool wrong(int rank, const char* why) {
    Error error{Errc::network,
                fmt::format("rank {} breaks the protocol of {} ({}); run one version "
                            "of ccl on all ranks",
                            rank, far_name, why)};
    error.peer = rank;
    state_.status.set(state_.annotate(std::move(error)));
    return false;
  }
  FarPeer* find(int rank) {
    for (FarPeer& peer : peers_) {
      if (peer.rank == rank) return &peer;
    }
    return nullptr;
  }

  CommState& state_;
  const std::shared_ptr<Gpu> gpu_;
  const FarTarget target_;
  std::mutex mutex_;  // of the members below, between the proxy and the owner
  std::vector<FarPeer> peers_;
  Word head_ = 0;  // turns of the queue that are done
  std::atomic<bool> closed_{false};
  bool finishing_ = false;
  Word left_window_ = 0;     // number of a window that the handle keeps no longer; 0: it does
  Pinned pinned_, staging_;  // the queue; a message on its way into the GPU
  std::vector<Packet> host_;
  char* memory_ = nullptr;
};

Result<std::unique_ptr<FarRanks>> FarRanks::connect(CommState& state, int composition,
                                                    const std::vector<int>& peers,
                                                    const FarTarget& target) {
  std::unique_ptr<FarRanks> far{new FarRanks};
  far->state_ = &state;
  auto task = std::make_shared<Task>(state, target);
  const Result<void> prepared = peers.empty() ? Result<void>{} : task->make_queue();
  const int me = state.identity.rank();
  TransportContext context = transport_context(state, nullptr);
  struct EndOfEdge {
    Edge edge;
    std::optional<Network::End> end;
    Connection made;
  };
  std::vector<EndOfEdge> ends(2 * peers.size());
  std::vector<EdgeHandshake> points;
  for (std::size_t i = 0; i < ends.size(); ++i) {
    const int p = peers[i / 2];
    // The lower rank's sending end comes first at both.
    const bool sends = (i % 2 == 0) == (me < p);
    EndOfEdge& one = ends[i];
    one.edge.self = state.identity.peers()[std::size_t(me)];
    one.edge.peer = state.identity.peers()[std::size_t(p)];
    one.edge.side = sends ? EdgeSide::sender : EdgeSide::receiver;
    one.edge.shape = {1, wire_slots, FarQueue::slot_bytes};
    one.edge.id = sends ? edge_id(composition, me, p) : edge_id(composition, p, me);
    one.edge.polls_slots = false;
    const auto offer = [&context, &one]() -> Result<Handshake> {
      CCL_TRY(one.end, Network::setup(context, one.edge));
      return one.end->handshake();
    };
    const auto connect_end = [&one](const Handshake& theirs) -> Result<void> {
      CCL_TRY(one.made, one.end->connect(theirs));
      return {};
    };
    const PeerInfo &from = sends ? one.edge.self : one.edge.peer,
                   &to = sends ? one.edge.peer : one.edge.self;
    points.push_back(
        {p, one.edge.id, offer, connect_end, Network::edge_transport(from, to).transport});
  }
  {
    const auto lock = state.rendezvous.lock();
    CCL_CHECK(swap_handshakes(state, far_name, Network::name, prepared, points));
  }
  const auto begin = [&]() -> Result<void> {
    for (std::size_t i = 0; i < ends.size(); i += 2) {
      FarPeer& peer = task->add(peers[i / 2]);
      for (std::size_t n = i; n < i + 2; ++n) {
        (ends[n].edge.side == EdgeSide::sender ? peer.out : peer.in) = ends[n].made.wires[0];
        far->connections_.push_back(std::move(ends[n].made));
      }
    }
    if (peers.empty()) return {};
    far->task_ = task;
    return state.proxy.add(std::move(task));
  };
  const Result<void> begun = begin();
  const auto lock = state.rendezvous.lock();
  CCL_CHECK(all_agree(state, far_name, begun));
  return far;
}

FarRanks::~FarRanks() {
  if (task_) task_->close();  // before the wires end
}

void FarRanks::leave_window(Word number) {
  if (task_) task_->leave_window(number);
}

FarQueue FarRanks::queue() const {
  return task_ ? task_->queue() : FarQueue{};
}

Result<void> FarRanks::finish() {
  if (!task_) return {};
  task_->finish();
  const auto begin = std::chrono::steady_clock::now();
  const double limit_s = state_->limits.timeout_s;
  for (int late = task_->late(); late >= 0; late = task_->late()) {
    CCL_CHECK(state_->ready());
    const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - begin;
    if (limit_s > 0 && waited.count() > limit_s) {
      Error error{Errc::timed_out,
                  fmt::format("rank {} has not closed its DeviceComm within {} s; close it on all "
                              "ranks",
                              late, limit_s)};
      error.peer = late;
      error = state_->annotate(std::move(error));
      state_->rendezvous.fail_all(error);  // this rank will not come to the end of the scratch
      return fail(std::move(error));
    }
    state_->proxy.wake();
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
  return {};
}

}  // namespace ccl::detail
