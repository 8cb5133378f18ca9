#include "transport/ib/verbs/queue_pair.hpp"

#include <ccl/detail/runtime/settings.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/io/os_error.hpp"
#include "base/random.hpp"
#include "transport/ib/verbs/port_choice.hpp"
#include <fcntl.h>

namespace ccl::detail {
namespace {
constexpr std::uint8_t min_rnr_timer = 12;  // NCCL's: 0.64 ms
constexpr std::uint8_t hop_limit = 255;

auto refuse(const std::string& what, int os_code) {
  return fail(os_error(Errc::network, fmt::format("cannot {} ({})", what, std::strerror(os_code)),
                       os_code));
}
}  // namespace

Result<IbTuning> IbTuning::from_settings() {
  IbTuning tuning;
  CCL_TRY(const Index tc, setting_integer("IB_TC"));
  CCL_TRY(const Index sl, setting_integer("IB_SL"));
  CCL_TRY(const Index timeout, setting_integer("IB_TIMEOUT"));
  CCL_TRY(const Index retries, setting_integer("IB_RETRY_CNT"));
  CCL_TRY(const Index pkey, setting_integer("IB_PKEY"));
  CCL_TRY(const Index qps, setting_integer("IB_QPS_PER_CONNECTION"));
  CCL_TRY(tuning.split, setting_flag("IB_SPLIT_DATA_ON_QPS"));
  CCL_TRY(const Index adaptive, setting_integer("IB_ADAPTIVE_ROUTING"));
  CCL_TRY(tuning.announce_bytes, setting_integer("IB_AR_THRESHOLD"));
  CCL_TRY(const Index relaxed, setting_integer("IB_PCI_RELAXED_ORDERING"));
  tuning.traffic_class = int(std::max(tc, Index(0)));
  tuning.service_level = int(std::max(sl, Index(0)));
  tuning.timeout = int(timeout);
  tuning.retry_count = int(retries);
  tuning.pkey = int(pkey);
  tuning.qps_per_port = int(qps);
  tuning.adaptive = int(adaptive);
  tuning.relaxed = relaxed != 0;
  CCL_TRY(const bool unflushed, setting_flag("GDR_FLUSH_DISABLE"));
  tuning.flush = !unflushed;
  return tuning;
}

IbPortCard IbPortCard::of(const IbPort& port) {
  IbPortCard card{};
  std::copy_n(port.gid.raw, sizeof card.gid, card.gid);
  card.lid = port.lid;
  card.mtu = std::uint8_t(port.mtu);
  card.infiniband = port.infiniband ? 1 : 0;
  card.nic = port.nic;
  card.distance = port.distance;
  port.text().copy(card.where, sizeof card.where - 1);
  return card;
}

Result<std::unique_ptr<IbCompletionChannel>> IbCompletionChannel::make(
    std::shared_ptr<IbDevice> device) {
  ibv_comp_channel* const channel = device->calls().create_comp_channel(device->context());
  if (channel == nullptr) {
    return refuse(fmt::format("make a completion channel of {}", device->name()), errno);
  }
  const int flags = ::fcntl(channel->fd, F_GETFL);
  if (flags >= 0) (void)::fcntl(channel->fd, F_SETFL, flags | O_NONBLOCK);
  return std::unique_ptr<IbCompletionChannel>{new IbCompletionChannel{std::move(device), channel}};
}

IbCompletionChannel::~IbCompletionChannel() {
  (void)device_->calls().destroy_comp_channel(channel_);
}

const ibv_cq* IbCompletionChannel::take_event() const {
  ibv_cq* of = nullptr;
  void* context = nullptr;
  if (device_->calls().get_cq_event(channel_, &of, &context) != 0) return nullptr;
  device_->calls().ack_cq_events(of, 1);
  return of;
}

Result<std::unique_ptr<IbQueue>> IbQueue::make(std::shared_ptr<IbDevice> device, int entries,
                                               const IbCompletionChannel* channel) {
  ibv_cq* const cq = device->calls().create_cq(device->context(), entries, nullptr,
                                               channel != nullptr ? channel->get() : nullptr, 0);
  if (cq == nullptr) {
    return refuse(
        fmt::format("make a completion queue of {} entries on {}", entries, device->name()), errno);
  }
  return std::unique_ptr<IbQueue>{new IbQueue{std::move(device), cq}};
}

IbQueue::~IbQueue() {
  (void)device_->calls().destroy_cq(cq_);
}

Result<std::unique_ptr<IbQp>> IbQp::make(const IbPort& port, ibv_cq* queue, IbQpSize size,
                                         const IbTuning& tuning) {
  const Verbs& calls = port.device->calls();
  ibv_qp_init_attr wanted{};
  wanted.send_cq = wanted.recv_cq = queue;
  wanted.qp_type = IBV_QPT_RC;
  wanted.cap.max_send_wr = std::uint32_t(size.sends);
  wanted.cap.max_recv_wr = std::uint32_t(size.receives);
  wanted.cap.max_send_sge = wanted.cap.max_recv_sge = 1;
  wanted.cap.max_inline_data = std::uint32_t(size.inline_bytes);
  ibv_qp_init_attr given = wanted;
  ibv_qp* qp = calls.create_qp(port.device->pd(), &given);
  if (qp == nullptr && size.inline_bytes > 0) {  // more than the device supports
    given = wanted;
    given.cap.max_inline_data = 0;
    qp = calls.create_qp(port.device->pd(), &given);
  }
  if (qp == nullptr) {
    return refuse(fmt::format("make a queue pair of {} sends on {}", size.sends, port.text()),
                  errno);
  }
  std::uint32_t psn = 0;
  (void)fill_random(&psn, sizeof psn);
  std::unique_ptr<IbQp> made{new IbQp{
      port.device, qp, std::min(Index(size.inline_bytes), Index(given.cap.max_inline_data)),
      psn & 0xff'ffff}};
  ibv_qp_attr to{};
  to.qp_state = IBV_QPS_INIT;
  to.pkey_index = std::uint16_t(tuning.pkey);
  to.port_num = std::uint8_t(port.number);
  to.qp_access_flags = size.access;
  const int code = calls.modify_qp(
      qp, &to, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  if (code != 0) {
    return refuse(fmt::format("bring a queue pair of {} to INIT with partition key index {}; see "
                              "CCL_IB_PKEY",
                              port.text(), tuning.pkey),
                  code);
  }
  return made;
}

IbQp::~IbQp() {
  (void)device_->calls().destroy_qp(qp_);
}

Result<void> IbQp::connect(const IbPort& port, const IbPortCard& peer, std::uint32_t number,
                           std::uint32_t psn, const IbTuning& tuning) {
  const Verbs& calls = device_->calls();
  ibv_qp_attr to{};
  to.qp_state = IBV_QPS_RTR;
  to.path_mtu = ibv_mtu(std::min(port.mtu, int(peer.mtu)));
  to.dest_qp_num = number;
  to.rq_psn = psn;
  to.max_dest_rd_atomic = 1;
  to.min_rnr_timer = min_rnr_timer;
  to.ah_attr.port_num = std::uint8_t(port.number);
  to.ah_attr.sl = std::uint8_t(tuning.service_level);
  to.ah_attr.dlid = peer.lid;
  // Needed between subnets of InfiniBand, whose number is the first half of a GID, and always on
  // RoCE.
  const bool routed =
      !port.infiniband || std::memcmp(port.gid.raw, peer.gid, sizeof peer.gid / 2) != 0;
  if (routed) {
    to.ah_attr.is_global = 1;
    std::copy_n(peer.gid, sizeof peer.gid, to.ah_attr.grh.dgid.raw);
    to.ah_attr.grh.sgid_index = std::uint8_t(port.gid_index);
    to.ah_attr.grh.hop_limit = hop_limit;
    to.ah_attr.grh.traffic_class = std::uint8_t(tuning.traffic_class);
  }
  int code = calls.modify_qp(qp_, &to,
                             IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                 IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  ibv_gid gid{};
  std::copy_n(peer.gid, sizeof peer.gid, gid.raw);
  if (code != 0) {
    return refuse(
        fmt::format("reach {} at {} from {} at {} (GID {}); see CCL_IB_GID_INDEX, "
                    "CCL_IB_ADDR_RANGE",
                    peer.where, gid_text(gid), port.text(), gid_text(port.gid), port.gid_index),
        code);
  }
  to = {};
  to.qp_state = IBV_QPS_RTS;
  to.timeout = std::uint8_t(tuning.timeout);
  to.retry_cnt = std::uint8_t(tuning.retry_count);
  to.rnr_retry = 7;  // without limit
  to.sq_psn = psn_;
  to.max_rd_atomic = 1;
  code = calls.modify_qp(qp_, &to,
                         IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                             IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
  if (code != 0) return refuse(fmt::format("let a queue pair of {} send", port.text()), code);
  return {};
}

void IbQp::stop() {
  ibv_qp_attr to{};
  to.qp_state = IBV_QPS_ERR;
  (void)device_->calls().modify_qp(qp_, &to, IBV_QP_STATE);
}

IbFailure explain(ibv_wc_status status) {
  switch (status) {
    case IBV_WC_RETRY_EXC_ERR:
      return {
          "IBV_WC_RETRY_EXC_ERR", "the other end did not answer",
          "see whether the link is up and the GIDs reach each other, or raise CCL_IB_TIMEOUT or "
          "CCL_IB_RETRY_CNT",
          true};
    case IBV_WC_RNR_RETRY_EXC_ERR:
      return {"IBV_WC_RNR_RETRY_EXC_ERR", "the other end was not ready to receive", "see its log",
              true};
    case IBV_WC_WR_FLUSH_ERR:
      return {"IBV_WC_WR_FLUSH_ERR", "the queue pair is in the error state",
              "see the system's log for the device", true};
    case IBV_WC_REM_ACCESS_ERR:
      return {"IBV_WC_REM_ACCESS_ERR", "the other end does not allow the access",
              "its memory is gone or its key is wrong: see its log", false};
    case IBV_WC_REM_INV_REQ_ERR:
      return {"IBV_WC_REM_INV_REQ_ERR", "the other end refused the request", "see its log",
              true};  // software RDMA reports it after lost packets
    case IBV_WC_REM_OP_ERR:
      return {"IBV_WC_REM_OP_ERR", "the other end could not do it", "see its log", true};
    case IBV_WC_LOC_PROT_ERR:
      return {"IBV_WC_LOC_PROT_ERR", "the buffer is not registered memory",
              "if the program forks, see whether the kernel is older than 5.12", false};
    case IBV_WC_LOC_LEN_ERR:
      return {"IBV_WC_LOC_LEN_ERR", "the request is too long", "this is a bug in ccl", false};
    case IBV_WC_LOC_QP_OP_ERR:
      return {"IBV_WC_LOC_QP_OP_ERR", "the queue pair could not take the request",
              "see the system's log for the device", true};
    case IBV_WC_LOC_ACCESS_ERR:
      return {"IBV_WC_LOC_ACCESS_ERR", "local memory does not allow the access",
              "this is a bug in ccl", false};
    case IBV_WC_FATAL_ERR:
      return {"IBV_WC_FATAL_ERR", "the device failed", "see the system's log for it", true};
    case IBV_WC_RESP_TIMEOUT_ERR:
      return {"IBV_WC_RESP_TIMEOUT_ERR", "the answer did not come in time", "raise CCL_IB_TIMEOUT",
              true};
    case IBV_WC_REM_ABORT_ERR:
      return {"IBV_WC_REM_ABORT_ERR", "the other end gave up", "see its log", true};
    default:
      return {"another status", "the device gave no reason", "see the system's log for it", true};
  }
}

}  // namespace ccl::detail
