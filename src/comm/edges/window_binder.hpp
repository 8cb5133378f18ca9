#pragma once

#include <ccl/types/result.hpp>
#include <ccl/types/word.hpp>

namespace ccl::detail {

/// Lets multicast reach the memory of windows. That of src/connect does it, and exists once a
/// composition over multicast memory does.
class WindowBinder {
 public:
  WindowBinder() = default;
  virtual ~WindowBinder() = default;
  WindowBinder(const WindowBinder&) = delete;
  WindowBinder& operator=(const WindowBinder&) = delete;

  /// Binds the open windows that it has not tried yet. Fails if the communicator does: a window
  /// that cannot be bound stays as it is. Collective.
  virtual Result<void> bind_open() = 0;
  /// Forgets a window, which all ranks have closed or will close now.
  virtual void forget(Word number) = 0;
};

}  // namespace ccl::detail
