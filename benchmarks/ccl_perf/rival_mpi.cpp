#include <climits>
#include <vector>

#include "rival.hpp"
#include <mpi.h>

namespace ccl::perf::rival {
namespace {

/// Returns the MPI type, or MPI_BYTE if MPI has none, which is enough to move data.
MPI_Datatype mpi_type(DataType type) {
  switch (type) {
    case DataType::int8:
      return MPI_INT8_T;
    case DataType::int16:
      return MPI_INT16_T;
    case DataType::int32:
      return MPI_INT32_T;
    case DataType::int64:
      return MPI_INT64_T;
    case DataType::uint8:
      return MPI_UINT8_T;
    case DataType::uint16:
      return MPI_UINT16_T;
    case DataType::uint32:
      return MPI_UINT32_T;
    case DataType::uint64:
      return MPI_UINT64_T;
    case DataType::float32:
      return MPI_FLOAT;
    case DataType::float64:
      return MPI_DOUBLE;
    default:
      return MPI_BYTE;
  }
}

MPI_Op mpi_op(RedOp redop) {
  switch (redop) {
    case RedOp::sum:
      return MPI_SUM;
    case RedOp::prod:
      return MPI_PROD;
    case RedOp::min:
      return MPI_MIN;
    case RedOp::max:
    case RedOp::own:
      return MPI_MAX;
    default:
      return MPI_OP_NULL;
  }
}

}  // namespace

const char* name() {
  return "mpi";
}
void start(int* argc, char*** argv) {
  int level = 0;
  MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &level);
}
void stop() {
  MPI_Finalize();
}
int rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}
int ranks() {
  int ranks = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  return ranks;
}
void share(void* data, std::size_t bytes) {
  MPI_Bcast(data, int(bytes), MPI_BYTE, 0, MPI_COMM_WORLD);
}
void barrier() {
  MPI_Barrier(MPI_COMM_WORLD);
}
std::string version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(text, &length);
  const std::string all(text, std::size_t(length));
  return all.substr(0, all.find(','));
}

bool runs(const Shape& shape, DataType type, RedOp redop, bool in_place) {
  const bool reduces =
      shape.op == "all_reduce" || shape.op == "reduce" || shape.op == "reduce_scatter";
  if (shape.bytes > INT_MAX) return false;
  if (reduces && (mpi_type(type) == MPI_BYTE || mpi_op(redop) == MPI_OP_NULL)) return false;
  return !in_place || shape.op == "all_reduce" || shape.op == "all_gather" ||
         shape.op == "broadcast";
}

void run(const Shape& shape, const Call& call) {
  const MPI_Datatype type = mpi_type(call.type);
  const Index unit = type == MPI_BYTE ? size_of(call.type) : 1;
  const int n = int(call.count * unit);
  const MPI_Op op = mpi_op(call.redop);
  const MPI_Comm world = MPI_COMM_WORLD;
  const auto overlay = shape.in_place();
  const bool in_place = overlay && call.send - overlay->send * size_of(call.type) ==
                                       call.recv - overlay->recv * size_of(call.type);
  const void* const send = in_place ? MPI_IN_PLACE : static_cast<const void*>(call.send);
  if (shape.op == "all_reduce") {
    MPI_Allreduce(send, call.recv, n, type, op, world);
  } else if (shape.op == "all_gather") {
    MPI_Allgather(send, n, type, call.recv, n, type, world);
  } else if (shape.op == "reduce_scatter") {
    MPI_Reduce_scatter_block(send, call.recv, n, type, op, world);
  } else if (shape.op == "broadcast") {
    void* const data = shape.rank == call.root ? const_cast<std::byte*>(call.send) : call.recv;
    MPI_Bcast(data, n, type, call.root, world);
  } else if (shape.op == "reduce") {
    MPI_Reduce(send, call.recv, n, type, op, call.root, world);
  } else if (shape.op == "all_to_all") {
    MPI_Alltoall(send, n, type, call.recv, n, type, world);
  } else if (shape.op == "all_to_all_v") {
    std::vector<int> numbers[4];
    const std::span<const Index> given[4] = {call.send_counts, call.send_offsets, call.recv_counts,
                                             call.recv_offsets};
    for (int i = 0; i < 4; ++i) {
      for (const Index x : given[i]) numbers[i].push_back(int(x * unit));
    }
    MPI_Alltoallv(send, numbers[0].data(), numbers[1].data(), type, call.recv, numbers[2].data(),
                  numbers[3].data(), type, world);
  } else if (shape.op == "gather") {
    MPI_Gather(send, n, type, call.recv, n, type, call.root, world);
  } else if (shape.op == "scatter") {
    MPI_Scatter(send, n, type, call.recv, n, type, call.root, world);
  } else {
    MPI_Sendrecv(send, n, type, call.next, 0, call.recv, n, type, call.prev, 0, world,
                 MPI_STATUS_IGNORE);
  }
}

}  // namespace ccl::perf::rival
