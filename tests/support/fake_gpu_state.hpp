#pragma once

// Fake GPUs of a process: their properties, memory and contexts, which a test may change.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "gpu/driver.hpp"

namespace ccl::test {

/// Behavior of copies over a path.
enum class FakePath { well, lost, corrupt, stuck, slow, seen_late };

struct FakeGpus {
  static constexpr int usual = 40;  // devices, where a test does not say how many
  struct Link {
    bool access = true, nvlink = true;
    FakePath path = FakePath::well;
  };
  std::map<std::size_t, std::map<std::size_t, Link>> links{};  // that are unlike the others
  std::map<int, int> multiprocessors{};  // of these devices; the others have one
  std::map<int, int> capabilities{};     // of these devices; the others have 90
  std::map<int, int> instances{};        // of GPUs: these devices have the bus id of others
  int copies_between = 0;                // of GPUs, in all
  int refuses_to_map = -1;               // for this device, what is another's
  std::atomic<int> full{-1};             // this device, which has no memory left
  bool fabric = true;                    // handles for other hosts: here, other processes
  bool rdma = true;                      // NICs may register memory of cuMem handles
  std::atomic<int> for_rdma{0};          // such pieces of memory
  std::set<int> seen{};                  // the only devices that this process sees; empty: all
  bool exports = true;                   // other processes may have memory of cuMem handles
  bool dma_bufs = false;                 // there are descriptors of memory for RDMA devices
  int fabric_imports = 0, legacy_imports = 0;
  std::atomic<int> imports{0};  // of memory by file descriptors

  bool sees(int device) const { return seen.empty() || seen.count(device) != 0; }

  Link link_of(int a, int b) const {
    const auto from = links.find(std::size_t(a));
    if (from == links.end()) return {};
    const auto to = from->second.find(std::size_t(b));
    return to == from->second.end() ? Link{} : to->second;
  }
  /// Both ways.
  void link(int a, int b, Link how) {
    links[std::size_t(a)][std::size_t(b)] = links[std::size_t(b)][std::size_t(a)] = how;
  }

  /// Memory, where it is mapped.
  struct Region {
    std::size_t bytes = 0;
    int device = -1;
    std::vector<int> accessible;    // to these
    int fd = -1;                    // of memory without a handle
    int pages = -1;                 // descriptor of memory with a handle, if a test keeps it
    unsigned long long number = 0;  // of the mapping, which is not used again, if a test keeps it
  };
  std::mutex mutex;
  std::map<std::uintptr_t, Region> regions;
  std::set<std::pair<int, int>> enabled;  // the one reaches the other's legacy memory
  const Region* region(const void* at) const {
    const auto next = regions.upper_bound(reinterpret_cast<std::uintptr_t>(at));
    if (next == regions.begin()) return nullptr;
    const auto& [base, region] = *std::prev(next);
    return reinterpret_cast<std::uintptr_t>(at) < base + region.bytes ? &region : nullptr;
  }

  /// In the place of libcuda, for the life of this process.
  static FakeGpus& install(int devices);
};

namespace fake {
using detail::CudaDriver;

inline FakeGpus& gpus() {
  static FakeGpus* const all = new FakeGpus;
  return *all;
}
inline std::vector<int>& contexts() {
  thread_local std::vector<int> stack;
  return stack;
}
constexpr int in_contexts = 1 << 16;  // contexts of each kind
/// The number of a further context of a GPU, which is not its primary one.
constexpr int further_context(int device) {
  return device + in_contexts;
}
inline int current_context() {
  return contexts().empty() ? -1 : contexts().back();
}
inline int current() {
  return contexts().empty() ? -1 : contexts().back() % in_contexts;
}
inline CUcontext context_of(int device) {
  return reinterpret_cast<CUcontext>(std::uintptr_t(device + 1));
}
}  // namespace fake

}  // namespace ccl::test
