#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "proxy/transfer_notes.hpp"
#include "transport/ib/completions.hpp"
#include "transport/ib/control_messages.hpp"
#include "transport/ib/gpu/flush.hpp"
#include "transport/ib/link.hpp"
#include "transport/ib/link_ports.hpp"
#include "transport/ib/paths.hpp"

namespace ccl::detail {

/// A queue pair between two ports, as the receiver plans it and as either end describes its own.
struct IbPair {
  std::uint32_t sender_port, receiver_port;  // indexes into the lists of offer and plan
  std::uint32_t number, psn;
};
/// Plan of a channel: its queue pairs are adjacent in the plan. A step is striped over `parts` of
/// them; steps take turns among the `pairs / parts` groups.
struct IbChannelPlan {
  std::uint32_t pairs, parts;
  std::uint64_t received;  // steps, all parts of them
};
/// Common part of both ends' tasks: the control socket, the queue pairs, and their recreation.
class IbTask : public ProxyTask {
 public:
  Progress progress(ProxyCounters& counters) final;
  ProxyInterest interest() const final;
  bool ending() const final { return link_->closing.load(std::memory_order_acquire); }
  Word undelivered() const final {
    return state_ == State::over || (finished() && !line_.unsent()) ? 0 : 1;
  }
  bool arm() final { return in_.place == 0 && all_.arm(); }

  ~IbTask() override;

 protected:
  enum class State { waiting, making, running, over };
  struct Pair {
    std::unique_ptr<IbQp> qp;
    int channel = 0;
    IbPair mine{}, theirs{};
  };

  IbTask(std::shared_ptr<IbLink> link, net::SecureSocket socket);

  virtual bool move(ProxyCounters& counters) = 0;  // moves steps; true if anything moved
  virtual void count(ProxyCounters&) {}  // what has arrived, also with the end of the connection
  virtual bool could_move() const = 0;
  virtual bool waits_for_lanes() const = 0;  // which cannot call, or for the other end's memory
  virtual bool finished() const = 0;         // all posted steps have been transmitted
  virtual bool needs_peer() const = 0;       // if the peer leaves: is that a loss?
  virtual void completed(const ibv_wc& completion) = 0;
  virtual void readiness(const IbMessage& message) = 0;
  virtual void make_anew(const std::string& why) = 0;  // after a failure
  virtual void arrive() {}
  virtual void take_arrived() {}  // before the queue pairs are destroyed
  /// Returns all steps that were sent to the lanes: the peer has left without an error, so it has
  /// them, and no queue pair is left to say so.
  virtual void return_sent() {}
  virtual void let_go() = 0;  // ends the task's hold on the users' memory; no queue pairs are left
  virtual bool sends() const = 0;

  Result<void> take_ports();
  Result<void> take_port(const IbPort& port);
  /// Makes room for so many completions of each port, which are indexes.
  Result<void> open_queues(const std::map<std::uint32_t, int>& entries);
  IbCompletions::Share& queue_of(std::size_t port) const;
  /// Makes a queue pair of the port, whose completions are this task's.
  Result<std::unique_ptr<IbQp>> make_qp(std::size_t port, const IbQpSize& size) const;
  int own_port(const Pair& pair) const {
    return int(sends() ? pair.mine.sender_port : pair.mine.receiver_port);
  }
  int peer_port(const Pair& pair) const {
    return int(sends() ? pair.mine.receiver_port : pair.mine.sender_port);
  }
  const IbPort& port_of(const Pair& pair) const { return ports_[std::size_t(own_port(pair))]; }
  /// This end's ports, with the peer's keys to memory for each.
  std::vector<IbPortCard> cards(const std::vector<std::shared_ptr<IbMemory>>& memory) const;
  void close_pairs();
  /// Registers this end's queue pairs with the link. False if lanes have failed: the task is over.
  bool open_pairs();
  /// Ends the task's queue pairs for ever.
  void end_pairs();
  bool poll();
  /// Calls `take` with each completion that has come.
  template <class Take>
  bool take_completions(Take take) {
    if (in_.completions.empty()) return false;
    batch_.clear();
    batch_.swap(in_.completions);
    for (const ibv_wc& completion : batch_) take(completion);
    return !batch_.empty();
  }
  void listen_to_line();
  void ignore_line();  // from here on nobody reads it
  void close_line();
  void look_aside();
  /// Adds a bad path once: the ends exchange all known bad paths whenever queue pairs fail.
  void note_bad(const IbBadPath& path);
  /// Handles a completion with an error.
  void trouble(const Pair& pair, const ibv_wc& completion, const std::string& what);
  void trouble(const std::string& text, bool worth_another_try);
  /// Handles the departure of the other end: without it no queue pairs are recreated.
  void on_peer_closed();
  /// Ends the queue pairs until the sender has a step, and offers others.
  void come_to_rest();
  /// True if all is well so far, and the lanes may need nothing more of this connection.
  bool is_behind() const {
    return state_ == State::over && left_ && !departed_ && link_->state() != IbLink::State::failed;
  }
  /// Handles a failed receive. `code` is that of ibv_post_recv.
  void cannot_receive(const Pair& pair, int code);
  /// True if a completion of this batch failed: queue pairs are then recreated, or this end fails.
  bool in_trouble() const { return held_.has_value(); }
  /// True if an error fails the communicator. Otherwise the waiting `connect` returns it.
  bool fails_communicator() const {
    return !sends() || link_->late_calls != nullptr || link_->state() == IbLink::State::works;
  }
  /// Handles the error of the other end, which may name a third rank.
  void peer_gave_up(const IbMessage& message);
  void give_up(Errc code, std::string what, int os_code = 0);
  void lost(const char* why, int os_code);
  /// Gives up because a late connection cannot be made.
  void cannot_open(const Error& error);
  /// Waits for the cause of the peer's end. True if its process has ended in order.
  bool peer_departs() const;
  /// Gives up because the peer has sent what does not fit.
  void reject(std::string_view why);
  /// Return what does not fit in a list of the peer, or an empty text.
  static std::string wrong_cards(const std::vector<IbPortCard>& cards);
  static std::string wrong_paths(const std::vector<IbBadPath>& paths);
  void refuse(const Error& error);
  void send_error(const Error& error);
  void set_deadline();
  std::string peer_text() const;
  /// Names the ports of the queue pairs of each group of a channel, whose steps take turns.
  std::vector<std::string> networks_of(std::size_t first, std::size_t pairs,
                                       std::size_t parts) const;

  const std::shared_ptr<IbLink> link_;
  IbCompletions& all_;  // the link's
  IbInbox in_;
  std::vector<ibv_wc> batch_;  // that `take_completions` goes through
  IbControlSocket line_;
  State state_ = State::waiting;
  std::uint32_t round_ = 0;  // of making queue pairs
  bool left_ = false;        // the other end has closed without an error
  bool rested_ = false;      // idle: the line closes, and a step opens another
  bool departed_ = false;    // its process has ended: what lanes post now goes nowhere
  std::vector<IbPort> ports_;
  std::vector<std::int32_t> nics_;  // by channel; see `IbLinkPorts`
  std::vector<IbPortCard> peers_ports_;
  std::vector<std::shared_ptr<IbMemory>> slot_memory_, board_memory_;  // by port
  std::vector<std::unique_ptr<IbCompletions::Share>> queues_;          // by device
  std::vector<Pair> pairs_;
  std::map<std::uint32_t, std::unique_ptr<IbFlush>> flushes_;  // by port; the receiver's
  std::vector<IbBadPath> bad_paths_;
  std::vector<std::pair<std::shared_ptr<IbDevice>, unsigned>> events_;  // handled so far
  std::string trouble_;                                                 // reason for this round
  struct Held {
    std::string text;
    bool worth_another_try;
  };
  std::optional<Held> held_;  // failure among completions, handled after all of them:
  bool in_batch_ = false;     // data that has arrived counts, whatever failed
  bool advanced_ = false;     // a step has arrived since the last failure
  int tries_ = 0;             // since a step has arrived
  unsigned quiet_ = 0;
  std::chrono::steady_clock::time_point deadline_{};
};

}  // namespace ccl::detail
