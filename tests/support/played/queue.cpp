#include "support/played/queue.hpp"

#include <chrono>
#include <thread>

#include "support/played/lanes.hpp"

namespace ccl::test::played {

Queue& Queue::instance() {
  static auto* const queue = new Queue;  // lanes may run until the process ends
  return *queue;
}

void Queue::set_places(int device, unsigned places) {
  const Lock lock{mutex_};
  devices_[device].places = places;
}

void Queue::order(const NodePtr& first, const NodePtr& node) {
  if (!first || first == node) return;
  const Lock lock{mutex_};
  if (first->done) return;
  first->then.push_back(node);
  ++node->ahead;
}

void Queue::order_early(const NodePtr& first, const NodePtr& node) {
  const Lock lock{mutex_};
  if (first->done) return;
  node->previous = first;
  if (first->let_go) return;
  first->early.push_back(node);
  ++node->ahead;
}

void Queue::submit(const NodePtr& node) {
  Lock lock{mutex_};
  if (node->kernel.body) ++kernels_;
  release(node);
  go_on(std::move(lock));
}

void Queue::wait(const NodePtr& node) {
  if (!node) return;
  Lock lock{mutex_};
  changed_.wait(lock, [&] { return node->done.load(); });
}

void Queue::release(const NodePtr& node) {
  if (--node->ahead == 0) ready_.push_back(node);
}

void Queue::go_on(Lock lock) {
  while (!ready_.empty()) {
    const NodePtr node = std::move(ready_.front());
    ready_.pop_front();
    begin(node);
  }
  lock.unlock();
  changed_.notify_all();
}

void Queue::begin(const NodePtr& node) {
  if (!node->kernel.body) {
    if (node->act) node->act();
    close(node);
    return;
  }
  node->holding = node->kernel.blocks;
  Device& device = devices_[node->device];
  device.waiting.push_back(node);
  place(device);
}

void Queue::place(Device& device) {
  while (!device.waiting.empty() && device.taken < device.places) {
    const NodePtr node = device.waiting.front();
    ++device.taken;
    start_block(node);
    if (node->begun == node->kernel.blocks) device.waiting.pop_front();
  }
}

void Queue::start_block(const NodePtr& node) {
  Block::Calls calls;
  calls.body = node->kernel.body;
  calls.launched = [this, node] { block_lets_go(node); };
  calls.ended = [this, node] { block_ended(node); };
  if (node->previous) {
    calls.awaits = awaits_all_ ? &node->previous->done : &node->previous->blocks_done;
  }
  run_block(std::make_shared<Block>(node->begun++, node->kernel.blocks, node->kernel.lanes,
                                    std::move(calls)));
}

void Queue::block_lets_go(const NodePtr& node) {
  Lock lock{mutex_};
  if (--node->holding == 0) let_go(node);
  go_on(std::move(lock));
}

void Queue::let_go(const NodePtr& node) {
  node->let_go = true;
  for (const NodePtr& next : node->early) release(next);
  node->early.clear();
}

void Queue::block_ended(const NodePtr& node) {
  Lock lock{mutex_};
  Device& device = devices_[node->device];
  --device.taken;
  if (++node->ended == node->kernel.blocks) {
    node->blocks_done.store(true, std::memory_order_release);
    close(node);
  }
  place(device);
  go_on(std::move(lock));
}

void Queue::close(const NodePtr& node) {
  if (node->previous && !node->previous->done) {
    node->previous->closing.push_back(node);
    return;
  }
  finish(node);
}

void Queue::finish(const NodePtr& node) {
  std::deque<NodePtr> ends{node};
  while (!ends.empty()) {
    const NodePtr ended = std::move(ends.front());
    ends.pop_front();
    ended->done.store(true, std::memory_order_release);
    ++nodes_done_;
    if (ended->kernel.body) --kernels_;
    if (!ended->let_go) let_go(ended);
    for (const NodePtr& next : ended->then) release(next);
    ended->then.clear();
    ends.insert(ends.end(), ended->closing.begin(), ended->closing.end());
    ended->closing.clear();
    ended->previous.reset();
  }
}

std::vector<Unplaced> Queue::unplaced() {
  const Lock lock{mutex_};
  std::vector<Unplaced> all;
  for (const auto& [number, device] : devices_) {
    for (const NodePtr& node : device.waiting) {
      all.push_back({number, node->begun, node->kernel.blocks, device.places, device.taken});
    }
  }
  return all;
}

bool Queue::stands_still(unsigned rounds) {
  using namespace std::chrono;
  const auto seen = [this] {
    const Lock lock{mutex_};
    return std::pair{nodes_done_, kernels_};
  };
  for (;;) {
    const auto nodes = seen();
    if (nodes.second == 0) return false;
    const Activity before = activity();
    // Blocks that no worker has taken yet are not seen, and busy cores can keep a worker from them:
    // without lanes, only a long time proves something.
    for (auto idle_since = steady_clock::now();;) {
      const Activity now = activity();
      if (seen() != nodes || now.moves != before.moves) break;
      if (!now.idle) idle_since = steady_clock::now();
      if (!now.idle && now.rounds >= before.rounds + rounds) return true;
      if (steady_clock::now() - idle_since > seconds{10}) return true;
      std::this_thread::sleep_for(milliseconds{1});
    }
  }
}

}  // namespace ccl::test::played
