#pragma once

#include <ccl/types/word.hpp>

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace ccl::detail {

/// Wire whose steps are noted, or one of the streams that carry its pieces.
struct TransferLine {
  int peer = -1;
  int composition = -1;
  int channel = 0, stream = 0;
  bool sends = false;
};

/// Step of a line, or its piece, that has moved. Times are ns by the steady clock; 0: not known.
struct TransferTimes {
  Word step = 0, bytes = 0;
  Word posted = 0;  // the proxy has seen that the lanes have posted the step
  Word begun = 0;   // the first bytes were given to the network, or have come from it
  Word ended = 0;   // so have the last ones
};

class TransferListener;
enum class ProxyTurn;

/// Ring of the latest steps that the proxies of a rank have moved over networks. Tasks of several
/// threads write without a lock, and any thread reads. An entry that is written while it is read is
/// left out.
class TransferLog {
 public:
  explicit TransferLog(int size);
  ~TransferLog();

  /// Returns the number of a NIC or an interface. The name keeps it.
  int network(std::string_view name);
  void add(const TransferLine& line, const TransferTimes& times, int network);

  struct Kept {
    TransferLine line;
    TransferTimes times;
    std::string network;
  };
  /// Returns the transfers that the ring holds, oldest first.
  std::vector<Kept> latest() const;

  /// Lets `listener` follow the lines that tasks make from now on.
  void set_listener(std::shared_ptr<TransferListener> listener);
  std::shared_ptr<TransferListener> listener() const;
  /// Tells the listener of a turn of the engine's thread, if there is one.
  void tell(ProxyTurn to, int tasks = 0) const noexcept;

  /// Gives communicators that this process creates from now on a log of `size` steps or more, also
  /// without CCL_TRACE_TRANSFERS.
  static void keep_at_least(int size);
  static int least();

 private:
  struct Entry;
  std::unique_ptr<Entry[]> entries_;
  const Word size_;
  std::atomic<Word> next_{0};
  mutable std::mutex mutex_;  // of the members below
  std::vector<std::string> names_;
  std::shared_ptr<TransferListener> listener_;
};

}  // namespace ccl::detail
