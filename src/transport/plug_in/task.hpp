#pragma once

#include <ccl/detail/lanes/host_memory.hpp>
#include <ccl/transport/proxy_task.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "proxy/transfer_notes.hpp"
#include "transport/plug_in/link.hpp"

namespace ccl::detail {

/// Common part of both ends' tasks: the control socket, the connections of the plug-in, and the
/// end. A plug-in may refuse to close a connection with a receive under way. So an end without an
/// error first exchanges how far both ends have come, and the sender fills the rest with empty
/// messages.
class PlugInTask : public ProxyTask {
 public:
  Progress progress(ProxyCounters& counters) final;
  ProxyInterest interest() const final;
  bool arm() final;
  Error left_in_call(const char* function, double seconds, bool lanes) final;
  bool ending() const final { return link_->closing.load(std::memory_order_acquire); }
  Word undelivered() const final {
    return state_ == State::over || (finished() && !control_.unsent()) ? 0 : 1;
  }
  bool has_access() const final { return link_->channels->has_access(); }
  int watched() const final { return control_.fd(); }

 protected:
  enum class State { waiting, making, running, over };
  /// Requests of one channel, in the order of its steps.
  struct Channel {
    Wire wire;
    Word begun = 0, done = 0;
    std::vector<void*> requests;                // by slot
    bool blocked = false;                       // the plug-in takes no request now
    std::vector<ZeroCopy::Landing> landings{};  // by slot; the receiver's: of steps under way
    std::optional<TransferNotes> notes{};       // times of the steps, if a log wants them
    std::size_t index(Word step) const { return step & Word(wire.slot_count - 1); }
    void*& request(Word step) { return requests[index(step)]; }
    Word& size_of(Word step) const { return wire.sizes[index(step)]; }
    bool revoked() const { return wire.zero_copy != nullptr && wire.zero_copy->revoked(); }
    Word under_way() const { return begun - done; }
    bool has_room() const {
      return under_way() < Word(std::min(wire.slot_count, net_abi::max_requests));
    }
  };

  PlugInTask(std::shared_ptr<PlugInLink> link, net::SecureSocket socket);

  virtual bool make() = 0;                         // connections; true if anything moved
  virtual bool move(ProxyCounters& counters) = 0;  // steps; true if anything moved
  virtual bool could_move() const = 0;
  virtual void arrive() {}
  virtual void leave() = 0;   // the owner is gone
  virtual void let_go() = 0;  // ends the task's hold on the users' memory
  virtual void on_message(const PlugInControlSocket::Message& message) = 0;
  virtual bool finished() const = 0;    // the plug-in has sent all posted steps
  virtual bool needs_peer() const = 0;  // if the peer leaves: is that a loss?
  virtual bool sends() const = 0;
  virtual bool peer_leaves() const { return false; }  // and has said how far it has come

  const NetPlugIn& plug_in() const { return link_->channels->plug_in(); }
  NetChannel& objects(std::size_t c) { return link_->channels->each[c]; }
  /// Runs a function of the plug-in for a channel. If it does not return within its limit, the
  /// thread is left behind: see `left_in_call`.
  template <class Call>
  int call(const char* function, std::size_t channel, Call&& call) {
    return link_->channels->call(function, channel, std::forward<Call>(call));
  }
  /// Registers the slots of a channel, whose connection is made.
  bool register_slots(std::size_t c);
  /// Handle that the plug-in gets for events of a step; null: nobody wants them.
  NetStep* events_of(std::size_t c, Word step);
  /// Tests the oldest request of a channel. False if it is not done, or has failed.
  bool test(Channel& channel, Index& bytes);
  std::size_t index_of(const Channel& channel) const {
    return std::size_t(&channel - channels_.data());
  }
  bool any_under_way() const;
  std::vector<Word> begun() const;
  /// Reads what a peer has `begun`; fails the connection and returns none if it does not fit.
  std::vector<Word> read_counts(const PlugInControlSocket::Message& message);

  /// Gives up because a function of the plug-in has failed: `doing` what.
  void broke(const char* function, int result, std::string_view doing);
  void give_up(Errc code, std::string what, int os_code = 0);
  void give_up(const Error& error);
  void reject(std::string_view why);
  void lost(const char* why, int os_code);
  /// Waits for the cause of the peer's end. True if its process has ended in order.
  bool peer_departs() const;
  /// Ends the use of the plug-in's connections.
  void end();
  void listen();
  std::string peer_text() const;

  const std::shared_ptr<PlugInLink> link_;
  std::vector<Channel> channels_;
  PlugInControlSocket control_;
  State state_ = State::waiting;
  bool left_ = false;      // the other end has closed without an error
  bool departed_ = false;  // its process has ended: what lanes post now goes nowhere
  std::chrono::steady_clock::time_point deadline_{};  // of the making
  /// Limit for the peer's part of the leaving, from the first call on.
  std::chrono::steady_clock::time_point leave_by();

 private:
  Progress turn(ProxyCounters& counters);
  Progress over();
  /// True if the peer has left, and the lanes may need nothing more of this connection.
  bool is_behind() const {
    return left_ && !departed_ && link_->state() != PlugInLink::State::failed;
  }
  unsigned quiet_ = 0;
  std::chrono::steady_clock::time_point leave_by_{};
};

}  // namespace ccl::detail
