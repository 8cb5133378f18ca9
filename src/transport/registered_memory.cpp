#include "transport/registered_memory.hpp"

#include "base/fork_mutex.hpp"
#include "base/made_once.hpp"

namespace ccl::detail {
namespace {

struct Table {
  std::atomic<std::size_t> count{0};  // so that a process without registrations takes no lock
  std::vector<std::shared_ptr<RegisteredMemory>> all;
  ForkMutex mutex{[this] {
    renew(all);
    count = 0;
  }};
};
constinit MadeOnce<Table> table;

}  // namespace

std::shared_ptr<RegisteredMemory> find_registered(const void* at, Index bytes) noexcept {
  Table* const known = table.found();
  if (known == nullptr || known->count.load(std::memory_order_relaxed) == 0) return nullptr;
  const std::lock_guard lock{known->mutex};
  for (const auto& memory : known->all) {
    if (memory->contains(at, bytes) && memory->fit()) return memory;
  }
  return nullptr;
}

void add_registered(std::shared_ptr<RegisteredMemory> memory) {
  Table& known = table.get();
  const std::lock_guard lock{known.mutex};
  known.all.push_back(std::move(memory));
  known.count = known.all.size();
}

void remove_registered(const RegisteredMemory& memory) {
  Table& known = table.get();
  std::shared_ptr<RegisteredMemory> last;  // its registrations end outside of the lock
  const std::lock_guard lock{known.mutex};
  for (auto& each : known.all) {
    if (each.get() != &memory) continue;
    last = std::move(each);
    each = std::move(known.all.back());
    known.all.pop_back();
    break;
  }
  known.count = known.all.size();
}

}  // namespace ccl::detail
