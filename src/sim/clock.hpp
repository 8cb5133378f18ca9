#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace ccl::detail {

/// Queue of events, the earliest first; at one time, the lowest number first. Future times are in
/// boxes of 0.5 us each, unsorted until their turn: a heap of all would be too large for the
/// caches.
class SimClock {
 public:
  /// `us` must not be before the last time taken.
  void add(double us, int who) {
    const std::int64_t box = box_of(us);
    if (box <= now_) {
      heap_.push_back({us, who});
      std::push_heap(heap_.begin(), heap_.end(), later);
    } else if (box - now_ < box_count) {
      boxes_[std::size_t(box % box_count)].push_back({us, who});
      ++boxed_;
    } else {
      far_.push_back({us, who});
      std::push_heap(far_.begin(), far_.end(), later);
    }
  }
  /// Returns false if there are no more events.
  bool take(double& us, int& who) {
    if (heap_.empty() && !go_on()) return false;
    std::pop_heap(heap_.begin(), heap_.end(), later);
    us = heap_.back().us;
    who = heap_.back().who;
    heap_.pop_back();
    return true;
  }

 private:
  struct Entry {
    double us;
    int who;
  };
  static constexpr double box_us = 0.5;
  static constexpr std::int64_t box_count = 1 << 12;

  static std::int64_t box_of(double us) { return std::int64_t(us / box_us); }
  static bool later(const Entry& a, const Entry& b) {
    return a.us != b.us ? a.us > b.us : a.who > b.who;
  }
  /// Advances to the next box that holds an event.
  bool go_on() {
    if (boxed_ == 0 && far_.empty()) return false;
    std::int64_t next = far_.empty() ? now_ + box_count : box_of(far_.front().us);
    if (boxed_ > 0) {
      std::int64_t box = now_ + 1;
      while (box < next && boxes_[std::size_t(box % box_count)].empty()) ++box;
      next = std::min(next, box);
    }
    now_ = next;
    std::vector<Entry>& box = boxes_[std::size_t(now_ % box_count)];
    boxed_ -= box.size();
    heap_.swap(box);
    while (!far_.empty() && box_of(far_.front().us) <= now_) {
      std::pop_heap(far_.begin(), far_.end(), later);
      heap_.push_back(far_.back());
      far_.pop_back();
    }
    std::make_heap(heap_.begin(), heap_.end(), later);
    return true;
  }

  std::int64_t now_ = -1;    // box of `heap_`
  std::vector<Entry> heap_;  // events of this box and, if added late, of earlier ones
  std::vector<std::vector<Entry>> boxes_ = std::vector<std::vector<Entry>>(box_count);
  std::size_t boxed_ = 0;
  std::vector<Entry> far_;  // beyond the boxes
};

}  // namespace ccl::detail
