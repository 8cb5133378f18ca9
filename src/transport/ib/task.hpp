#pragma once

#include <optional>
#include <string>
#include <utility>

#include "transport/ib/flush.hpp"
#include "transport/ib/control_socket.hpp"
#include "transport/ib/link.hpp"
#include "transport/ib/paths.hpp"

namespace ccl::detail {

/// A queue pair between two ports, as the receiver plans it and as either end tells of its own.
struct IbPair {
  std::uint32_t sender_port, receiver_port;  // indexes of the lists in offer and plan
  std::uint32_t number, psn;
};
/// Of a channel: its queue pairs follow each other in the plan. A step is striped over `parts` of
/// them; steps take turns among the `pairs / parts` groups.
struct IbChannelPlan {
  std::uint32_t pairs, parts;
  std::uint64_t received;  // steps, all parts of them
};
/// What both ends' tasks have in common: the line, the queue pairs, and their making anew.
class IbTask : public ProxyTask {
 public:
  Progress progress(ProxyCounters& counters) final;
  ProxyInterest interest() const final;
  bool ending() const final { return link_->closing.load(std::memory_order_acquire); }
  bool arm() final;

 protected:
  enum class State { waiting, making, running, over };
  struct Pair {
    std::unique_ptr<IbQp> qp;
    int channel = 0;
    IbPair mine{}, theirs{};
  };

  IbTask(std::shared_ptr<IbLink> link, Fd socket);

  virtual bool move(ProxyCounters& counters) = 0;  // steps; true if anything moved
  virtual bool could_move() const = 0;
  virtual bool waits_for_lanes() const = 0;  // who cannot call, or the other end's memory
  virtual bool finished() const = 0;         // all that was posted has been transmitted
  virtual bool needs_peer() const = 0;       // it has left: is that a loss?
  virtual void completed(const ibv_wc& completion) = 0;
  virtual void readiness(const IbMessage& message) = 0;
  virtual void make_anew(const std::string& why) = 0;  // after trouble
  virtual void arrive() {}
  virtual void take_arrived() {}  // all of it, before the queue pairs go
  virtual bool sends() const = 0;

  Result<void> take_ports();
  Result<void> open_queues(int entries);
  IbQueue& queue_of(std::size_t port) const;
  int own_port(const Pair& pair) const {
    return int(sends() ? pair.mine.sender_port : pair.mine.receiver_port);
  }
  int peer_port(const Pair& pair) const {
    return int(sends() ? pair.mine.receiver_port : pair.mine.sender_port);
  }
  const IbPort& port_of(const Pair& pair) const { return ports_[std::size_t(own_port(pair))]; }
  /// This end's ports, with the peer's keys to memory that each of them has.
  std::vector<IbPortCard> cards(const std::vector<std::shared_ptr<IbMemory>>& memory) const;
  void close_pairs();
  bool poll();
  void watch(int fd);
  void listen_to_line();
  void look_aside();
  /// Each once: the ends tell each other all that they know, whenever queue pairs fail.
  void note_bad(const IbBadPath& path);
  /// A completion with an error.
  void trouble(const Pair& pair, const ibv_wc& completion, const std::string& what);
  void trouble(const std::string& text, bool worth_another_try);
  /// The other end has left, and with it whoever could answer: no queue pairs are made anew.
  void on_peer_closed();
  /// It has gone well so far: the lanes may never want anything of it again.
  bool is_behind() const {
    return state_ == State::over && left_ && link_->state() != IbLink::State::failed;
  }
  /// `code`: of ibv_post_recv.
  void cannot_receive(const Pair& pair, int code);
  /// Among these completions: the queue pairs will be made anew, or this end is over.
  bool in_trouble() const { return held_.has_value(); }
  void give_up(Errc code, std::string what, int os_code = 0);
  void lost(const char* why, int os_code);
  void refuse(const Error& error);
  void send_error(const Error& error);
  void set_deadline();
  std::string peer_text() const;

  const std::shared_ptr<IbLink> link_;
  IbControlSocket line_;
  Fd epoll_;
  State state_ = State::waiting;
  std::uint32_t round_ = 0;  // of making queue pairs
  bool left_ = false;        // the other end has said farewell
  std::vector<IbPort> ports_;
  std::vector<IbPortCard> peers_ports_;
  std::vector<std::shared_ptr<IbMemory>> slot_memory_, board_memory_;  // by port
  std::vector<std::unique_ptr<IbQueue>> queues_;                       // by device
  std::vector<Pair> pairs_;
  std::vector<std::unique_ptr<IbFlush>> flushes_;  // by port; the receiver's, into GPU memory
  std::vector<IbBadPath> bad_paths_;
  std::vector<std::pair<std::shared_ptr<IbDevice>, unsigned>> events_;  // seen so far
  std::string trouble_;                                                 // the reason for this round
  struct Held {
    std::string text;
    bool worth_another_try;
  };
  std::optional<Held> held_;  // trouble among completions: all of them are looked at first, since
  bool in_batch_ = false;     // what has arrived counts, whatever failed beside it
  bool advanced_ = false;     // a step has arrived since the last trouble
  int tries_ = 0;             // since a step has arrived
  unsigned quiet_ = 0;
  std::chrono::steady_clock::time_point deadline_{};
};

}  // namespace ccl::detail
