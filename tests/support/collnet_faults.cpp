// A CollNet plug-in that passes all calls on to another and fails some of them. It wants the
// windows of a gather or scatter to lie end to end. Its environment:
// - COLLNET_UNDER: library of the other.
// - COLLNET_FAULT: "function:calls:code" fails the function with the code after so many calls; the
//   code "hangs" never returns, and "never" is a request that is never done.
// - COLLNET_BUSY: number of times for which an operation does not begin, before it does.
// - COLLNET_REFUSES: number of a type that it does not reduce.
// - COLLNET_SAYS: "devices=-5" gives this number in place of the other's, as do "max_reduced_bytes"
//   and "memory_kinds".
// In version 10 it lacks iallgather and ireducescatter.
#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "plug_in/symbols.hpp"
#include "software_collnet/older_tables.hpp"
#include "transport/collnet/abi.hpp"
#include <dlfcn.h>
#include <unistd.h>

using namespace ccl::detail::collnet;

namespace {

const PlugInV12& under() {
  static const PlugInV12* const table = [] {
    void* const library = ::dlopen(std::getenv("COLLNET_UNDER"), RTLD_NOW | RTLD_LOCAL);
    return static_cast<const PlugInV12*>(
        library == nullptr ? nullptr
                           : ::dlsym(library, ccl::detail::collnet_plug_in_symbols[0].data()));
  }();
  return *table;
}

struct Fault {
  bool comes = false;
  std::string_view code;
};
/// Returns the fault of this call of `function`, if it has one.
Fault fault_of(std::string_view function, std::atomic<int>& calls) {
  const char* const text = std::getenv("COLLNET_FAULT");
  const std::string_view all = text == nullptr ? "" : text;
  const std::size_t end = all.find(':');
  if (all.substr(0, end) != function || end == all.npos) return {};
  const std::size_t last = all.rfind(':');
  return {calls.fetch_add(1) >= std::atoi(all.data() + end + 1), all.substr(last + 1)};
}
[[noreturn]] void hang() {
  for (;;) ::pause();
}
template <class Call>
int pass(std::string_view function, std::atomic<int>& calls, Call&& call) {
  const Fault fault = fault_of(function, calls);
  if (!fault.comes || fault.code == "never") return call();
  if (fault.code == "hangs") hang();
  return std::atoi(fault.code.data());
}

std::atomic<int> inits, device_calls, properties_calls, listens, connects, supports_calls,
    registrations, reduces, gathers, scatters, tests, busy, begun, deregistrations, group_ends,
    listener_ends, ends;

int init(void** context, std::uint64_t communicator, ccl::detail::PlugInLogger log) {
  return pass("init", inits, [&] { return under().init(context, communicator, log); });
}
/// Sets `to` if COLLNET_SAYS has another number for it.
template <class T>
void say_otherwise(std::string_view what, T& to) {
  const char* const text = std::getenv("COLLNET_SAYS");
  const std::string_view all = text == nullptr ? "" : text;
  const std::size_t end = all.find('=');
  if (end != all.npos && all.substr(0, end) == what) to = T(std::atoll(all.data() + end + 1));
}
int devices(int* count) {
  return pass("devices", device_calls, [&] {
    const int code = under().devices(count);
    say_otherwise("devices", *count);
    return code;
  });
}
int properties(int device, PropertiesV12* all) {
  return pass("getProperties", properties_calls, [&] {
    const int code = under().properties(device, all);
    say_otherwise("max_reduced_bytes", all->max_reduced_bytes);
    say_otherwise("memory_kinds", all->memory_kinds);
    return code;
  });
}
int listen(void* context, int device, void* handle, void** listener) {
  return pass("listen", listens, [&] { return under().listen(context, device, handle, listener); });
}
int connect(void* handles[], int ranks, int rank, void* listener, void** group) {
  return pass("connect", connects,
              [&] { return under().group.connect(handles, ranks, rank, listener, group); });
}
int supports(int type, int op, int* supported) {
  const char* const refused = std::getenv("COLLNET_REFUSES");
  return pass("reduceSupport", supports_calls, [&] {
    const int code = under().group.supports(type, op, supported);
    if (refused != nullptr && std::atoi(refused) == type) *supported = 0;
    return code;
  });
}
int register_memory(void* group, void* at, std::size_t bytes, int kind, void** memory_handle) {
  return pass("regMr", registrations,
              [&] { return under().group.register_memory(group, at, bytes, kind, memory_handle); });
}
int register_dma_buf(void*, void*, std::size_t, int, std::uint64_t, int, void**) {
  return 5;
}
int deregister_memory(void* group, void* memory_handle) {
  return pass("deregMr", deregistrations,
              [&] { return under().group.deregister_memory(group, memory_handle); });
}
/// Begins an operation by `call`, unless the network is busy.
template <class Call>
int begin(std::string_view function, std::atomic<int>& calls, void** request, Call&& call) {
  const char* const times = std::getenv("COLLNET_BUSY");
  if (times != nullptr && busy++ % (std::atoi(times) + 1) != 0) {
    *request = nullptr;
    return 0;
  }
  ++begun;
  return pass(function, calls, call);
}
int all_reduce(void* group, void* send, void* recv, std::size_t count, int type, int op,
               void* send_handle, void* recv_handle, void** request) {
  return begin("iallreduce", reduces, request, [&] {
    return under().group.all_reduce(group, send, recv, count, type, op, send_handle, recv_handle,
                                    request);
  });
}
/// Begins an operation on a window by `call`. The window must begin a rank's part, or go on where
/// the group's last one ended inside of a part.
template <class Call>
int begin_window(void* group, std::size_t each, std::size_t offset, std::size_t bytes,
                 void** request, Call&& call) {
  struct Last {
    std::size_t each = 1, end = 0;
  };
  static std::mutex mutex;
  static std::map<void*, Last> all;
  const std::lock_guard lock{mutex};
  Last& last = all[group];
  const bool inside = last.end % last.each != 0;
  const bool follows = inside ? each == last.each && offset == last.end : offset % each == 0;
  if (!follows || bytes == 0) return 5;
  const int code = call();
  if (*request != nullptr) last = {each, offset + bytes};
  return code;
}
int all_gather(void* group, void* send, int part_count, MemoryPart* recv, std::size_t each,
               std::size_t offset, std::size_t bytes, void* send_handle, void** request) {
  return begin("iallgather", gathers, request, [&] {
    return begin_window(group, each, offset, bytes, request, [&] {
      return under().group.all_gather(group, send, part_count, recv, each, offset, bytes,
                                      send_handle, request);
    });
  });
}
int reduce_scatter(void* group, int part_count, MemoryPart* send, void* recv, std::size_t each,
                   std::size_t offset, std::size_t bytes, int type, int op, void* recv_handle,
                   void** request) {
  return begin("ireducescatter", scatters, request, [&] {
    return begin_window(group, each, offset, bytes, request, [&] {
      return under().group.reduce_scatter(group, part_count, send, recv, each, offset, bytes, type,
                                          op, recv_handle, request);
    });
  });
}
int flush(void* group, void* at, int bytes, void* memory_handle, void** request) {
  return under().group.flush(group, at, bytes, memory_handle, request);
}
int test(void* request, int* done, int* bytes) {
  *done = 0;
  const Fault fault = fault_of("test", tests);
  if (fault.comes && fault.code == "never") return 0;
  if (fault.comes && fault.code == "hangs") hang();
  if (fault.comes) return std::atoi(fault.code.data());
  return under().group.test(request, done, bytes);
}
int close_group(void* group) {
  return pass("closeColl", group_ends, [&] { return under().group.close_group(group); });
}
int close_listener(void* listener) {
  return pass("closeListen", listener_ends, [&] { return under().group.close_listener(listener); });
}
int finalize(void* context) {
  return pass("finalize", ends, [&] { return under().finalize(context); });
}

constexpr bool has_all = CCL_TEST_COLLNET_VERSION != 10;
constexpr GroupFunctions group_functions{connect,
                                         supports,
                                         register_memory,
                                         register_dma_buf,
                                         deregister_memory,
                                         all_reduce,
                                         has_all ? all_gather : nullptr,
                                         has_all ? reduce_scatter : nullptr,
                                         flush,
                                         test,
                                         close_group,
                                         close_listener};

constexpr const char* name = CCL_TEST_COLLNET_VERSION == 8    ? "Eight"
                             : CCL_TEST_COLLNET_VERSION == 9  ? "Nine"
                             : CCL_TEST_COLLNET_VERSION == 10 ? "Ten"
                             : CCL_TEST_COLLNET_VERSION == 11 ? "Eleven"
                                                              : "Faulty";
constexpr PlugInV12 newest{name,    init,    devices, properties, listen, group_functions,
                           nullptr, finalize};

}  // namespace

extern "C" {
/// Number of operations that this process has begun.
int ccl_test_collnet_operations() {
  return begun;
}
#if CCL_TEST_COLLNET_VERSION == 8
extern const PlugInV8 ncclCollNetPlugin_v8 = software_collnet::OlderTables<newest>::v8;
#elif CCL_TEST_COLLNET_VERSION == 9
extern const PlugInV9 ncclCollNetPlugin_v9 = software_collnet::OlderTables<newest>::v9;
#elif CCL_TEST_COLLNET_VERSION == 10
extern const PlugInV10 ncclCollNetPlugin_v10 = software_collnet::OlderTables<newest>::v10;
#elif CCL_TEST_COLLNET_VERSION == 11
extern const PlugInV11 ncclCollNetPlugin_v11 = software_collnet::OlderTables<newest>::v11;
#else
extern const PlugInV12 ncclCollNetPlugin_v12 = newest;
#endif
}
