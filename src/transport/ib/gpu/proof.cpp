#include "transport/ib/gpu/proof.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/io/mapping.hpp"
#include "net/socket.hpp"

namespace ccl::detail {
namespace {

constexpr std::size_t piece_bytes = 64;

/// Pieces of host memory, one after the other.
enum HostPiece : std::size_t { pattern, zeros, result, pieces };

/// One device's copies between host memory and slots, one after the other.
class Copies {
 public:
  static Result<Copies> make(IbGpuSlots& slots, const IbPort& port, bool remotely,
                             const IbTuning& tuning, double limit_s) {
    Copies made;
    made.remotely_ = remotely;
    made.base_ = slots.base();
    made.end_ = net::Deadline::after(limit_s).at();
    CCL_TRY(made.slots_, slots.with(port.device));
    CCL_TRY(made.host_, Mapping::anonymous(pieces * piece_bytes));
    constexpr unsigned all = unsigned(IBV_ACCESS_LOCAL_WRITE) | unsigned(IBV_ACCESS_REMOTE_WRITE) |
                             unsigned(IBV_ACCESS_REMOTE_READ);
    CCL_TRY(made.host_memory_, port.device->memory(made.host_.base(), made.host_.bytes(), all));
    CCL_TRY(made.queue_, IbQueue::make(port.device, 8));
    constexpr unsigned rights =
        unsigned(IBV_ACCESS_REMOTE_WRITE) | unsigned(IBV_ACCESS_REMOTE_READ);
    CCL_TRY(made.qp_, IbQp::make(port, made.queue_->get(), {4, 1, 0, rights}, tuning));
    CCL_CHECK(
        made.qp_->connect(port, IbPortCard::of(port), made.qp_->number(), made.qp_->psn(), tuning));
    return made;
  }

  std::byte* at(HostPiece place) const { return host_.base() + place * piece_bytes; }
  /// Copy from host memory to the slots: the device writes the GPU's memory.
  std::string to_slots(HostPiece from) {
    return remotely_ ? request(IBV_WR_RDMA_WRITE, at(from), host_memory_->local_key(), base_,
                               slots_->remote_key())
                     : request(IBV_WR_RDMA_READ, base_, slots_->local_key(), at(from),
                               host_memory_->remote_key());
  }
  /// Copy from the slots to host memory: the device reads the GPU's memory.
  std::string from_slots(HostPiece to) {
    return remotely_ ? request(IBV_WR_RDMA_READ, at(to), host_memory_->local_key(), base_,
                               slots_->remote_key())
                     : request(IBV_WR_RDMA_WRITE, base_, slots_->local_key(), at(to),
                               host_memory_->remote_key());
  }

 private:
  std::string request(ibv_wr_opcode opcode, std::byte* local, std::uint32_t local_key,
                      std::byte* remote, std::uint32_t remote_key) {
    ibv_sge place{reinterpret_cast<std::uint64_t>(local), piece_bytes, local_key};
    ibv_send_wr wanted{}, *bad = nullptr;
    wanted.sg_list = &place;
    wanted.num_sge = 1;
    wanted.opcode = opcode;
    wanted.send_flags = IBV_SEND_SIGNALED;
    wanted.wr.rdma.remote_addr = reinterpret_cast<std::uint64_t>(remote);
    wanted.wr.rdma.rkey = remote_key;
    if (const int code = ibv_post_send(qp_->get(), &wanted, &bad); code != 0) {
      return fmt::format("a request cannot be posted ({})", std::strerror(code));
    }
    ibv_wc done{};
    for (;;) {
      const int count = queue_->poll(&done, 1);
      if (count < 0) return "the completion queue cannot be read";
      if (count > 0) break;
      if (std::chrono::steady_clock::now() > end_) return "a request does not complete";
      std::this_thread::yield();
    }
    if (done.status == IBV_WC_SUCCESS) return {};
    return fmt::format("a {} ended with {}", opcode == IBV_WR_RDMA_READ ? "read" : "write",
                       explain(done.status).name);
  }

  bool remotely_ = false;
  std::byte* base_ = nullptr;
  std::chrono::steady_clock::time_point end_;
  Mapping host_;
  std::shared_ptr<IbMemory> slots_, host_memory_;
  std::unique_ptr<IbQueue> queue_;  // after the queue pair
  std::unique_ptr<IbQp> qp_;
};

std::string compare(Copies& copies, HostPiece written) {
  std::string why = copies.to_slots(written);
  if (why.empty()) why = copies.from_slots(result);
  if (!why.empty()) return why;
  if (std::memcmp(copies.at(result), copies.at(written), piece_bytes) == 0) return {};
  return "what it wrote there was not read back";
}

}  // namespace

std::string prove_gpu_slots(IbGpuSlots& slots, const IbPort& port, bool remotely,
                            const IbTuning& tuning, double limit_s) {
  auto copies = Copies::make(slots, port, remotely, tuning, limit_s);
  std::string why;
  if (copies) {
    for (std::size_t n = 0; n < piece_bytes; ++n) {
      copies->at(pattern)[n] = std::byte(0x5a ^ (n * 37));
      copies->at(result)[n] = std::byte(0xff);
    }
    why = compare(*copies, pattern);
    if (why.empty()) why = compare(*copies, zeros);
  } else {
    why = copies.error().what;
  }
  return why.empty() ? why
                     : fmt::format("{} does not reach the GPU's memory: {}", port.text(), why);
}

}  // namespace ccl::detail
