#pragma once

#include <ccl/types/result.hpp>

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <map>
#include <mutex>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "transport/fd_server.hpp"

namespace ccl::detail {

struct CommState;
struct LoanAnswer;

/// Thread of a rank that lends memory of its GPU to ranks of its host whose processes do not see
/// that GPU. They send over it to the NIC next to it (PXN), or to a GPU with which they have no
/// NVLink.
///
/// A loan is memory of a cuMem handle. Its descriptor and that of its DMA-BUF are passed over a
/// Unix socket; they and the borrower's mapping keep the memory. This rank keeps nothing of a loan
/// that was fetched, and of another one until that rank's next request.
class GpuLender {
 public:
  /// Starts the thread of `state`, unless it runs. One thread at a time creates a communicator.
  static Result<void> start(CommState& state);

  explicit GpuLender(CommState& state) : state_{state} {}
  ~GpuLender();
  GpuLender(const GpuLender&) = delete;
  GpuLender& operator=(const GpuLender&) = delete;

 private:
  using Message = std::pair<int, std::vector<std::byte>>;  // with its sender
  void serve() noexcept;
  void serve_until_stopped();
  void add(int peer, std::span<const std::byte> text);
  void take(const Message& message);
  Result<void> lend(int peer, Word bytes, LoanAnswer& answer);

  struct Loan {
    FdOffer pages, dma_buf;
  };
  CommState& state_;            // owns this
  std::map<int, Loan> offers_;  // the thread's: of the latest answer to each rank
  std::mutex mutex_;            // guards the members below
  std::condition_variable changed_;
  std::deque<Message> messages_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace ccl::detail
