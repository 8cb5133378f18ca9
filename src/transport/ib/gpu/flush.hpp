#pragma once

#include <ccl/types/word.hpp>

#include <memory>

#include "transport/ib/verbs/queue_pair.hpp"

namespace ccl::detail {

/// Makes data visible to a GPU: the device that has written it to GPU memory reads some of it. A
/// read does not pass earlier writes on the PCI bus. Uses a queue pair from a port to itself. Not
/// run on hardware.
class IbFlush {
 public:
  static IbQpSize size(int most) { return {most, 1, 0, IBV_ACCESS_REMOTE_READ}; }
  /// At most `most` reads are in flight.
  static Result<std::unique_ptr<IbFlush>> make(const IbPort& port, ibv_cq* queue, int most,
                                               const IbTuning& tuning);
  /// Reads a word of GPU memory for `channel`. Returns the code of ibv_post_send.
  int read(std::size_t channel, std::uint64_t from, std::uint32_t key, std::byte* landing,
           std::uint32_t landing_key);

  std::uint32_t number() const { return qp_->number(); }

  static bool is_one(const ibv_wc& completion) {
    return (completion.wr_id & (mark | Word(1) << 63)) == mark;
  }
  static std::size_t channel_of(const ibv_wc& completion) {
    return std::size_t(completion.wr_id & ~mark);
  }

 private:
  static constexpr Word mark = Word(1) << 62;
  explicit IbFlush(std::unique_ptr<IbQp> qp) : qp_{std::move(qp)} {}
  std::unique_ptr<IbQp> qp_;
};

}  // namespace ccl::detail
