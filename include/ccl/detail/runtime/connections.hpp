#pragma once

#include <ccl/comm/communicator.hpp>
#include <ccl/detail/numeric/network_step.hpp>
#include <ccl/detail/runtime/call_state.hpp>
#include <ccl/detail/runtime/peer_memory.hpp>
#include <ccl/detail/runtime/plans.hpp>
#include <ccl/detail/runtime/positions.hpp>
#include <ccl/detail/runtime/transport_table.hpp>
#include <ccl/detail/runtime/wire_rows.hpp>
#include <ccl/detail/runtime/wire_tables.hpp>
#include <ccl/topo/arrange.hpp>
#include <ccl/types/plan.hpp>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace ccl::detail {

/// Reads the step counters of a wire for diagnosis. Returns nothing if `device` is 0 or more,
/// because the host cannot read the counters of a GPU's wires. `slice_steps`: steps of a slice, by
/// which short slots count.
std::optional<WireSteps> read_steps(const Wire& wire, int device, int slice_steps = 1);

/// Succeeds if the communicator is created, healthy and not finalized.
Result<void> check_ready(const Communicator& comm);

/// Lock of the thread that creates a composition. Fails the communicator if two threads of a rank
/// create compositions at once, because the other ranks cannot match them.
Result<std::unique_lock<std::recursive_mutex>> creating_alone(const Communicator& comm,
                                                              const std::string& name);

/// Requirements of a composition's protocol on its wires.
struct WireNeeds {
  int line_bytes = 0;          // bytes that every edge must write at once
  bool polls_slots = true;     // see `Edge`
  bool exchanges = false;      // messages with any ranks
  bool notes_phases = false;   // see `Traced`
  int network_heads = 0;       // heads of a host on a channel; 0: no network that reduces
  int max_host_ranks = 0;      // ranks of a host, at most, with such a network; 0: any number
  NetworkMove network_move{};  // operation of that network
  template <class Proto>
  static constexpr WireNeeds of() {
    return {Proto::line_bytes, Proto::carries_flags};
  }
};

/// Times that the lanes of a channel have noted.
struct ChannelPhases {
  int channel = 0;
  PhaseTimes times;
};

/// Rank at the other end of a wire, and the wire's channel.
struct PeerChannel {
  int rank, channel;
  topo::EdgeUse use = topo::EdgeUse::pair;
};

struct DeviceState;
struct ReducingNetwork;
class IdlePairs;
class OnDemandConnect;

/// Wires of one composition on one rank, and the state that its calls share. One call of a
/// composition runs at a time.
class Connections : public std::enable_shared_from_this<Connections> {
 public:
  /// Creates the composition `name` without wires. Collective: fails on all ranks if `plans` is an
  /// error on one. `fan` is the maximum number of wires in, or out, of a rank, for the memory plan.
  static Result<std::shared_ptr<Connections>> create(const Communicator& comm,
                                                     const Result<Plans>& plans, int fan,
                                                     const WireNeeds& needs,
                                                     const TransportTable& transport_table,
                                                     std::string name);
  ~Connections();
  /// State of compositions that are moved from.
  static std::shared_ptr<Connections> moved_from();

  /// Reserves GPU memory for the wires into this rank.
  Result<void> reserve();
  /// Connects those of these wires that are missing. Collective: all ranks call it with their ends
  /// of the same edges, and all succeed or all fail. `so_far` is the result of this rank's
  /// preparation.
  Result<void> connect(const std::vector<PeerChannel>& from, const std::vector<PeerChannel>& to,
                       const Result<void>& so_far = {});
  /// Joins the network that reduces and enters the positions of its heads. Collective.
  Result<void> join_network(const Result<void>& so_far);
  /// Connects the heads to that network, channel by channel. Collective.
  Result<void> connect_network();
  /// Fails with `Errc::not_supported` if the network does not reduce what `tag` says. All ranks get
  /// the same result. See `NetworkStep`.
  Result<void> check_network(Word tag) const;
  /// Fails with `Errc::not_supported` if the network lacks the operation, or a rank has no head.
  /// All ranks get the same answer.
  Result<void> check_network_move() const;
  /// Checks on CPU ranks that all ranks can connect to all, reserves the memory, and leaves each
  /// pair to `open`. Collective.
  Result<void> connect_on_demand(const Result<void>& so_far);
  /// True if wires between pairs wait for the first call that needs them.
  bool connects_on_demand() const { return connects_on_demand_; }
  /// True if `open` may have to connect a wire. The caller holds the lock of `calls`.
  bool lacks_wires() const {
    return missing_.load(std::memory_order_relaxed) != 0 || closes_idle();
  }
  /// True if pairs of ranks disconnect while no call uses them.
  bool closes_idle() const { return idle_ != nullptr; }
  /// Begins to connect the missing wires from the ranks of `from` and to those of `to`, which are
  /// in use. Returns null if none is missing. The other end of a wire must call it, too.
  std::unique_ptr<OnDemandConnect> open(const std::vector<int>& from, const std::vector<int>& to);

  /// Pairs that close; null if they stay connected.
  IdlePairs* idle_pairs() { return idle_.get(); }

  const Plan& plan() const { return plan_; }
  const Communicator& comm() const { return comm_; }
  const std::string& name() const { return name_; }
  const ShownName& shown_name() const { return shown_name_; }
  /// Index of the operation in `CallCounters::operations`.
  int operation() const { return operation_; }
  /// Number among the communicator's compositions, in order of creation.
  int number() const { return number_; }
  bool on_device() const;
  /// Maximum blocks of a launch on a GPU. The same on all ranks.
  int max_blocks() const;
  const WireTables& tables() const { return tables_; }
  PositionTable& positions() { return positions_; }
  const PositionTable& positions() const { return positions_; }
  PeerMemory& peer_memory() { return peer_memory_; }
  const PeerMemory& peer_memory() const { return peer_memory_; }
  CallState& calls() { return calls_; }
  const CallState& calls() const { return calls_; }
  /// Returns the step counters of all wires, for diagnosis. Any thread.
  std::vector<WireSteps> steps() const;
  /// Returns what lanes have noted of their latest launches, by their clock. Any thread.
  std::vector<ChannelPhases> phases() const;

 private:
  friend class IdlePairs;
  friend class OnDemandConnect;
  friend class PeerMemory;
  friend class StreamCopies;
  Connections(const Communicator& comm, const TransportTable& transport_table, std::string name);
  void place_channels();
  /// Sets the tables of CPU lanes to the rows.
  void point_to_rows();
  /// Gives lanes the memory to note the phases of launches, if that is wanted.
  Result<void> note_phases();
  /// Channels of an edge, and its use in each.
  struct ChannelUses;
  Edge edge_of(int sender, int receiver, const ChannelUses& channels) const;
  EdgeNics nics_of(const Edge& edge, const ChannelUses& channels) const;
  /// All channels of the plan, for messages.
  ChannelUses all_channels() const;
  Result<void> short_lines(int sender, int receiver, const char* transport, int bytes) const;
  /// Checks that a transport can connect the edge, before any wire is made.
  Result<void> can_open(int sender, int receiver) const;
  /// Copies the tables to the GPU.
  Result<void> upload();
  /// Enters a connection with wires from `sender` to `receiver` for `channels`.
  void own(Connection connection, int sender, int receiver, const ChannelUses& channels);
  /// Enters a channel's wires to a network that reduces and from it.
  void own_network(int channel, const Wire& up, const Wire& down, std::shared_ptr<void> owner);
  /// Counts memory against the communicator's budget, until the end of the composition.
  void charge(Index bytes);
  /// Counts a connection for the metrics: `by` is 1 for one that is made, -1 for one that closes.
  void count(const Connection& connection, bool sends, int by);

  // Functions of `IdlePairs`.
  /// Takes the wires from or to `peer` out of the tables, or enters them again.
  void remove_wires(int peer, bool sends);
  void enter_wires(int peer, bool sends, const Connection& connection);

  // Functions of `OnDemandConnect`, for an edge that this rank is an end of.
  bool has_wire(int sender, int receiver) const;
  EdgeTransport edge_transport(int sender, int receiver) const;
  Result<std::unique_ptr<AnyEnd>> set_up(TransportContext& context, int sender, int receiver);
  Result<void> connect_end(AnyEnd& end, int sender, int receiver, const Handshake& theirs);

  Communicator comm_;
  TransportTable transport_table_;
  std::string name_;
  ShownName shown_name_;
  int operation_ = 0;
  int number_ = 0;
  WireNeeds needs_;
  Plan plan_;
  Index slot_bytes_ = 0;  // bytes of all slots that lie in this rank's memory
  bool connects_on_demand_ = false;
  bool reserved_ = false;        // memory of all wires is counted
  std::atomic<int> missing_{0};  // wires that `open` may still have to make, both ways
  Index bytes_ = 0;              // bytes counted against the budget
  CallState calls_;
  PositionTable positions_;
  mutable std::mutex wires_mutex_;  // `steps` reads while `connect` writes
  WireRows rows_;
  std::vector<Cursor> cursors_;
  std::vector<Connection> owners_;
  std::shared_ptr<const ReducingNetwork> network_;
  std::optional<Error> broken_;  // some edges are made at one end only
  WireTables tables_;            // point to the vectors here, or to their copies on the GPU
  std::shared_ptr<DeviceState> device_;
  PeerMemory peer_memory_{*this};
  double idle_s_ = 0;                // seconds without a call after which a pair closes; 0: never
  std::unique_ptr<IdlePairs> idle_;  // null: pairs stay connected
  int counted_ = 0;                  // connections in the metrics, and the bytes of their slots
  Index counted_bytes_ = 0;
};

}  // namespace ccl::detail
