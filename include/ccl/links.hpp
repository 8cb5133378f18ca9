#pragma once

#include <ccl/communicator.hpp>
#include <ccl/journal.hpp>
#include <ccl/plan.hpp>
#include <ccl/proxy.hpp>
#include <ccl/transport/transport.hpp>
#include <ccl/wire_work.hpp>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace ccl::detail {

/// One end of a connection to be made, whatever its transport.
class AnyEnd {
 public:
  virtual ~AnyEnd() = default;
  virtual Handshake handshake() = 0;
  virtual Result<Connection> connect(const Handshake& theirs) = 0;
};

/// A transport policy as values, for the compiled runtime.
struct Connector {
  const char* name;
  bool proxied;
  Result<void> (*can_connect)(const PeerInfo& sender, const PeerInfo& receiver);
  Result<std::unique_ptr<AnyEnd>> (*setup)(TransportContext& context, const Edge& edge);
};
template <Transport T>
class EndOf final : public AnyEnd {
 public:
  explicit EndOf(typename T::End end) : end_{std::move(end)} {}
  Handshake handshake() override { return end_.handshake(); }
  Result<Connection> connect(const Handshake& theirs) override { return end_.connect(theirs); }

 private:
  typename T::End end_;
};
template <Transport T>
Connector connector() {
  return {T::name, T::proxied,
          [](const PeerInfo& sender, const PeerInfo& receiver) {
            return T::can_connect(sender, receiver);
          },
          [](TransportContext& context, const Edge& edge) -> Result<std::unique_ptr<AnyEnd>> {
            CCL_TRY(auto end, T::setup(context, edge));
            return std::make_unique<EndOf<T>>(std::move(end));
          }};
}

/// What one call is, for checking between ranks and for messages. Trivially copyable.
struct CallInfo {
  char what[24] = {};   // "all_reduce"
  char type[16] = {};   // of the elements
  char redop[16] = {};  // of the reduction; empty if none
  Index count = 0;      // as the caller gave it
  int root = -1;
  int composition = 0;  // in order of creation
  Word call = 0;        // of this composition
  Word ticket = 0;      // in the journal; 0: not in it
};

/// The one place that reads the words of a wire for diagnosis, and so must know where they lie.
/// Nothing where the host cannot read them: on `device` >= 0.
std::optional<WireSteps> read_steps(const Wire& wire, int device);

/// The connections of one composition of one rank, and what its launches share. Calls on it are
/// serialised: one launch of a composition at a time.
class Links {
 public:
  /// Collective. `fan`: most wires in that a rank will have, for the memory plan.
  static Result<std::shared_ptr<Links>> create(const Communicator& comm, Plan plan, int fan,
                                               const Connector& connector, std::string name);
  ~Links();

  /// Connects what of these is not connected yet. Both ends of each edge call it.
  Result<void> connect(const std::vector<int>& from, const std::vector<int>& to);

  const Plan& plan() const { return plan_; }
  const Communicator& comm() const { return comm_; }
  const std::string& name() const { return name_; }
  /// The trees that `root` makes: rings and trees of all channels, in place for a launch.
  void seats_for(int root, bool double_tree);

  template <class R>
  WireWork<R> work(const R& reduction) {
    WireWork<R> work{reduction};
    work.in = in_.data();
    work.out = out_.data();
    work.rings = rings_.data();
    work.trees = trees_.data();
    work.rank = comm_.rank();
    work.ranks = comm_.ranks();
    work.channels = plan_.channels;
    work.slice_steps = plan_.slice_steps;
    work.chunk_steps = plan_.chunk_steps;
    work.watch = watch_;
    return work;
  }
  /// Cursors, zeroed: channels * ranks each.
  Cursor* send_cursors();
  Cursor* recv_cursors();

  /// Writes a call into the journal, as queued. The result goes to `begin`.
  CallInfo noted(CallInfo info);
  /// For diagnosis, any thread, at any time: all wires, and for whom a lane began to wait last.
  std::vector<WireSteps> steps() const;
  WaitsFor waits() const;
  int number() const { return number_; }

  /// Before a launch: the communicator must be well, and, with checking on, all ranks must have
  /// called the same. The lock is held until `finish`.
  Result<void> begin(CallInfo info);
  /// Just before a launch on CPU lanes, when all its wires are made: until `finish`, this thread
  /// helps the proxy.
  void help();
  /// After a launch: what became of it.
  Result<void> finish();
  /// The communicator is well and not finalized.
  Result<void> ready() const;
  std::mutex& mutex() { return mutex_; }

 private:
  Links(const Communicator& comm, Plan plan, const Connector& connector, std::string name);
  Result<void> begin_checked(const CallInfo& info);

  Communicator comm_;
  Plan plan_;
  Connector connector_;
  std::string name_;
  int number_ = 0;
  std::atomic<Word> calls_{0};
  CallInfo info_;
  std::mutex mutex_;
  mutable std::mutex wires_mutex_;  // `steps` reads while `connect` writes
  std::vector<Wire> in_, out_;
  std::vector<Connection> owners_;
  std::vector<int> order_;
  std::vector<RingSeat> rings_;
  std::vector<TreeSeat> trees_;
  std::vector<Cursor> cursors_;
  GaveUp gave_up_;
  Watch watch_;
  Word waits_ = 0;  // `WaitsFor`, written by lanes
  Index bytes_ = 0;
  std::optional<ProxyEngine::Helper> helper_;  // during a launch over proxied wires
  bool proxied_ = false;
};

}  // namespace ccl::detail
