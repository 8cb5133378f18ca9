#include "comm/edges/local_part.hpp"

#include <map>
#include <mutex>

#include "base/fork_mutex.hpp"
#include "base/made_once.hpp"

namespace ccl::detail {
namespace {

struct Table {
  std::map<LocalPart::Key, LocalPart::Range> parts;
  ForkMutex mutex{[this] { renew(parts); }};
};
Table& table() {
  static constinit MadeOnce<Table> one;
  return one.get();
}

}  // namespace

LocalPart::LocalPart(const Key& key, const Range& range) : key_{key} {
  const std::lock_guard lock{table().mutex};
  table().parts[key_] = range;
}

LocalPart::~LocalPart() {
  const std::lock_guard lock{table().mutex};
  table().parts.erase(key_);
}

bool LocalPart::contains(const Key& key, const Range& range) {
  const std::lock_guard lock{table().mutex};
  const auto found = table().parts.find(key);
  return found != table().parts.end() && found->second == range;
}

}  // namespace ccl::detail
