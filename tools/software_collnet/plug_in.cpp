// A plug-in with NCCL's CollNet interface that reduces in software, over TCP: for machines whose
// network cannot. CCL_NET_PLUGIN=software loads it.
// - SOFTWARE_COLLNET_DEVICES: devices of a host, and so heads; 1 by default.
// - SOFTWARE_COLLNET_IFNAME: interface on which heads listen; by default the first that is up.
// - SOFTWARE_COLLNET_MAX_BYTES: bytes of one operation, at most; 1 GiB by default.
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include "group.hpp"
#include "older_tables.hpp"
#include "reduce.hpp"
#include "transport/collnet/abi.hpp"

namespace software_collnet {
namespace {

namespace abi = ccl::detail::collnet;

/// Runs the body of a function, from which no exception may leave.
template <class Body>
int guarded(Body&& body) noexcept {
  try {
    return body();
  } catch (const std::exception&) {
    return system_error;
  }
}

long number(const char* variable, long otherwise) {
  const char* const text = std::getenv(variable);
  const long value = text == nullptr ? 0 : std::strtol(text, nullptr, 10);
  return value > 0 ? value : otherwise;
}

int init(void** context, std::uint64_t, ccl::detail::PlugInLogger) {
  *context = nullptr;
  return success;
}
int devices(int* count) {
  *count = int(number("SOFTWARE_COLLNET_DEVICES", 1));
  return success;
}

int properties(int device, abi::PropertiesV12* all) {
  static char name[] = "software";
  *all = {};
  all->name = name;
  all->guid = std::uint64_t(device);
  all->memory_kinds = abi::host_memory;
  all->speed = 10'000;
  all->max_groups = 1 << 16;
  all->max_recvs = 1;
  all->merged.count = 1;
  all->merged.devices[0] = device;
  all->max_message_bytes = abi::max_bytes;
  all->max_reduced_bytes = std::size_t(number("SOFTWARE_COLLNET_MAX_BYTES", 1l << 30));
  return success;
}

int listen(void*, int, void* handle, void** listener) {
  return guarded([&] {
    std::unique_ptr<Listener> made;
    const Code code = Listener::make(std::getenv("SOFTWARE_COLLNET_IFNAME"), made);
    if (code != success) return int(code);
    std::memcpy(handle, &made->handle, sizeof made->handle);
    *listener = made.release();
    return int(success);
  });
}
int connect(void* handles[], int ranks, int rank, void* listener, void** group) {
  return guarded([&] {
    std::vector<Handle> all{std::size_t(ranks)};
    for (std::size_t r = 0; r < all.size(); ++r) std::memcpy(&all[r], handles[r], sizeof all[r]);
    std::unique_ptr<Group> made;
    const Code code = Group::connect(all, rank, *static_cast<Listener*>(listener), made);
    *group = made.release();
    return int(code);
  });
}
int supports(int type, int op, int* supported) {
  *supported = can_reduce(type, op) ? 1 : 0;
  return success;
}
int register_memory(void*, void* at, std::size_t, int kind, void** memory_handle) {
  *memory_handle = at;
  return kind == abi::host_memory ? success : invalid_usage;
}
int register_dma_buf(void*, void*, std::size_t, int, std::uint64_t, int, void**) {
  return invalid_usage;
}
int deregister_memory(void*, void*) {
  return success;
}
/// Begins an operation. `request`: it, or null if too many are under way.
int start(void* group, const Request& what, void** request) {
  return guarded([&] {
    Request* made = nullptr;
    const Code code = static_cast<Group*>(group)->start(what, made);
    *request = made;
    return int(code);
  });
}
int all_reduce(void* group, void* send, void* recv, std::size_t count, int type, int op, void*,
               void*, void** request) {
  Request what;
  what.send = static_cast<const std::byte*>(send);
  what.recv = static_cast<std::byte*>(recv);
  what.bytes = count * element_bytes(type);
  what.type = type;
  what.op = op;
  return start(group, what, request);
}
int all_gather(void* group, void* send, int part_count, abi::MemoryPart* recv, std::size_t each,
               std::size_t offset, std::size_t bytes, void*, void** request) {
  if (part_count != 1 || recv->bytes < bytes) return invalid_argument;
  Request what;
  what.operation = Operation::all_gather;
  what.send = static_cast<const std::byte*>(send);
  what.recv = static_cast<std::byte*>(recv->at);
  what.bytes = bytes;
  what.each = each;
  what.offset = offset;
  return start(group, what, request);
}
int reduce_scatter(void* group, int part_count, abi::MemoryPart* send, void* recv, std::size_t each,
                   std::size_t offset, std::size_t bytes, int type, int op, void*, void** request) {
  if (part_count != 1 || send->bytes < bytes) return invalid_argument;
  Request what;
  what.operation = Operation::reduce_scatter;
  what.send = static_cast<const std::byte*>(send->at);
  what.recv = static_cast<std::byte*>(recv);
  what.bytes = bytes;
  what.each = each;
  what.offset = offset;
  what.type = type;
  what.op = op;
  return start(group, what, request);
}
int flush(void*, void*, int, void*, void** request) {
  *request = nullptr;
  return success;
}
int test(void* request, int* done, int* bytes) {
  return guarded([&] {
    auto* const one = static_cast<Request*>(request);
    const std::size_t size = one->bytes;
    bool complete = false;
    const Code code = one->of->test(one, complete);
    *done = complete ? 1 : 0;
    if (complete && bytes != nullptr) *bytes = int(size);
    return int(code);
  });
}
int close_group(void* group) {
  delete static_cast<Group*>(group);
  return success;
}
int close_listener(void* listener) {
  delete static_cast<Listener*>(listener);
  return success;
}
int finalize(void*) {
  return success;
}

constexpr abi::GroupFunctions group_functions{connect,
                                              supports,
                                              register_memory,
                                              register_dma_buf,
                                              deregister_memory,
                                              all_reduce,
                                              all_gather,
                                              reduce_scatter,
                                              flush,
                                              test,
                                              close_group,
                                              close_listener};
constexpr abi::PlugInV12 newest{"Software",      init,    devices, properties, listen,
                                group_functions, nullptr, finalize};

}  // namespace
}  // namespace software_collnet

using namespace software_collnet;

extern "C" {
[[gnu::visibility("default")]] extern const abi::PlugInV12 ncclCollNetPlugin_v12 = newest;
[[gnu::visibility("default")]] extern const abi::PlugInV11 ncclCollNetPlugin_v11 =
    OlderTables<newest>::v11;
[[gnu::visibility("default")]] extern const abi::PlugInV10 ncclCollNetPlugin_v10 =
    OlderTables<newest>::v10;
[[gnu::visibility("default")]] extern const abi::PlugInV9 ncclCollNetPlugin_v9 =
    OlderTables<newest>::v9;
[[gnu::visibility("default")]] extern const abi::PlugInV8 ncclCollNetPlugin_v8 =
    OlderTables<newest>::v8;
}
