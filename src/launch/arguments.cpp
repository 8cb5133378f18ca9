#include <ccl/detail/exchange/counted.hpp>
#include <ccl/detail/hierarchical/parts.hpp>
#include <ccl/detail/launch/arguments.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "base/plan_check.hpp"
#include "comm/state.hpp"
#include "gpu/address.hpp"
#include "gpu/gpu.hpp"

namespace ccl::detail {
namespace {
constexpr Index max_bytes = Index{1} << 56;  // no address space is larger
}  // namespace

Result<void> check_buffer(const Communicator& comm, const char* what, const void* buffer,
                          Index count, Index element_bytes, Index runs) {
  const auto bad = [&](std::string text) {
    return fail(Access::state(comm)->annotate({Errc::invalid_argument, std::move(text)}));
  };
  const Index each = std::max<Index>(element_bytes, 1) * std::max<Index>(runs, 1);
  const auto times = [runs] {  // used only for errors, because all calls run this check
    return runs > 1 ? fmt::format(" for each of {} ranks", runs) : std::string{};
  };
  Index bytes = 0;
  if (count < 0 || __builtin_mul_overflow(count, each, &bytes) || bytes > max_bytes) {
    return bad(fmt::format("{} count {} of {}-byte elements{} cannot be (0 to {})", what, count,
                           element_bytes, times(), max_bytes / each));
  }
  if (buffer == nullptr && count > 0) {
    return bad(
        fmt::format("{} is null and should hold {} elements of {} bytes{}; give a buffer or "
                    "count 0",
                    what, count, element_bytes, times()));
  }
  CommState& state = *Access::state(comm);
  if (!state.limits.check || state.device.gpu == nullptr) return {};
  const Gpu::Current current{*state.device.gpu};
  auto checked =
      check_address(state.device.gpu->driver(), state.device.gpu->device(), what, buffer, bytes);
  if (!checked) return fail(state.annotate(std::move(checked).error()));
  return {};
}

Result<void> check_aligned(const Communicator& comm, const void* send, const void* recv,
                           int align) {
  const auto bits = reinterpret_cast<std::uintptr_t>(send) | reinterpret_cast<std::uintptr_t>(recv);
  if ((bits & (unsigned(align) - 1)) == 0) return {};
  return fail(Access::state(comm)->annotate(
      {Errc::invalid_argument,
       fmt::format("send {} and recv {} are not both aligned to their elements (multiples of {} "
                   "bytes); give buffers that are",
                   send, recv, align)}));
}

Result<void> check_side(const Communicator& comm, const std::string& name, bool cpus, bool gpus) {
  const bool gpu = comm.device() >= 0;
  if (gpu ? gpus : cpus) return {};
  return fail(Access::state(comm)->annotate(
      {Errc::not_supported,
       fmt::format("{} is for {} only (this communicator is on {}); take it without {}", name,
                   gpu ? "CPU ranks" : "GPUs", gpu ? "GPUs" : "CPUs",
                   gpu ? "ForCpus" : "ForGpus")}));
}

namespace {
// Functions that usual calls do not reach are apart from their checks, which save no registers
// then.
[[gnu::noinline, gnu::cold]] Result<void> not_a_rank(const Communicator& comm, int root) {
  // No `peer`: it names a rank of the communicator, by which a program may index.
  return fail(Access::state(comm)->annotate(
      {Errc::invalid_argument,
       fmt::format("rank {} is not in the communicator (it has ranks 0 to {}); give one of these",
                   root, comm.ranks() - 1)}));
}
}  // namespace

Result<void> check_root(const Communicator& comm, int root) {
  if (root >= 0 && root < Access::state(comm)->identity.ranks()) return {};
  return not_a_rank(comm, root);
}

Result<void> check_apart(const Communicator& comm, const char* op, const void* send,
                         const void* recv, Index bytes) {
  const auto a = static_cast<const char*>(send), b = static_cast<const char*>(recv);
  if (bytes == 0 || comm.ranks() == 1 || a + bytes <= b || b + bytes <= a) return {};
  return fail(Access::state(comm)->annotate(
      {Errc::invalid_argument,
       fmt::format("{} cannot run in place (send {} and recv {} overlap on rank {}); give it "
                   "two buffers",
                   op, send, recv, comm.rank())}));
}

Result<void> check_overlap(const Communicator& comm, const char* op, const void* send,
                           Index send_bytes, const void* recv, Index recv_bytes,
                           const void* in_place) {
  const auto a = static_cast<const char*>(send), b = static_cast<const char*>(recv);
  if (send_bytes == 0 || recv_bytes == 0 || send == in_place || a + send_bytes <= b ||
      b + recv_bytes <= a) {
    return {};
  }
  return fail(Access::state(comm)->annotate(
      {Errc::invalid_argument,
       fmt::format("{} of {} bytes at {} into {} bytes at {} overlap (in place, it sends from {} "
                   "here); give it buffers that lie apart, or that one",
                   op, send_bytes, send, recv_bytes, recv, in_place)}));
}

namespace {
/// True if no check of `check_buffers` can fail, which usual calls are in a few comparisons.
bool is_usual(const CommState& state, const CallBuffers& buffers) {
  // No product of these exceeds `max_bytes`.
  const bool small = buffers.count >= 0 && buffers.count < Index{1} << 32 &&
                     buffers.element_bytes <= 4096 && buffers.send_runs <= 4096 &&
                     buffers.recv_runs <= 4096;
  if (!small || state.limits.check) return false;
  if (buffers.send == nullptr || buffers.recv == nullptr) return false;
  if (buffers.send_runs == 0 || buffers.recv_runs == 0) return true;
  const Index bytes = buffers.count * buffers.element_bytes;
  const auto a = static_cast<const char*>(buffers.send);
  const auto b = static_cast<const char*>(buffers.recv);
  if (!buffers.apart && a == b + buffers.in_place * bytes) return true;
  return a + buffers.send_runs * bytes <= b || b + buffers.recv_runs * bytes <= a;
}

[[gnu::noinline]] Result<void> check_each(const Communicator& comm, const char* op,
                                          const CallBuffers& buffers) {
  if (buffers.send_runs > 0) {
    CCL_CHECK(check_buffer(comm, "send", buffers.send, buffers.count, buffers.element_bytes,
                           buffers.send_runs));
  }
  if (buffers.recv_runs > 0) {
    CCL_CHECK(check_buffer(comm, "recv", buffers.recv, buffers.count, buffers.element_bytes,
                           buffers.recv_runs));
  }
  if (buffers.send_runs == 0 || buffers.recv_runs == 0) return {};
  const Index bytes = buffers.count * buffers.element_bytes;
  if (buffers.apart) {
    return check_apart(comm, op, buffers.send, buffers.recv, buffers.send_runs * bytes);
  }
  return check_overlap(comm, op, buffers.send, buffers.send_runs * bytes, buffers.recv,
                       buffers.recv_runs * bytes,
                       static_cast<const char*>(buffers.recv) + buffers.in_place * bytes);
}
}  // namespace

Result<void> check_buffers(const Communicator& comm, const char* op, const CallBuffers& buffers) {
  if (is_usual(*Access::state(comm), buffers)) return {};
  return check_each(comm, op, buffers);
}

Result<void> check_offset(const Communicator& comm, const char* what, Index offset, Index count,
                          Index element_bytes) {
  const Index most = max_bytes / std::max<Index>(element_bytes, 1);
  if (count == 0 || (offset >= 0 && offset <= most)) return {};
  return fail(Access::state(comm)->annotate(
      {Errc::invalid_argument, fmt::format("{} offset {} of {}-byte elements cannot be (0 to {})",
                                           what, offset, element_bytes, most)}));
}

Result<void> check_counts(const Communicator& comm, std::size_t counts) {
  if (counts == std::size_t(comm.ranks())) return {};
  return fail(Access::state(comm)->annotate(
      {Errc::invalid_argument,
       fmt::format("all_to_all_v got {} counts or offsets (the communicator "
                   "has {} ranks); give one for each rank",
                   counts, comm.ranks())}));
}

Result<void> check_plan(const Communicator& comm, const Plan& plan) {
  const char* const broken = broken_rule(plan);
  if (broken == nullptr) return {};
  return fail(Access::state(comm)->annotate(
      {Errc::invalid_argument,
       fmt::format("a plan of {} channels from {} bytes on, {} slots of {} bytes, slices of {} and "
                   "chunks of {} steps cannot be: {}",
                   plan.channels, plan.channel_bytes, plan.slot_count, plan.slot_bytes,
                   plan.slice_steps, plan.chunk_steps, broken)}));
}

Result<void> check_rows(const Communicator& comm, const CountedRows& rows, Index element_bytes,
                        const void* send, const void* recv) {
  CCL_CHECK(check_buffer(comm, "send_counts", rows.send_counts, comm.ranks(), sizeof(int)));
  CCL_CHECK(check_buffer(comm, "recv_counts", rows.recv_counts, comm.ranks(), sizeof(int)));
  constexpr Index most = Index{1} << 30;
  const auto refuse = [&](std::string what) {
    Error error{Errc::invalid_argument, std::move(what)};
    error.rank = comm.rank();
    error.host = comm.peer(error.rank).host;
    return fail(std::move(error));
  };
  if (rows.row < 1 || rows.row > most || rows.send_stride < 0 || rows.send_stride > most ||
      rows.recv_stride < 0 || rows.recv_stride > most) {
    return refuse(
        fmt::format("rows of {} elements, {} to send and {} to receive for each rank, "
                    "cannot be (a row has 1 to {}, a stride is 0 to as many)",
                    rows.row, rows.send_stride, rows.recv_stride, most));
  }
  const Index row_bytes = rows.row * element_bytes;
  if (rows.send_rows != nullptr && row_bytes < CountedWork::apart_bytes) {
    return refuse(
        fmt::format("send_rows is given with rows of {} bytes (it is for rows of {} or "
                    "more); put the rows of a rank side by side, and give null",
                    row_bytes, CountedWork::apart_bytes));
  }
  if (rows.side_bytes != 0) {
    if (row_bytes < CountedWork::apart_bytes || rows.side_bytes < 0) {
      return refuse(fmt::format(
          "{} bytes are to go with each row of {} bytes (they go with rows of {} or more); "
          "make them part of the row",
          rows.side_bytes, row_bytes, CountedWork::apart_bytes));
    }
    CCL_CHECK(check_buffer(comm, "send_side", rows.send_side, rows.send_stride, rows.side_bytes));
    CCL_CHECK(check_buffer(comm, "recv_side", rows.recv_side, rows.recv_stride, rows.side_bytes));
  }
  CCL_CHECK(check_buffer(comm, "send", send, rows.send_stride, row_bytes));
  return check_buffer(comm, "recv", recv, rows.recv_stride, row_bytes);
}

Error scratch_too_small(const Communicator& comm, const std::string& name, Index scratch_bytes,
                        Index pieces, std::size_t element_bytes, const char* other) {
  Error error{Errc::not_supported,
              fmt::format("{} has {} bytes of scratch ({} elements of {} bytes each are to lie "
                          "there at once); name {}",
                          name, scratch_bytes, pieces, element_bytes, other)};
  error.rank = comm.rank();
  error.host = comm.peer(error.rank).host;
  return error;
}

}  // namespace ccl::detail
