#pragma once

#include <ccl/types/word.hpp>

#include <array>
#include <cstddef>
#include <tuple>
#include <utility>

namespace ccl::detail {

/// Part of a window that a rank of this process is creating, entered while the object lives. Ranks
/// of the process check by it what another one claims of its part.
class LocalPart {
 public:
  using Key = std::tuple<std::array<std::byte, 16>, int, int>;  // secret, number, rank
  using Range = std::pair<Word, Index>;                         // address, bytes
  LocalPart(const Key& key, const Range& range);
  ~LocalPart();
  LocalPart(const LocalPart&) = delete;
  LocalPart& operator=(const LocalPart&) = delete;
  static bool contains(const Key& key, const Range& range);

 private:
  const Key key_;
};

}  // namespace ccl::detail
