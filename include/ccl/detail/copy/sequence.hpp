#pragma once

#include <ccl/algo/traits.hpp>
#include <ccl/detail/copy/registry.hpp>
#include <ccl/detail/copy/stream_copies.hpp>
#include <ccl/detail/copy/work.hpp>
#include <ccl/detail/exchange/batches.hpp>
#include <ccl/detail/exec/launch_share.hpp>
#include <ccl/detail/launch/errors.hpp>
#include <ccl/detail/launch/launch.hpp>
#include <ccl/detail/runtime/connections.hpp>

#include <memory>
#include <utility>

namespace ccl::detail {

/// Sequence of copies, syncs and kernels of one `CopyEngine` launch, on a stream and a branch of
/// it. The first failure stops the rest. Only the main stream waits, so that no branch of a graph
/// delays another branch that a peer waits for.
template <class Algo>
class CopySequence {
  using Kernels = CopyKernels<Algo>;

 public:
  CopySequence(Connections& connections, const DeviceTarget& target)
      : connections_{connections},
        target_{target},
        ranks_{connections.comm().ranks()},
        me_{connections.comm().rank()} {}

  /// Compares places with the peers from now on; see `CopySync`.
  void compare_places(Word place, Word call) {
    place_ = place;
    call_ = call;
  }
  int me() const { return me_; }
  int ranks() const { return ranks_; }
  int ahead(int k) const { return (me_ + k) % ranks_; }
  int behind(int k) const { return (me_ + ranks_ - k) % ranks_; }
  unsigned others() const { return ((1u << ranks_) - 1) & ~(1u << me_); }
  const Result<void>& done() const { return done_; }

  void copy(void* to, const void* from, Index bytes) {
    if (!done_ || bytes <= 0 || to == from) return;
    done_ = copies_.copy(to, from, bytes, target_.stream);
  }
  /// Posts to ranks and waits for ranks. Each argument has a bit for each rank.
  void sync(unsigned post_filled, unsigned await_filled, unsigned post_emptied = 0,
            unsigned await_emptied = 0) {
    if (!done_ || (post_filled | await_filled | post_emptied | await_emptied) == 0) return;
    CopySync work;
    work.post[CopySync::filled] = post_filled;
    work.await[CopySync::filled] = await_filled;
    work.post[CopySync::emptied] = post_emptied;
    work.await[CopySync::emptied] = await_emptied;
    queue(work);
  }
  /// Tells all other ranks, without a wait, that another composition runs this call.
  void tell_outside() {
    CopySync work;
    work.outside = others();
    queue(work);
  }
  void barrier() { sync(others(), others()); }
  /// Copies within this rank's memory by multiprocessors, because the copy engines are busy. An
  /// algorithm without kernels copies by the engines.
  void run(const CopyRuns& runs) {
    if constexpr (SignalsByStream<Algo>) {
      for (int r = 0; r < runs.count && done_; ++r) {
        const CopyRuns::Run& run = runs.run[r];
        done_ = copies_.copy(run.to, run.from, run.bytes, on_stream().stream);
      }
    } else {
      if (done_ && runs.count > 0) check(Kernels::runs(runs, on_stream()));
    }
  }
  /// Begins a branch, on which kernels run beside the copies until `join`.
  void fork() {
    if (!done_) return;
    auto branch = copies_.fork(target_.stream);
    if (branch) {
      branch_ = *branch;
    } else {
      done_ = fail(std::move(branch).error());
    }
  }
  void join() {
    if (branch_ == nullptr) return;
    branch_ = nullptr;
    const auto joined = copies_.join(target_.stream);
    if (done_) done_ = joined;
  }
  /// Returns the target of a kernel: the branch if there is one, otherwise the main stream.
  DeviceTarget on_stream() const {
    DeviceTarget target = target_;
    if (branch_ != nullptr) target.stream = branch_;
    target.share = nullptr;
    return target;
  }
  void check(int code) {
    if (code != 0 && done_) done_ = fail(cuda_failed(connections_, code));
  }

  /// Returns the slot of a chunk in the scratch of `owner`, which has two slots.
  char* slot(int owner, Index chunk) const {
    const PeerView& peers = connections_.peer_memory().view();
    return reinterpret_cast<char*>(peers.scratch[owner] + chunk % 2 * peers.half_packets);
  }
  Index slot_bytes() const {
    return connections_.peer_memory().view().half_packets * Index{sizeof(Packet)};
  }
  Index place_bytes() const { return place_bytes(connections_); }
  static Index place_bytes(const Connections& connections) {
    const PeerView& peers = connections.peer_memory().view();
    return peers.half_packets * Index{sizeof(Packet)} / peers.ranks / 128 * 128;
  }
  char* place(int owner, Index chunk, int rank) const {
    return slot(owner, chunk) + rank * place_bytes();
  }

 private:
  void queue(CopySync& work) {
    if (!done_) return;
    work.peers = connections_.peer_memory().view();
    work.counts = connections_.peer_memory().epoch().copies;
    work.place = place_;
    work.call = call_;
    work.watch = connections_.calls().watch;
    if constexpr (SignalsByStream<Algo>) {
      done_ = copies_.signal(work, target_.stream);
    } else {
      check(Kernels::sync(work, target_));
      if (done_ && target_.share != nullptr) target_.share->take_alone(1);
    }
  }

  Connections& connections_;
  StreamCopies copies_{connections_};
  DeviceTarget target_;
  int ranks_, me_;
  Word place_ = 0, call_ = 0;
  CUstream_st* branch_ = nullptr;
  Result<void> done_;
};

/// Runs the launch that `body` lays out, of a composition that `lock` holds. `table`: messages
/// whose two ends must give the same length.
template <class Algo, class Body>
Result<void> launch_copies(const std::shared_ptr<Connections>& connections, const CallInfo& info,
                           Stream stream, Launch::Lock lock, std::shared_ptr<void> keep, Body body,
                           const MessageTable* table = nullptr) {
  CCL_TRY(Launch && launch,
          Launch::begin_on_device(connections, info, stream, std::move(lock), keep));
  if (table != nullptr && !launch.same_messages(info.what, table->sends, table->recvs)) {
    return check_ready(connections->comm());
  }
  CopySequence<Algo> sequence{*connections, launch.target()};
  body(sequence);
  sequence.join();
  if (!sequence.done()) return launch.give_up(sequence.done().error());
  return launch.finish();
}

}  // namespace ccl::detail
