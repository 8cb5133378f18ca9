#pragma once

#include <ccl/comm/communicator.hpp>

#include <sys/socket.h>

namespace ccl::test {

/// Returns the id of a communicator of two processes, which have the ends of a socket; all zeros if
/// there is none. Rank 0 makes it and sends it to rank 1. Called after the fork: the process that
/// makes an id has a thread that answers for it.
inline UniqueId id_between(int rank, int fd) {
  UniqueId id;
  if (rank == 0) {
    id = create_unique_id().value_or(id);
    (void)::send(fd, &id, sizeof id, MSG_NOSIGNAL);
  } else {
    (void)::recv(fd, &id, sizeof id, MSG_WAITALL);
  }
  return id;
}

}  // namespace ccl::test
