#pragma once

#include <ccl/types/result.hpp>
#include <ccl/types/word.hpp>

#include <cstdint>
#include <memory>

#include "transport/ib/verbs/device.hpp"

namespace ccl::detail {

/// Settings of queue pairs.
struct IbTuning {
  int traffic_class = 0, service_level = 0, timeout = 20, retry_count = 7, pkey = 0;
  int qps_per_port = 1;
  bool split = false;
  int adaptive = -2;
  Index announce_bytes = 8192;  // CCL_IB_AR_THRESHOLD
  bool relaxed = true;
  bool flush = true;  // only of GPU memory
  static Result<IbTuning> from_settings();
};

/// Description of a port for the other end. Trivially copyable.
struct IbPortCard {
  std::uint8_t gid[16];
  std::uint16_t lid;
  std::uint8_t mtu, infiniband;
  std::int32_t nic;
  std::int32_t distance;  // of the NIC from the slots, as in `EdgeNics`
  std::uint32_t key;      // of memory that the other end writes: the sender's table, the receiver's
                          // slots
  char where[44];         // "mlx5_0 port 1", for messages
  static IbPortCard of(const IbPort& port);
};

/// A completion channel: its descriptor is readable after a completion in an armed queue.
class IbCompletionChannel {
 public:
  static Result<std::unique_ptr<IbCompletionChannel>> make(std::shared_ptr<IbDevice> device);
  ~IbCompletionChannel();
  IbCompletionChannel(const IbCompletionChannel&) = delete;
  IbCompletionChannel& operator=(const IbCompletionChannel&) = delete;

  ibv_comp_channel* get() const { return channel_; }
  int fd() const { return channel_->fd; }
  /// Takes one event. Returns its queue, or null if there is none. Never blocks.
  const ibv_cq* take_event() const;

 private:
  IbCompletionChannel(std::shared_ptr<IbDevice> device, ibv_comp_channel* channel)
      : device_{std::move(device)}, channel_{channel} {}
  std::shared_ptr<IbDevice> device_;
  ibv_comp_channel* channel_;
};

/// A completion queue, with a channel if it is to be waited for.
class IbQueue {
 public:
  static Result<std::unique_ptr<IbQueue>> make(std::shared_ptr<IbDevice> device, int entries,
                                               const IbCompletionChannel* channel = nullptr);
  ~IbQueue();
  IbQueue(const IbQueue&) = delete;
  IbQueue& operator=(const IbQueue&) = delete;

  ibv_cq* get() const { return cq_; }
  int poll(ibv_wc* to, int most) const { return ibv_poll_cq(cq_, most, to); }
  /// Makes the channel readable at the next completion. Earlier completions do not: poll the queue
  /// once more afterwards.
  void arm() { armed_ = armed_ || ibv_req_notify_cq(cq_, 0) == 0; }
  /// The channel has had the event of the queue.
  void rang() { armed_ = false; }

 private:
  IbQueue(std::shared_ptr<IbDevice> device, ibv_cq* cq) : device_{std::move(device)}, cq_{cq} {}
  std::shared_ptr<IbDevice> device_;
  ibv_cq* cq_;
  bool armed_ = false;
};

struct IbQpSize {
  int sends = 1, receives = 1, inline_bytes = 0;
  unsigned access = IBV_ACCESS_REMOTE_WRITE;  // rights of the other end
  /// Entries of a completion queue that it can fill: after an error every request has one.
  int completions() const { return sends + receives; }
};

/// Queue pair of a reliable connection, from creation to destruction.
class IbQp {
 public:
  /// Makes a queue pair in the state INIT, which accepts receives. All its completions go to
  /// `queue`.
  static Result<std::unique_ptr<IbQp>> make(const IbPort& port, ibv_cq* queue, IbQpSize size,
                                            const IbTuning& tuning);
  ~IbQp();
  IbQp(const IbQp&) = delete;
  IbQp& operator=(const IbQp&) = delete;

  /// Connects through RTR to RTS.
  Result<void> connect(const IbPort& port, const IbPortCard& to, std::uint32_t number,
                       std::uint32_t psn, const IbTuning& tuning);
  /// Ends all requests in flight with an error, and all traffic from the other end.
  void stop();
  ibv_qp* get() const { return qp_; }
  std::uint32_t number() const { return qp_->qp_num; }
  std::uint32_t psn() const { return psn_; }
  Index inline_bytes() const { return inline_bytes_; }

 private:
  IbQp(std::shared_ptr<IbDevice> device, ibv_qp* qp, Index inline_bytes, std::uint32_t psn)
      : device_{std::move(device)}, qp_{qp}, inline_bytes_{inline_bytes}, psn_{psn} {}
  std::shared_ptr<IbDevice> device_;
  ibv_qp* qp_;
  Index inline_bytes_;
  std::uint32_t psn_;
};

/// Meaning of a completion's status.
struct IbFailure {
  const char* name;  // "IBV_WC_RETRY_EXC_ERR"
  const char* why;
  const char* help;
  bool worth_another_try;  // over other queue pairs
};
IbFailure explain(ibv_wc_status status);

}  // namespace ccl::detail
