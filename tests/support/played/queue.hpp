#pragma once

// What is queued on played GPUs: nodes with an order between them, and the places of blocks.
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace ccl::test::played {

/// Kernel of a launch: `body` runs on each lane.
struct Kernel {
  std::function<void()> body;
  unsigned blocks = 1, lanes = 1;
};

/// One thing that a GPU does: a kernel, or what takes no time (a copy, a mark of an event).
struct Node {
  int device = 0;
  Kernel kernel;              // without a body: none
  std::function<void()> act;  // without a kernel. Runs under the queue's lock
  /// A launch that may begin early ends after this one.
  std::shared_ptr<Node> previous{};

  // Owned by the queue.
  int ahead = 1;  // nodes that must end, or let this one begin, first; 1 for who makes it
  std::vector<std::shared_ptr<Node>> then{};     // begin when this one has ended
  std::vector<std::shared_ptr<Node>> early{};    // begin when its blocks let them
  std::vector<std::shared_ptr<Node>> closing{};  // end when this one has ended
  unsigned begun = 0, ended = 0, holding = 0;    // blocks; those that do not let others begin
  bool ready = false, let_go = false;
  std::atomic<bool> blocks_done{false};  // of a kernel
  std::atomic<bool> done{false};         // and what came before it
};
using NodePtr = std::shared_ptr<Node>;

/// Launch whose blocks do not all have a place.
struct Unplaced {
  int device;
  unsigned placed, blocks;  // of the launch
  unsigned places, taken;   // of the device
};

/// All played GPUs. A block takes a place, a multiprocessor, until it ends. Launches of a device
/// get places in the order in which they may begin. None overtakes another, as blocks of equal size
/// do not on a GPU.
class Queue {
 public:
  static Queue& instance();

  /// Number of multiprocessors of a device; taken at the next launch.
  void set_places(int device, unsigned places);
  /// Lets `node` begin after `first`.
  void order(const NodePtr& first, const NodePtr& node);
  /// Lets `node`, a launch, begin as soon as the blocks of `first`, a launch, let it.
  void order_early(const NodePtr& first, const NodePtr& node);
  /// Ends the making of a node.
  void submit(const NodePtr& node);
  /// Blocks until the node has ended.
  void wait(const NodePtr& node);

  /// Says how far lanes that wait for the launch before them look: to the end of its blocks, which
  /// is all that PTX promises, or to the end of all before it, as seen on an H100.
  void await_all_before(bool all) { awaits_all_ = all; }

  /// Launches that wait for places.
  std::vector<Unplaced> unplaced();
  /// True if nothing moves on any GPU although launches have not ended: lanes only poll, through
  /// `rounds` rounds of all workers. False as soon as no launch is left.
  bool stands_still(unsigned rounds = 2000);

 private:
  using Lock = std::unique_lock<std::mutex>;
  struct Device {
    unsigned places = 1, taken = 0;
    std::deque<NodePtr> waiting{};  // for places
  };
  void release(const NodePtr& node);
  void begin(const NodePtr& node);
  void place(Device& device);
  void start_block(const NodePtr& node);
  void block_lets_go(const NodePtr& node);
  void block_ended(const NodePtr& node);
  void let_go(const NodePtr& node);
  void close(const NodePtr& node);
  void finish(const NodePtr& node);
  /// Goes on with what has become ready, without recursion.
  void go_on(Lock lock);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int, Device> devices_;
  std::deque<NodePtr> ready_;
  unsigned long long nodes_done_ = 0;
  std::size_t kernels_ = 0;  // that have not ended
  std::atomic<bool> awaits_all_{false};
};

}  // namespace ccl::test::played
