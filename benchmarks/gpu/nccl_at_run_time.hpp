#pragma once

// NCCL, opened at run time, as the reference of the benchmarks. It reads its settings from the
// environment once per process.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>

#include <dlfcn.h>

namespace ccl::bench {

class Nccl {
 public:
  using Comm = struct ncclComm*;
  static constexpr int sum = 0, float32 = 7, int8 = 0, bfloat16 = 9;
  static constexpr int symmetric = 1;  // a window at the same place on all ranks

  /// Opens `path`, the path of libnccl.so.2. Ends the program if that fails.
  explicit Nccl(const char* path) {
    // Multicast can put the GPUs of a shared host out of service.
    ::setenv("NCCL_NVLS_ENABLE", "0", 1);
    library_ = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) {
      std::printf("cannot open NCCL (%s); give the path of libnccl.so.2\n", dlerror());
      std::exit(1);
    }
    find(init_all, "ncclCommInitAll");
    find(destroy, "ncclCommDestroy");
    find(all_reduce, "ncclAllReduce");
    find(all_gather, "ncclAllGather");
    find(reduce_scatter, "ncclReduceScatter");
    find(group_start, "ncclGroupStart");
    find(group_end, "ncclGroupEnd");
    find(get_version, "ncclGetVersion");
    look(alloc, "ncclMemAlloc");
    look(register_window, "ncclCommWindowRegister");
    look(deregister_window, "ncclCommWindowDeregister");
    look(put_signal, "ncclPutSignal");
    look(wait_signal, "ncclWaitSignal");
  }
  int version() const {
    int v = 0;
    get_version(&v);
    return v;
  }

  int (*init_all)(Comm*, int, const int*);
  int (*destroy)(Comm);
  int (*all_reduce)(const void*, void*, size_t, int type, int op, Comm, cudaStream_t);
  int (*all_gather)(const void*, void*, size_t, int type, Comm, cudaStream_t);
  int (*reduce_scatter)(const void*, void*, size_t, int type, int op, Comm, cudaStream_t);
  int (*group_start)();
  int (*group_end)();
  int (*get_version)(int*);
  /// Signals to wait for.
  struct WaitFor {
    int count, peer, signal, context;
  };
  // Null in old versions.
  int (*alloc)(void**, size_t) = nullptr;
  int (*register_window)(Comm, void*, size_t, struct ncclWindow**, int flags) = nullptr;
  int (*deregister_window)(Comm, struct ncclWindow*) = nullptr;
  int (*put_signal)(const void*, size_t, int type, int peer, struct ncclWindow*, size_t offset,
                    int signal, int context, unsigned flags, Comm, cudaStream_t) = nullptr;
  int (*wait_signal)(int count, WaitFor*, Comm, cudaStream_t) = nullptr;

 private:
  template <class F>
  void look(F*& function, const char* symbol) {
    function = reinterpret_cast<F*>(dlsym(library_, symbol));
  }
  template <class F>
  void find(F*& function, const char* symbol) {
    look(function, symbol);
    if (function == nullptr) {
      std::printf("this NCCL has no %s\n", symbol);
      std::exit(1);
    }
  }
  void* library_;
};

inline void must_nccl(int result, int line) {
  if (result == 0) return;
  std::printf("line %d: NCCL error %d\n", line, result);
  std::exit(1);
}
#define MUST_NCCL(call) ::ccl::bench::must_nccl((call), __LINE__)

}  // namespace ccl::bench
