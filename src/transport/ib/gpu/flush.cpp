#include "transport/ib/gpu/flush.hpp"

namespace ccl::detail {

Result<std::unique_ptr<IbFlush>> IbFlush::make(const IbPort& port, ibv_cq* queue, int most,
                                               const IbTuning& tuning) {
  CCL_TRY(auto qp, IbQp::make(port, queue, size(most), tuning));
  CCL_CHECK(qp->connect(port, IbPortCard::of(port), qp->number(), qp->psn(), tuning));
  return std::unique_ptr<IbFlush>{new IbFlush{std::move(qp)}};
}

int IbFlush::read(std::size_t channel, std::uint64_t from, std::uint32_t key, std::byte* landing,
                  std::uint32_t landing_key) {
  ibv_sge place{reinterpret_cast<std::uint64_t>(landing), sizeof(Word), landing_key};
  ibv_send_wr request{};
  request.wr_id = mark | Word(channel);
  request.sg_list = &place;
  request.num_sge = 1;
  request.opcode = IBV_WR_RDMA_READ;
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.rdma.remote_addr = from;
  request.wr.rdma.rkey = key;
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(qp_->get(), &request, &bad);
}

}  // namespace ccl::detail
