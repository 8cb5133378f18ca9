#pragma once

#include <ccl/types/word.hpp>

#include <memory>
#include <optional>
#include <string>

namespace ccl {
namespace detail {
class CommHooks;
}  // namespace detail

/// Options of a communicator. Unset options are taken from the settings
/// (docs/reference/settings.md). All options except `name`, `device`, `traffic_class` and
/// `cluster_blocks` must be equal on all ranks.
struct Config {
  /// Value of `device` without a GPU: data is in CPU memory.
  static constexpr int cpu = -1;
  /// Value of `device` that selects a GPU in a program with device code (<ccl/ccl.cuh>), if there
  /// is one, and else `cpu`. The GPU is the device of the thread's CUDA context. Without a context
  /// it is the rank's own, counted on its host (`from_env`, `create_all`), or the first. `split`
  /// and `shrink` take the parent's device.
  static constexpr int automatic = -2;

  bool blocking = true;       ///< false: create returns at once; see `Communicator::wait`
  std::optional<bool> check;  ///< compares every call's arguments between ranks (CCL_CHECK)
  /// Seconds of a wait without progress; 0: no limit (CCL_TIMEOUT). `split` and `shrink` take the
  /// parent's.
  std::optional<double> timeout_s;
  /// Seconds of creation; 0: no limit (CCL_INIT_TIMEOUT). `split` and `shrink` take the parent's.
  std::optional<double> init_timeout_s;
  std::optional<Index> memory_budget_bytes;  ///< bytes of wires and scratch (CCL_MEMORY_BUDGET)
  std::optional<int> channels;  ///< channels of every composition; unset: the plan's choice
  /// Limits on that choice (CCL_MIN_CTAS, CCL_MAX_CTAS).
  std::optional<int> min_channels, max_channels;
  /// On GPUs, launches of different communicators on one device that do not fit side by side wait
  /// for each other, in the order of this process's calls (CCL_LAUNCH_ORDER_IMPLICIT).
  std::optional<bool> implicit_launch_order;
  /// Blocks of a thread block cluster in launches of 16 blocks or more, 0 to 8; 0 and 1: launches
  /// have no clusters. Only GPUs of sm_90 to sm_110 get them (CCL_CGA_CLUSTER_SIZE).
  std::optional<int> cluster_blocks;
  /// Channels of a wire to another host for messages between pairs (CCL_NCHANNELS_PER_NET_PEER).
  std::optional<int> net_channels;
  /// Traffic class of RDMA packets. Ranks may differ (CCL_IB_TC).
  std::optional<int> traffic_class;
  int device = automatic;  ///< CUDA device, `cpu` or `automatic`
  std::string tune_file;   ///< file of measurements for `Auto` (CCL_TUNE_FILE)
  std::string name;        ///< name in messages
  std::shared_ptr<const detail::CommHooks> hooks;  ///< set by `Hooked<Communicator, ...>`
};

}  // namespace ccl
