#pragma once

#include <ccl/types/word.hpp>

#include <memory>

#include "transport/ib/queue_pair.hpp"

namespace ccl::detail {

/// Before a GPU is told of data in its memory, the device that has written it reads some of it:
/// what it wrote before is then there (a read does not pass the writes before it on the PCI bus). A
/// queue pair from a port to itself. Not run on hardware.
class IbFlush {
 public:
  /// At most `most` reads are under way.
  static Result<std::unique_ptr<IbFlush>> make(const IbPort& port, IbQueue& queue, int most,
                                               const IbTuning& tuning);
  /// Of a word of GPU memory, for `channel`. The code of ibv_post_send.
  int read(std::size_t channel, std::uint64_t from, std::uint32_t key, std::byte* landing,
           std::uint32_t landing_key);

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
