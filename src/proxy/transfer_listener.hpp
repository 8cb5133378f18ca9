#pragma once

#include <ccl/types/word.hpp>

#include <memory>

#include "proxy/transfer_log.hpp"

namespace ccl::detail {

/// Follows the steps of one line while its task moves them. One thread at a time.
class LineListener {
 public:
  virtual ~LineListener() = default;
  /// The lanes have posted the steps from `from` to before `until`. Senders only.
  virtual void posted(Word from, Word until) noexcept = 0;
  /// The first bytes of a step have moved, of `bytes` in all; 0: not known yet.
  virtual void begun(Word step, Word bytes) noexcept = 0;
  /// The last bytes of a step have moved.
  virtual void ended(Word step, Word bytes) noexcept = 0;
};

/// Follows the steps of all lines of a rank.
class TransferListener {
 public:
  virtual ~TransferListener() = default;
  /// Returns the listener of a new line; null: nobody follows it. Any thread.
  virtual std::shared_ptr<LineListener> line(const TransferLine& of, Index slot_bytes) = 0;
};

}  // namespace ccl::detail
