#pragma once

#include <ccl/types/peer_info.hpp>

#include <string>

namespace ccl::detail {

/// Converts "0000:1b:00.0" to and from its hexadecimal digits as one number, as in NCCL's dumps.
std::string bus_id_text(cuda::std::int64_t bus_id);
cuda::std::int64_t bus_id_of(const std::string& text);

/// Number of a GPU's NVLink domain over several hosts, 0 if there is none. Its sources are NVML's
/// answer ("cluster:clique" or empty), or that of a topology file, and the settings CCL_MNNVL_....
Result<cuda::std::uint64_t> fabric_domain(const std::string& answer);

/// Fills in the driver's description of info.device. `fabric_in_file(bus_id)` is the text that a
/// topology file has in place of NVML's answer, or an empty one.
Result<void> describe_device(PeerInfo& info,
                             Result<std::string> (*fabric_in_file)(cuda::std::int64_t bus_id));

/// Resolves `Config::automatic`. Returns the device of the calling thread's CUDA context, if
/// `current` and it has one, else the device of the `local_rank`-th rank of a host. Returns -1, a
/// CPU, without device code or GPUs.
int choose_device(int local_rank, bool current = true);

}  // namespace ccl::detail
