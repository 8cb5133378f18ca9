"""ccl in a program of mpi4py: mpirun -n 4 python with_mpi4py.py

MPI starts the ranks and carries the id of the communicator. Both can be used side by side.
"""

import numpy as np
from mpi4py import MPI

import ccl

world = MPI.COMM_WORLD
rank, ranks = world.Get_rank(), world.Get_size()

id = world.bcast(ccl.UniqueId.create().bytes if rank == 0 else None)
with ccl.Communicator(ccl.UniqueId(id), rank, ranks) as comm:
    data = np.arange(1000.0) + rank
    theirs = np.empty_like(data)
    world.Allreduce(data, theirs)
    assert (comm.all_reduce(data) == theirs).all()

    # The ranks of one host, as MPI finds them: their first rank in the world is the color.
    host = world.Split_type(MPI.COMM_TYPE_SHARED, key=rank)
    local = comm.split(host.bcast(rank), key=host.Get_rank())
    assert (local.rank, local.ranks) == (host.Get_rank(), host.Get_size())
    largest = local.all_reduce(np.array([float(rank)]), "max")
    assert largest[0] == host.allreduce(rank, MPI.MAX)
    local.finalize()
if rank == 0:
    print(f"{ranks} ranks of MPI and of ccl have the same sums")
