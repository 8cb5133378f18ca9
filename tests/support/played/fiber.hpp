#pragma once

#include <cstddef>

namespace ccl::test::played {

/// Function with a stack of its own. The worker thread that runs it switches to it and back,
/// without a system call. A fiber never changes its thread.
class Fiber {
 public:
  using Body = void (*)(void* of);

  /// The fiber calls `body(of)` at the first `resume`. `body` must not return; it leaves for good.
  Fiber(Body body, void* of);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Runs the fiber until it leaves. Called by its worker.
  void resume();
  /// Returns to the worker until the next `resume`. Called on the fiber.
  void leave();
  /// As `leave`, without a return. The fiber may then be destroyed.
  void leave_for_good();

 private:
  static void enter(Fiber& fiber);
  friend void fiber_entry(Fiber* fiber);

  Body body_;
  void* of_;
  std::byte* stack_;
  void* here_ = nullptr;  // stack pointers of the sides that do not run
  void* worker_ = nullptr;
  // Of the sanitizers, which follow the switches.
  void* sanitizer_ = nullptr;
  void* worker_sanitizer_ = nullptr;
  const void* worker_stack_ = nullptr;
  std::size_t worker_stack_bytes_ = 0;
};

}  // namespace ccl::test::played
