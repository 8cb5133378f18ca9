#pragma once

#include <ccl/comm/unique_id.hpp>
#include <ccl/types/result.hpp>

#include <string>

namespace ccl {

/// Description of this process by the program that started it.
struct LaunchEnvironment {
  int rank = 0;
  int ranks = 1;
  int local_rank = 0;    ///< index among the ranks of this host
  std::string launcher;  ///< "torchrun", "Open MPI", "PMIx", "PMI", "Slurm" or "alone"
  std::string job_key;   ///< name of the job, equal on all ranks; may be empty
};

/// Reads the environment of torchrun, Open MPI, PMIx, PMI (MPICH, Intel MPI) or Slurm, in this
/// order. Returns a single rank if none of their variables is set. In a batch script of Slurm it
/// returns a single rank too, and warns that srun starts ranks. PMIx is queried only if no variable
/// has the size of the job.
[[nodiscard]] Result<LaunchEnvironment> detect_launch();

/// Returns the id with which all ranks of the launch create a communicator. Collective; rank 0
/// becomes the root. The address comes from CCL_COMM_ID, else from MASTER_ADDR and MASTER_PORT,
/// else through PMIx. Under torchrun, whose own store uses MASTER_PORT, the port is the next one.
///
/// The secret comes from CCL_SECRET, else from CCL_SECRET_FILE, else through PMIx. Without any, it
/// is made of public words: see docs/guide/security.md.
///
/// An unknown host name is resolved again until CCL_INIT_TIMEOUT, because a host that starts may
/// have no name yet.
[[nodiscard]] Result<UniqueId> launch_id(const LaunchEnvironment& launch);

}  // namespace ccl
