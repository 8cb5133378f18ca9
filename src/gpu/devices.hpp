#pragma once

#include <ccl/types/peer_info.hpp>

#include <string>

namespace ccl::detail {

/// "0000:1b:00.0" and back: the hexadecimal digits as one number, as in NCCL's dumps.
std::string bus_id_text(cuda::std::int64_t bus_id);
cuda::std::int64_t bus_id_of(const std::string& text);

/// The NVLink domain over several hosts that a GPU belongs to, from what NVML says of it
/// ("cluster:clique", or nothing) and the settings CCL_MNNVL_...; 0: none.
Result<cuda::std::uint64_t> fabric_domain(const std::string& of_nvml);

/// Fills in what the driver says of info.device.
Result<void> describe_device(PeerInfo& info);

/// What `Config::automatic` stands for: the device of the calling thread's CUDA context, if
/// `current` and it has one, else the device of the `local_rank`-th rank of a host. -1, a CPU, in a
/// program without device code and on a machine without a GPU.
int choose_device(int local_rank, bool current = true);

}  // namespace ccl::detail
