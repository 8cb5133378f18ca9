// NCCL's collectives, messages and groups.
#include "nccl/functions/collectives.hpp"

#include <ccl/comm/log.hpp>
#include <ccl/element/reduce_op.hpp>

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <limits>

#include "nccl/abi/call_config.hpp"
#include "nccl/abi/config.hpp"
#include "nccl/abi/types.hpp"
#include "nccl/api.hpp"

namespace ccl::detail::nccl {

Result<DataType> type_of(ncclDataType_t type) {
  constexpr auto& types = nccl_types;
  if (int(type) >= 0 && int(type) < int(types.size())) return types[std::size_t(type)];
  return fail(Errc::invalid_argument,
              fmt::format("there is no type {}; there are 0 to {}", int(type), types.size() - 1));
}

namespace {

/// No address space is larger, and the bytes of all ranks can still be counted.
constexpr std::size_t max_bytes = std::size_t{1} << 47;

Result<RedOp> op_of(const Member& member, ncclRedOp_t op, DataType type) {
  if (int(op) >= 0 && int(op) < ncclNumOps) return RedOp{nccl_ops[std::size_t(op)]};
  return member.scaling(int(op), type);
}

/// Checks the buffers that each rank of the call has, whatever its number. The operation checks
/// those of the root, when other ranks may wait for it already.
Result<void> check_buffers(const Call& call) {
  if (call.count == 0) return {};
  const bool root_sends = call.kind == Kind::broadcast || call.kind == Kind::scatter;
  const bool root_receives = call.kind == Kind::reduce || call.kind == Kind::gather;
  const bool sends = call.kind != Kind::recv && !root_sends;
  const bool receives = call.kind != Kind::send && !root_receives;
  const bool lacks_send = sends && call.send == nullptr;
  if (!lacks_send && !(receives && call.recv == nullptr)) return {};
  return fail(Errc::invalid_argument,
              fmt::format("{} is null for {} elements; pass a buffer, or count 0",
                          lacks_send ? "sendbuff" : "recvbuff", call.count));
}

ncclResult_t submit(Kind kind, const void* send, void* recv, std::size_t count, ncclDataType_t type,
                    int root, ncclComm_t comm, cudaStream_t stream, const ncclRedOp_t* op = nullptr,
                    const ncclCollConfig_t* config = nullptr) {
  Call call;
  // A configuration that is refused does not spoil the group, as in NCCL.
  if (config != nullptr) {
    const auto read = without_exceptions([&] { return read_call_config(config, call); });
    if (!read) return tell(read);
  }
  return answer_in_group([&]() -> Result<void> {
    CCL_TRY(auto member, member_of(comm));
    call.kind = kind;
    call.send = send;
    call.recv = recv;
    CCL_TRY(call.type, type_of(type));
    if (count > max_bytes / std::size_t(size_of(call.type))) {
      return fail(Errc::invalid_argument,
                  fmt::format("{} elements are more than memory has", count));
    }
    call.count = Index(count);
    CCL_CHECK(check_buffers(call));
    call.root = root;
    call.stream = stream;
    if (op != nullptr) {
      CCL_TRY(call.op, op_of(*member, *op, call.type));
    }
    const std::uint64_t number = member->count_call();
    if (log_enabled(LogLevel::info, LogPart::coll)) member->logged().log_call(call, number);
    if (member->device < 0) call.stream = nullptr;  // CPU ranks ignore streams
    return Group::of_this_thread().submit(std::move(member), call);
  });
}

/// Converts a scalar of NCCL, read now or by the GPU.
Result<RedOp> scaling(const void* scalar, DataType type, ncclScalarResidence_t where) {
  return with_type(type, [&]<class T>(TypeTag<T>) -> Result<RedOp> {
    const T* const at = static_cast<const T*>(scalar);
    if (where == ncclScalarDevice) return RedOp{PreMulSum::at(at)};
    if (where != ncclScalarHostImmediate) {
      return fail(Errc::invalid_argument,
                  fmt::format("a scalar cannot be at {}; it is at ncclScalarDevice ({}) or "
                              "ncclScalarHostImmediate ({})",
                              int(where), int(ncclScalarDevice), int(ncclScalarHostImmediate)));
    }
    if constexpr (std::is_integral_v<T>) {
      return RedOp{PreMulSum{*at}};
    } else {
      return RedOp{PreMulSum{double(*at)}};
    }
  });
}

}  // namespace
}  // namespace ccl::detail::nccl

using namespace ccl::detail::nccl;

ncclResult_t ncclAllReduce(const void* send, void* recv, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return submit(Kind::all_reduce, send, recv, count, type, 0, comm, stream, &op);
}
ncclResult_t ncclReduceScatter(const void* send, void* recv, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return submit(Kind::reduce_scatter, send, recv, count, type, 0, comm, stream, &op);
}
ncclResult_t ncclReduce(const void* send, void* recv, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  return submit(Kind::reduce, send, recv, count, type, root, comm, stream, &op);
}
ncclResult_t ncclAllGather(const void* send, void* recv, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return submit(Kind::all_gather, send, recv, count, type, 0, comm, stream);
}
ncclResult_t ncclBroadcast(const void* send, void* recv, size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream) {
  return submit(Kind::broadcast, send, recv, count, type, root, comm, stream);
}
ncclResult_t ncclBcast(void* data, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                       cudaStream_t stream) {
  return submit(Kind::broadcast, data, data, count, type, root, comm, stream);
}
ncclResult_t ncclAlltoAll(const void* send, void* recv, size_t count, ncclDataType_t type,
                          ncclComm_t comm, cudaStream_t stream) {
  return submit(Kind::all_to_all, send, recv, count, type, 0, comm, stream);
}
ncclResult_t ncclGather(const void* send, void* recv, size_t count, ncclDataType_t type, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  return submit(Kind::gather, send, recv, count, type, root, comm, stream);
}
ncclResult_t ncclScatter(const void* send, void* recv, size_t count, ncclDataType_t type, int root,
                         ncclComm_t comm, cudaStream_t stream) {
  return submit(Kind::scatter, send, recv, count, type, root, comm, stream);
}
ncclResult_t ncclSend(const void* send, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return submit(Kind::send, send, nullptr, count, type, peer, comm, stream);
}
ncclResult_t ncclRecv(void* recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return submit(Kind::recv, nullptr, recv, count, type, peer, comm, stream);
}

ncclResult_t ncclAllReduceConfig(const void* send, void* recv, std::size_t count,
                                 ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                                 cudaStream_t stream, const ncclCollConfig_t* config) {
  return submit(Kind::all_reduce, send, recv, count, type, 0, comm, stream, &op, config);
}
ncclResult_t ncclReduceScatterConfig(const void* send, void* recv, std::size_t count,
                                     ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                                     cudaStream_t stream, const ncclCollConfig_t* config) {
  return submit(Kind::reduce_scatter, send, recv, count, type, 0, comm, stream, &op, config);
}
ncclResult_t ncclReduceConfig(const void* send, void* recv, std::size_t count, ncclDataType_t type,
                              ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream,
                              const ncclCollConfig_t* config) {
  return submit(Kind::reduce, send, recv, count, type, root, comm, stream, &op, config);
}
ncclResult_t ncclAllGatherConfig(const void* send, void* recv, std::size_t count,
                                 ncclDataType_t type, ncclComm_t comm, cudaStream_t stream,
                                 const ncclCollConfig_t* config) {
  return submit(Kind::all_gather, send, recv, count, type, 0, comm, stream, nullptr, config);
}
ncclResult_t ncclBroadcastConfig(const void* send, void* recv, std::size_t count,
                                 ncclDataType_t type, int root, ncclComm_t comm,
                                 cudaStream_t stream, const ncclCollConfig_t* config) {
  return submit(Kind::broadcast, send, recv, count, type, root, comm, stream, nullptr, config);
}
ncclResult_t ncclAlltoAllConfig(const void* send, void* recv, std::size_t count,
                                ncclDataType_t type, ncclComm_t comm, cudaStream_t stream,
                                const ncclCollConfig_t* config) {
  return submit(Kind::all_to_all, send, recv, count, type, 0, comm, stream, nullptr, config);
}
ncclResult_t ncclGatherConfig(const void* send, void* recv, std::size_t count, ncclDataType_t type,
                              int root, ncclComm_t comm, cudaStream_t stream,
                              const ncclCollConfig_t* config) {
  return submit(Kind::gather, send, recv, count, type, root, comm, stream, nullptr, config);
}
ncclResult_t ncclScatterConfig(const void* send, void* recv, std::size_t count, ncclDataType_t type,
                               int root, ncclComm_t comm, cudaStream_t stream,
                               const ncclCollConfig_t* config) {
  return submit(Kind::scatter, send, recv, count, type, root, comm, stream, nullptr, config);
}

ncclResult_t ncclGroupStart() {
  Group::of_this_thread().start();
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  return answer([] { return Group::of_this_thread().end(); });
}

ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t* info) {
  return answer([&]() -> ccl::Result<void> {
    CCL_TRY(const auto us, Group::of_this_thread().simulate());
    if (info == nullptr) return {};
    const std::size_t least = offsetof(ncclSimInfo_t, estimatedTime) + sizeof info->estimatedTime;
    if (!is_begun(*info, least, NCCL_SIM_INFO_MAGIC)) {
      return ccl::fail(ccl::Errc::invalid_argument,
                       "simInfo was not begun with NCCL_SIM_INFO_INITIALIZER; begin it so");
    }
    if (us) info->estimatedTime = float(*us);
    return {};
  });
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t type,
                                      ncclScalarResidence_t where, ncclComm_t comm) {
  return answer([&]() -> ccl::Result<void> {
    CCL_CHECK(check_given(op, "op"));
    CCL_CHECK(check_input(scalar, "scalar"));
    CCL_TRY(const auto member, member_of(comm));
    CCL_TRY(const auto of, type_of(type));
    CCL_TRY(const auto made, scaling(scalar, of, where));
    *op = ncclRedOp_t(member->add_scaling(made, of));
    return {};
  });
}
ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
  return answer([&]() -> ccl::Result<void> {
    CCL_TRY(const auto member, member_of(comm));
    return member->drop_scaling(int(op));
  });
}

CCL_NCCL_ALSO_P(ncclAllReduce);
CCL_NCCL_ALSO_P(ncclReduceScatter);
CCL_NCCL_ALSO_P(ncclReduce);
CCL_NCCL_ALSO_P(ncclAllGather);
CCL_NCCL_ALSO_P(ncclBroadcast);
CCL_NCCL_ALSO_P(ncclBcast);
CCL_NCCL_ALSO_P(ncclAlltoAll);
CCL_NCCL_ALSO_P(ncclGather);
CCL_NCCL_ALSO_P(ncclScatter);
CCL_NCCL_ALSO_P(ncclAllReduceConfig);
CCL_NCCL_ALSO_P(ncclReduceScatterConfig);
CCL_NCCL_ALSO_P(ncclReduceConfig);
CCL_NCCL_ALSO_P(ncclAllGatherConfig);
CCL_NCCL_ALSO_P(ncclBroadcastConfig);
CCL_NCCL_ALSO_P(ncclAlltoAllConfig);
CCL_NCCL_ALSO_P(ncclGatherConfig);
CCL_NCCL_ALSO_P(ncclScatterConfig);
CCL_NCCL_ALSO_P(ncclSend);
CCL_NCCL_ALSO_P(ncclRecv);
CCL_NCCL_ALSO_P(ncclGroupStart);
CCL_NCCL_ALSO_P(ncclGroupEnd);
CCL_NCCL_ALSO_P(ncclGroupSimulateEnd);
CCL_NCCL_ALSO_P(ncclRedOpCreatePreMulSum);
CCL_NCCL_ALSO_P(ncclRedOpDestroy);
