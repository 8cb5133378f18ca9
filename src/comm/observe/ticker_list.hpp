#pragma once

#include <ccl/types/result.hpp>

#include <chrono>
#include <utility>
#include <vector>

#include "net/engine.hpp"
#include <unistd.h>

namespace ccl::detail {

/// Objects of a process that a ticker of the network thread visits while there are any. A forked
/// child begins with none. The engine's mutex guards it.
template <class T>
class TickerList {
 public:
  /// Adds `one`. The first starts `tick`, which visits `items` and returns `goes_on()`.
  Result<void> add(T one, bool (*tick)(), std::chrono::milliseconds period) {
    if (!is_ticking()) {
      items.clear();
      CCL_CHECK(net::Engine::get().add_ticker(tick, period));
      pid_ = ::getpid();
    }
    items.push_back(std::move(one));
    return {};
  }
  /// True if the ticker of this process runs.
  bool is_ticking() const { return pid_ == ::getpid(); }
  bool goes_on() {
    if (items.empty()) pid_ = 0;
    return !items.empty();
  }

  std::vector<T> items;

 private:
  int pid_ = 0;
};

}  // namespace ccl::detail
