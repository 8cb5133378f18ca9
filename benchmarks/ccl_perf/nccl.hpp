#pragma once

#include <ccl/types/result.hpp>

#include <array>
#include <cstddef>
#include <string>

namespace ccl::perf {

/// NCCL library, opened at run time and never closed. Its headers are not needed to build.
struct Nccl {
  using Comm = struct ncclComm*;
  using Window = struct ncclWindow*;
  struct Id {
    char bytes[128];
  };

  static Result<Nccl> open(const std::string& library);
  /// Returns an error such as "ncclAllReduce failed (unhandled cuda error: ...)".
  Result<void> done(int result, const char* what, Comm comm = nullptr) const;

  int (*get_version)(int*);
  const char* (*get_error_string)(int);
  const char* (*get_last_error)(Comm);
  int (*get_unique_id)(Id*);
  int (*init_rank)(Comm*, int ranks, Id, int rank);
  int (*destroy)(Comm);
  int (*get_async_error)(Comm, int*);
  int (*mem_alloc)(void**, std::size_t);
  int (*comm_register)(Comm, void*, std::size_t, void** handle);
  int (*group_start)();
  int (*group_end)();
  int (*all_reduce)(const void*, void*, std::size_t, int type, int op, Comm, void* stream);
  int (*reduce)(const void*, void*, std::size_t, int type, int op, int root, Comm, void* stream);
  int (*reduce_scatter)(const void*, void*, std::size_t, int type, int op, Comm, void* stream);
  int (*all_gather)(const void*, void*, std::size_t, int type, Comm, void* stream);
  int (*broadcast)(const void*, void*, std::size_t, int type, int root, Comm, void* stream);
  int (*send)(const void*, std::size_t, int type, int peer, Comm, void* stream);
  int (*recv)(void*, std::size_t, int type, int peer, Comm, void* stream);
  // Null in versions without these functions.
  int (*window_register)(Comm, void*, std::size_t, Window*, int flags);
  int (*all_to_all)(const void*, void*, std::size_t, int type, Comm, void* stream);
  int (*gather)(const void*, void*, std::size_t, int type, int root, Comm, void* stream);
  int (*scatter)(const void*, void*, std::size_t, int type, int root, Comm, void* stream);
};

}  // namespace ccl::perf
