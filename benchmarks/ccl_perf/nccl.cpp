#include "nccl.hpp"

#include <fmt/format.h>

#include <dlfcn.h>

namespace ccl::perf {

Result<Nccl> Nccl::open(const std::string& library) {
  void* const handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return fail(
        Errc::not_supported,
        fmt::format("cannot open NCCL ({}); give the path of libnccl.so.2 to --nccl-library",
                    ::dlerror()));
  }
  Nccl nccl{};
  std::string missing;
  const auto find = [&]<class F>(F*& function, const char* symbol, bool needed = true) {
    function = reinterpret_cast<F*>(::dlsym(handle, symbol));
    if (function == nullptr && needed) missing += std::string{missing.empty() ? "" : ", "} + symbol;
  };
  find(nccl.get_version, "ncclGetVersion");
  find(nccl.get_error_string, "ncclGetErrorString");
  find(nccl.get_last_error, "ncclGetLastError");
  find(nccl.get_unique_id, "ncclGetUniqueId");
  find(nccl.init_rank, "ncclCommInitRank");
  find(nccl.destroy, "ncclCommDestroy");
  find(nccl.get_async_error, "ncclCommGetAsyncError");
  find(nccl.mem_alloc, "ncclMemAlloc");
  find(nccl.comm_register, "ncclCommRegister");
  find(nccl.group_start, "ncclGroupStart");
  find(nccl.group_end, "ncclGroupEnd");
  find(nccl.all_reduce, "ncclAllReduce");
  find(nccl.reduce, "ncclReduce");
  find(nccl.reduce_scatter, "ncclReduceScatter");
  find(nccl.all_gather, "ncclAllGather");
  find(nccl.broadcast, "ncclBroadcast");
  find(nccl.send, "ncclSend");
  find(nccl.recv, "ncclRecv");
  find(nccl.window_register, "ncclCommWindowRegister", false);
  find(nccl.all_to_all, "ncclAlltoAll", false);
  find(nccl.gather, "ncclGather", false);
  find(nccl.scatter, "ncclScatter", false);
  if (!missing.empty()) {
    return fail(Errc::not_supported,
                fmt::format("{} has no {} (it is older than NCCL 2.19)", library, missing));
  }
  return nccl;
}

Result<void> Nccl::done(int result, const char* what, Comm comm) const {
  if (result == 0) return {};
  Error error;
  error.code = Errc::internal;
  error.what =
      fmt::format("{} failed ({}: {})", what, get_error_string(result), get_last_error(comm));
  error.os_code = result;
  return fail(std::move(error));
}

}  // namespace ccl::perf
