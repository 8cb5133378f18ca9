#pragma once

#include <ccl/detail/lanes/host_memory.hpp>

namespace ccl::detail {

class ProxyEngine;

/// Scope in which the thread helps the engine whenever it waits (`HostMemory::pause`). The engine's
/// thread sends what the helper leaves. With `looks_elsewhere` the helper also waits for events
/// outside the engine, so it must not block on the engine's tasks.
class ProxyHelper {
 public:
  explicit ProxyHelper(ProxyEngine& engine, bool looks_elsewhere = false);
  ~ProxyHelper();
  ProxyHelper(const ProxyHelper&) = delete;
  ProxyHelper& operator=(const ProxyHelper&) = delete;

 private:
  ProxyEngine& engine_;
  IdleHook before_;
};

}  // namespace ccl::detail
