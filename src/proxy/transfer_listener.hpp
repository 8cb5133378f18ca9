#pragma once

#include <ccl/types/word.hpp>

#include <cstdint>
#include <memory>

#include "proxy/transfer_log.hpp"

namespace ccl::detail {

/// Follows the steps of one line while its task moves them. One thread at a time, but for the
/// events of a network plug-in.
class LineListener {
 public:
  virtual ~LineListener() = default;
  /// The lanes have posted the steps from `from` to before `until`. Senders only.
  virtual void posted(Word from, Word until) noexcept = 0;
  /// The first bytes of a step have moved, of `bytes` in all; 0: not known yet.
  virtual void begun(Word step, Word bytes) noexcept = 0;
  /// The last bytes of a step have moved.
  virtual void ended(Word step, Word bytes) noexcept = 0;
  /// The task ends. The counts of the wire are not read any more.
  virtual void closed() noexcept {}

  /// A network plug-in begins an event of its own for a step. Returns the number of the event, or 0
  /// if nobody wants it. Any thread; so are the next two.
  virtual Word begin_of_plug_in(Word /*step*/, std::int64_t /*kind*/, void* /*data*/) noexcept {
    return 0;
  }
  virtual void update_of_plug_in(Word /*event*/, void* /*data*/) noexcept {}
  virtual void end_of_plug_in(Word /*event*/) noexcept {}
};

/// Counts of a wire that its lanes write: see `Wire`. Null: there is none.
struct LineCounts {
  const Word* posted = nullptr;
  const Word* drained = nullptr;
};

/// Turns of an engine's thread, beside moving steps.
enum class ProxyTurn {
  idle,    // tasks have moved nothing for some rounds
  active,  // they move again
  sleeps,
  woken,
  adds,  // a new task
  added
};

/// Follows the steps of all lines of a rank, and the thread that moves them.
class TransferListener {
 public:
  virtual ~TransferListener() = default;
  /// Returns the listener of a new line; null: nobody follows it. Any thread. The listener may read
  /// `counts` until it is `closed`.
  virtual std::shared_ptr<LineListener> line(const TransferLine& of, Index slot_bytes,
                                             const LineCounts& counts) = 0;
  /// The thread of an engine does something else than before. `tasks`: those that were added. A
  /// sleep ends with `woken`. One thread at a time, but for tasks.
  virtual void turned(ProxyTurn /*to*/, int /*tasks*/) noexcept {}
};

}  // namespace ccl::detail
