#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace ccl::detail {

/// What is to happen when, the earliest first; at one time, the lowest number first.
class SimClock {
 public:
  void add(double us, int who) {
    heap_.push_back({us, who});
    std::push_heap(heap_.begin(), heap_.end(), later);
  }
  bool take(double& us, int& who) {
    if (heap_.empty()) return false;
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
  static bool later(const Entry& a, const Entry& b) {
    return a.us != b.us ? a.us > b.us : a.who > b.who;
  }
  std::vector<Entry> heap_;
};

}  // namespace ccl::detail
