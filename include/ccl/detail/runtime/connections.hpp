#pragma once

#include <ccl/comm/communicator.hpp>
#include <ccl/comm/stream.hpp>
#include <ccl/detail/compose/default_plans.hpp>
#include <ccl/detail/copy/work.hpp>
#include <ccl/detail/exec/kernel_registry.hpp>
#include <ccl/detail/lanes/peer_view.hpp>
#include <ccl/detail/runtime/call_info.hpp>
#include <ccl/detail/runtime/call_sequencer.hpp>
#include <ccl/detail/runtime/flight_recorder.hpp>
#include <ccl/detail/runtime/on_demand.hpp>
#include <ccl/detail/runtime/proxy_engine.hpp>
#include <ccl/detail/runtime/transport_table.hpp>
#include <ccl/detail/wire/work.hpp>
#include <ccl/types/plan.hpp>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ccl::detail {

struct DryRunResult;

/// The one place that reads the words of a wire for diagnosis, and so must know where they lie.
/// Nothing where the host cannot read them: on `device` >= 0.
std::optional<WireSteps> read_steps(const Wire& wire, int device);

/// The communicator is made, well and not finalized.
Result<void> check_ready(const Communicator& comm);

/// While a composition is created: creations are collective, and all ranks make them in one order.
/// Where another thread of this rank creates one, the communicator fails, as no rank could tell
/// which of the two the others mean.
Result<std::unique_lock<std::recursive_mutex>> creating_alone(const Communicator& comm,
                                                              const std::string& name);

/// What a composition's protocol asks of its wires.
struct WireNeeds {
  int line_bytes = 0;       // that must land at once on every edge
  bool polls_slots = true;  // see `Edge`
  template <class Proto>
  static constexpr WireNeeds of() {
    return {Proto::line_bytes, Proto::carries_flags};
  }
};

/// The connections of one composition of one rank, and what its launches share. Calls on it are
/// serialized: one launch of a composition at a time.
class Connections : public std::enable_shared_from_this<Connections> {
 public:
  /// Collective, and fails on all ranks where `plans` is an error on one. `fan`: most wires in, or
  /// out, that a rank will have, for the memory plan.
  static Result<std::shared_ptr<Connections>> create(const Communicator& comm,
                                                     const Result<Plans>& plans, int fan,
                                                     const WireNeeds& needs,
                                                     const TransportTable& transport_table,
                                                     std::string name);
  ~Connections();
  /// What compositions stand on that were moved from.
  static std::shared_ptr<Connections> moved_from() noexcept;

  /// A peer, and the channel that reaches it.
  struct Peer {
    int rank, channel;
  };
  /// Memory of the wires into this rank, where they stand on its GPU.
  Result<void> reserve();
  /// Connects what of these is not connected yet; between two ranks, wires of
  /// all channels that are wanted are made at once, and never again. Collective: all ranks call it,
  /// with their ends of the same edges, and it succeeds on all or fails on all. `so_far` is what
  /// this rank has prepared.
  Result<void> connect(const std::vector<Peer>& from, const std::vector<Peer>& to,
                       const Result<void>& so_far = {});
  /// Instead of `connect`, on CPU lanes, where all ranks may connect to all: says whether that
  /// can be, takes the memory for it, and leaves each pair to `open`. Collective.
  Result<void> connect_on_demand(const Result<void>& so_far);
  /// Whether wires between pairs are to wait for the first call that needs them.
  bool connects_on_demand() const { return connects_on_demand_; }
  /// Begins to make those of these wires that are not there: from the ranks of `from`, and to those
  /// of `to`. Null if all are. What a wire waits for is its other end's call of this.
  std::unique_ptr<OnDemandConnect> open(const std::vector<int>& from, const std::vector<int>& to);
  /// Collective: an error of one rank becomes an error of all, that names it.
  Result<void> all_agree(const Result<void>& mine);

  const Plan& plan() const { return plan_; }
  const Communicator& comm() const { return comm_; }
  const std::string& name() const { return name_; }
  /// The trees that `root` makes: rings and trees of all channels, in place for a launch.
  void positions_for(int root, bool double_tree);

  const RingPosition& ring(int channel) const { return rings_[channel]; }
  const TreePosition& tree(int channel, int root) const {
    return trees_[on_device() ? plan_.channels * root + channel : channel];
  }

  /// Of wires that CPU lanes use, or, on a device, where `on_device` says.
  template <class R>
  WireWork<R> work(const R& reduction) {
    WireWork<R> work{reduction};
    work.in = tables_.in;
    work.out = tables_.out;
    work.rings = tables_.rings;
    work.trees = tables_.trees;
    work.sends.cursor = tables_.cursors;
    work.recvs.cursor = tables_.cursors + Index{plan_.channels} * comm_.ranks();
    work.rank = comm_.rank();
    work.ranks = comm_.ranks();
    work.channels = plan_.channels;
    work.slice_steps = plan_.slice_steps;
    work.slot_bytes = int(plan_.slot_bytes);
    work.chunk_steps = plan_.chunk_steps;
    work.proxied = proxied_;
    work.watch = watch_;
    return work;
  }
  bool on_device() const;
  /// Instead of wires: every rank's scratch, two slots of the plan. Collective, as `connect` is.
  Result<void> map_peers(const Result<void>& so_far);
  const PeerView& peers() const { return peers_; }
  const Epoch& epoch() const { return epoch_; }
  /// The same memory as that of `epoch`: a composition uses one of the two.
  const Epoch& exchange_state() const { return epoch_; }
  const AbortWatch& watch() const { return watch_; }
  /// Lets ranks map the buffers that they give to this composition. Collective; on a GPU.
  Result<void> open_registry();
  /// Where peers find the memory of a message to this rank; 0 where they cannot map it. From then
  /// on they try.
  Word remote_buffer(const Message& message);
  /// What this rank has mapped of its peers, on the device; null without doors.
  const Word* registry_table() const;
  Error no_peer_view() const;
  /// Whether the wires that `root` needs are there.
  bool connected(int root) const { return connected_[root]; }
  void set_connected(int root) { connected_[root] = true; }

  /// With checking on: whether the ends of each message give it the same length. If not, the
  /// communicator has failed. By peer; between `begin` and `finish`.
  bool same_messages(std::string_view op, const std::vector<std::vector<Message>>& sends,
                     const std::vector<std::vector<Message>>& recvs);
  /// Writes a call that is not refused into the journal, as queued. The result goes to `begin`.
  CallInfo recorded(CallInfo info);
  /// For diagnosis, any thread, at any time.
  std::vector<WireSteps> steps() const;
  const WaitRecord* waits() const { return watch_.waits; }  // read it word by word; may be null
  int number() const { return number_; }

  /// Before a launch: the communicator must be well, and, with checking on, all ranks must have
  /// called the same. The lock is held until `finish`.
  Result<void> begin(CallInfo info);
  /// Just before a launch on CPU lanes, when all its wires are made: until `finish`, this thread
  /// helps the proxy.
  void help();
  /// After a launch: what became of it.
  Result<void> finish();
  /// Of a noted call: it will not run, and the communicator is as it was.
  void give_up(const CallInfo& info);
  /// Around a launch on the communicator's device: `code` is what the launch returned. In between,
  /// other threads' launches on this communicator wait.
  /// `keep`: what a graph must hold; null: these links.
  Result<DeviceTarget> begin_on_device(CallInfo info, Stream stream,
                                       std::shared_ptr<void> keep = nullptr);
  Result<void> finish_on_device(int code, Stream stream);
  /// The parts of `begin_on_device` around `begin`.
  Result<void> check_on_device(Stream stream) const;
  Result<DeviceTarget> queue_on_device(Stream stream, std::shared_ptr<void> keep);
  /// For `CopyEngine`, between `begin_on_device` and `finish_on_device`, on the launch's stream and
  /// on the one that `fork` branches off it until `join`. Between own and peers' memory alike.
  Result<void> copy_within(void* to, const void* from, Index bytes, CUstream_st* stream);
  Result<CUstream_st*> fork(CUstream_st* stream);
  Result<void> join(CUstream_st* stream);
  /// What `fork` needs. Collective. `pulls`: copies will read from peers' scratch.
  Result<void> open_side(bool pulls);
  /// The same as a `CopySync` of `post` and `await`, without a kernel. `open_signals` is
  /// collective.
  Result<void> signal(const CopySync& sync, CUstream_st* stream);
  Result<void> open_signals();
  Error not_in_window(const void* data) const;
  /// Where the same bytes of a window lie at every rank; `at` is empty if `data` is in none.
  struct InWindow {
    Index offset = 0;
    std::vector<std::byte*> at;        // the window's begin at each rank
    std::shared_ptr<const void> keep;  // for as long as copies may run
    char* of(int rank) const { return reinterpret_cast<char*>(at[std::size_t(rank)] + offset); }
    explicit operator bool() const { return !at.empty(); }
  };
  InWindow in_window(const void* data, Index bytes) const;
  /// On the communicator's device.
  Result<void> copy(void* to, const void* from, Index bytes, Stream stream);
  Error no_device_code() const;
  Error not_on_device() const;
  Error too_many_messages(int messages) const;
  Error no_counts() const;
  Error row_too_long(Index row_bytes) const;
  /// Of an algorithm whose `run` uses more wires than its `peers` names.
  Error no_wire(int peer, bool sends) const;
  /// An algorithm's `peers` names a rank that there is not. `way`: "from" or "to".
  Error no_such_peer(int peer, const char* way) const;
  /// An algorithm's `run` names shares that there are not.
  Error no_such_share(const DryRunResult& found) const;
  /// Of an exchange whose counts lay in memory: fails the communicator, here and elsewhere.
  Result<void> overflow(const LaneFailure& found);
  /// `code`: CUDA's, or the negative of the bytes that a slice must hold and does not.
  Error cuda_failed(int code) const;
  Error slices_too_small(Index needed) const;
  Error scratch_too_small() const;
  /// The communicator is well and not finalized.
  Result<void> ready() const;
  std::mutex& mutex() { return mutex_; }
  CallSequencer& sequencer() { return sequencer_; }  // of calls on CPU lanes

  // For `OnDemandConnect`, of an edge that this rank is an end of.
  bool has_wire(int sender, int receiver) const;
  EdgeTransport edge_transport(int sender, int receiver) const;
  Result<std::unique_ptr<AnyEnd>> set_up(TransportContext& context, int sender, int receiver);
  Result<void> connect_end(AnyEnd& end, int sender, int receiver, const Handshake& theirs);
  const char* transport() const { return transport_table_.name; }
  bool failed() const { return lane_failure_.peer != 0; }

 private:
  Connections(const Communicator& comm, const TransportTable& transport_table, std::string name);
  Edge edge_of(int sender, int receiver, int channels) const;
  Result<void> short_lines(int sender, int receiver, const char* transport, int bytes) const;
  Result<void> upload();
  void take_rings();
  /// Takes one made connection, of wires from `sender` to `receiver`.
  void own(Connection connection, int sender, int receiver, const std::vector<int>& channels);
  /// Of the slots of all wires that are in this rank's memory.
  Index bytes_of(const Plan& plan) const {
    return plan.slot_bytes * plan.slot_count * plan.channels * fan_;
  }
  /// One of `plans`, with slots that fit. All ranks come to the same.
  Result<void> agree(const Result<Plans>& wanted);
  Result<void> begin_checked(const CallInfo& info);
  std::string this_call() const;  // "all_reduce/Ring/LL128/any, operation 7", as reports count

  Communicator comm_;
  Plan plan_;
  TransportTable transport_table_;
  std::string name_;
  int number_ = 0;
  std::atomic<Word> calls_{0};
  CallInfo info_;
  std::mutex mutex_;
  CallSequencer sequencer_;
  mutable std::mutex wires_mutex_;  // `steps` reads while `connect` writes
  std::vector<Wire> in_, out_;
  std::vector<Connection> owners_;
  std::vector<int> order_;
  std::vector<RingPosition> rings_;
  std::vector<TreePosition> trees_;
  std::vector<Cursor> cursors_;
  std::vector<bool> connected_;  // by root
  std::optional<Error> broken_;  // some edges are made by halves
  struct Tables {
    const Wire *in = nullptr, *out = nullptr;
    const RingPosition* rings = nullptr;
    const TreePosition* trees = nullptr;
    Cursor* cursors = nullptr;
  };
  Tables tables_;  // what launches read: the vectors here, or their copies on the device
  struct OnDevice;
  std::shared_ptr<OnDevice> device_;
  PeerView peers_;
  Epoch epoch_;
  WireNeeds needs_;
  int fan_ = 1;  // wires whose slots are here, at most
  LaneFailure lane_failure_;
  AbortWatch watch_;
  WaitRecord waits_;  // of CPU lanes
  Index bytes_ = 0;
  std::optional<ProxyEngine::Helper> helper_;  // during a launch over proxied wires
  bool proxied_ = false;                       // some of the wires are
  bool unproxied_ = false;                     // some of them are not
  bool connects_on_demand_ = false;
  bool reserved_ = false;  // memory of all wires is taken
  int missing_ = 0;        // wires that `open` may still have to make, both ways
  bool cumem_scratch_ = false;
};

}  // namespace ccl::detail
