#pragma once

#include <ccl/types/result.hpp>

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

namespace ccl::detail {

// A macro: each line is a member of the table and its name in the library. Posting and polling are
// not listed: verbs.h calls the provider through the context.
#define CCL_VERBS_CALLS(X)                          \
  X(fork_init, ibv_fork_init)                       \
  X(get_device_list, ibv_get_device_list)           \
  X(free_device_list, ibv_free_device_list)         \
  X(open_device, ibv_open_device)                   \
  X(close_device, ibv_close_device)                 \
  X(query_device, ibv_query_device)                 \
  X(query_port, ibv_query_port)                     \
  X(query_gid_table, _ibv_query_gid_table)          \
  X(get_async_event, ibv_get_async_event)           \
  X(ack_async_event, ibv_ack_async_event)           \
  X(alloc_pd, ibv_alloc_pd)                         \
  X(dealloc_pd, ibv_dealloc_pd)                     \
  X(reg_mr, ibv_reg_mr_iova2)                       \
  X(dereg_mr, ibv_dereg_mr)                         \
  X(create_comp_channel, ibv_create_comp_channel)   \
  X(destroy_comp_channel, ibv_destroy_comp_channel) \
  X(create_cq, ibv_create_cq)                       \
  X(destroy_cq, ibv_destroy_cq)                     \
  X(get_cq_event, ibv_get_cq_event)                 \
  X(ack_cq_events, ibv_ack_cq_events)               \
  X(create_qp, ibv_create_qp)                       \
  X(modify_qp, ibv_modify_qp)                       \
  X(destroy_qp, ibv_destroy_qp)

/// libibverbs, opened at run time: one binary serves machines with and without it.
struct Verbs {
#define CCL_VERBS_MEMBER(member, function) decltype(&::function) member = nullptr;
  CCL_VERBS_CALLS(CCL_VERBS_MEMBER)
#undef CCL_VERBS_MEMBER
  /// In rdma-core 34 and later; else null.
  ibv_mr* (*reg_dmabuf_mr)(ibv_pd* pd, std::uint64_t offset, std::size_t bytes, std::uint64_t iova,
                           int fd, int access) = nullptr;
};

/// Returns the library, or an error that names what is missing. Any thread may call it repeatedly.
Result<const Verbs*> verbs();

/// Replaces the library's table, for simulated devices and for faults; null restores it. Must not
/// be called while devices are open.
void use_verbs(const Verbs* instead);
bool verbs_are_replaced();

}  // namespace ccl::detail
