#include "transport/ib/slot_table.hpp"

namespace ccl::detail {

int IbSlotTable::write(const IbQp& qp, std::size_t channel, const IbSlot* draft, Word count,
                       std::uint32_t key, std::uint64_t address, std::uint32_t remote_key) {
  ibv_sge place{reinterpret_cast<std::uint64_t>(draft), std::uint32_t(count * sizeof(IbSlot)), key};
  ibv_send_wr request{};
  request.wr_id = mark | Word(channel) << 48 | (posted_ & low_bits);
  request.sg_list = &place;
  request.num_sge = 1;
  request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  request.wr.rdma.remote_addr = address;
  request.wr.rdma.rkey = remote_key;
  if (Index(place.length) <= qp.inline_bytes()) request.send_flags |= IBV_SEND_INLINE;
  if (posted_ % signal_every == signal_every - 1) request.send_flags |= IBV_SEND_SIGNALED;
  ibv_send_wr* bad = nullptr;
  const int code = ibv_post_send(qp.get(), &request, &bad);
  if (code == 0) ++posted_;
  return code;
}

int IbSlotTable::receive(const IbQp& qp, std::size_t channel) {
  ibv_recv_wr request{}, *bad = nullptr;
  request.wr_id = mark | Word(channel) << 48;
  return ibv_post_recv(qp.get(), &request, &bad);
}

}  // namespace ccl::detail
