#pragma once

#include <ccl/detail/base/selection.hpp>
#include <ccl/element/data_type.hpp>
#include <ccl/element/red_op.hpp>
#include <ccl/types/word.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <driver_types.h>

namespace ccl::detail::nccl {

enum class Kind {
  all_reduce,
  reduce_scatter,
  reduce,
  all_gather,
  broadcast,
  all_to_all,
  gather,
  scatter,
  send,
  recv
};

/// Options of one call.
struct CallOptions {
  std::string algorithms;   // prefixes of names such as RING_LL, or ^ and such a list; empty: all
  bool must_select = true;  // a list that leaves nothing is an error, else it is left out
  bool deterministic = false;
  std::optional<bool> zero_blocks{};  // see `ZeroCopies`; nothing: as the communicator
  ChannelBounds blocks{};             // of a launch on a GPU, or channels on CPU ranks
  std::uint64_t profiler_tag = 0;     // for a profiler plug-in
  cudaEvent_t started = nullptr;      // recorded behind the call, by `Group`
};

/// Arguments of one function of NCCL.
struct Call {
  Kind kind{};
  const void* send = nullptr;
  void* recv = nullptr;
  Index count = 0;  // elements, as counted by NCCL's function
  DataType type = DataType::uint8;
  cudaStream_t stream = nullptr;
  int root = 0;                                  // or the peer of a message
  RedOp op = "sum";                              // of reductions
  std::shared_ptr<const CallOptions> options{};  // null: none

  bool is_message() const { return kind == Kind::send || kind == Kind::recv; }
  bool reduces() const {
    return kind == Kind::all_reduce || kind == Kind::reduce_scatter || kind == Kind::reduce;
  }
};

}  // namespace ccl::detail::nccl
