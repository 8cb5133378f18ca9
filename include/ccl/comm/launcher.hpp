#pragma once

#include <ccl/types/result.hpp>
#include <ccl/comm/unique_id.hpp>

#include <string>

namespace ccl {

/// What the program that started this process says about it.
struct LaunchEnvironment {
  int rank = 0;
  int ranks = 1;
  int local_rank = 0;    // among the ranks of this host
  std::string launcher;  // "torchrun", "Open MPI", "PMIx", "PMI", "Slurm" or "alone"
  std::string job_key;   // names the job, the same on all ranks; may be empty
};

/// From the environment: torchrun, Open MPI, PMIx, PMI (MPICH, Intel MPI), Slurm, in this order;
/// one rank alone if none of their variables is set, and in a batch script of Slurm, where a
/// warning says that srun starts ranks. Has no effect beyond that and asking PMIx for the job's
/// size where nothing else tells it.
Result<LaunchEnvironment> detect_launch();

/// The id on which all ranks of the launch meet. Collective; rank 0 becomes the root. From
/// CCL_COMM_ID, else MASTER_ADDR and MASTER_PORT, else exchanged through PMIx. Under torchrun,
/// whose own store holds MASTER_PORT, the port is the next one. A name that is not known is asked
/// for again until CCL_INIT_TIMEOUT has passed: hosts that are still starting may have none yet.
Result<UniqueId> launch_id(const LaunchEnvironment& launch);

}  // namespace ccl
