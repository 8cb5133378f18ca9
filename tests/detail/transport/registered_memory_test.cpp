#include "transport/registered_memory.hpp"

#include <ccl/detail/transport/registered_memory.hpp>
#include <ccl/detail/transport/zero_copy.hpp>

#include <memory>
#include <vector>

#include "support/catch.hpp"
#include "support/replaced_new.hpp"

namespace ccl::test {
using detail::RegisteredMemory;
using detail::ZeroCopy;

namespace {
std::shared_ptr<RegisteredMemory> enter(std::vector<std::byte>& memory) {
  auto entry = std::make_shared<RegisteredMemory>(memory.data(), Index(memory.size()));
  detail::add_registered(entry);
  return entry;
}
}  // namespace

// Lanes look for their buffers, and an exception in a lane ends the process.
TEST_CASE("a process without memory and without registrations finds nothing, and does not throw") {
  std::byte memory[8];
  allocation_hook = [] { return false; };
  const auto found = detail::find_registered(memory, 1);
  allocation_hook = nullptr;
  CHECK(found == nullptr);
}

TEST_CASE("memory is found by any of its parts, until it is taken out or a device gives it up") {
  std::vector<std::byte> memory(100);
  CHECK(detail::find_registered(memory.data(), 1) == nullptr);
  const auto entry = enter(memory);
  CHECK(detail::find_registered(memory.data() + 10, 90) == entry);
  CHECK(detail::find_registered(memory.data() + 10, 91) == nullptr);
  CHECK(entry->give_up());
  CHECK(!entry->give_up());
  CHECK(detail::find_registered(memory.data() + 10, 90) == nullptr);
  detail::remove_registered(*entry);
  const auto again = enter(memory);
  CHECK(detail::find_registered(memory.data(), 100) == again);
  detail::remove_registered(*again);
  CHECK(detail::find_registered(memory.data(), 100) == nullptr);
}

TEST_CASE("each device registers memory once, and again only if it could not") {
  RegisteredMemory memory{nullptr, 0};
  int made = 0;
  const char devices[2] = {};
  const auto ask = [&](const char& device, bool works) {
    return memory.with<int>(&device, [&] {
      ++made;
      return works ? std::make_shared<int>(made) : nullptr;
    });
  };
  CHECK(ask(devices[0], false) == nullptr);
  const auto first = ask(devices[0], true);
  CHECK(*first == 2);
  CHECK(ask(devices[0], false) == first);
  CHECK(*ask(devices[1], true) == 3);
  CHECK(made == 3);
}

TEST_CASE("a NIC is lent registered memory only, which the step keeps until it is given back") {
  ZeroCopy past{4, ZeroCopy::Memory::registered};
  std::vector<std::byte> memory(100);
  CHECK(past.lands());
  CHECK(!past.lend(0, memory.data(), 100));
  CHECK(past.lent() == 0);
  auto entry = enter(memory);
  const std::weak_ptr<RegisteredMemory> kept = entry;
  CHECK(past.lend(0, memory.data(), 100));
  CHECK(past.lent() == 1);
  CHECK(past.lent_memory(0) == entry);
  detail::remove_registered(*entry);
  entry.reset();
  CHECK(!kept.expired());
  past.give_back(0);
  CHECK(kept.expired());
  entry = enter(memory);
  past.close();
  CHECK(!past.lend(1, memory.data(), 100));  // nobody would give it back
  detail::remove_registered(*entry);
}

TEST_CASE("the place of a step is that of its step only, and does not keep the memory") {
  ZeroCopy past{4, ZeroCopy::Memory::registered};
  std::vector<std::byte> memory(100);
  past.land(4, memory.data(), 100);
  CHECK(past.landing(4).memory == nullptr);  // not registered
  auto entry = enter(memory);
  past.land(4, memory.data(), 100);  // each step looks once
  CHECK(past.landing(4).memory == nullptr);
  past.land(5, memory.data() + 1, 99);
  past.land(5, memory.data(), 100);  // it has a place
  CHECK(past.landing(1).memory == nullptr);
  CHECK(past.landing(9).memory == nullptr);
  const ZeroCopy::Landing there = past.landing(5);
  CHECK(there.memory == entry);
  CHECK(there.at == memory.data() + 1);
  CHECK(there.bytes == 99);
  CHECK(!past.offered(5, 99));
  past.offer(5, memory.data(), 100);
  CHECK(!past.offered(5, 100));
  detail::remove_registered(*entry);
  entry.reset();
  CHECK(past.landing(5).memory != nullptr);  // `there`
}

TEST_CASE("lanes that revoke first end the peer's writes") {
  ZeroCopy past{4, ZeroCopy::Memory::registered};
  struct Nics final : ZeroCopy::Accesses {
    explicit Nics(const ZeroCopy& zero_copy) : of{zero_copy} {}
    void end() override { revoked = of.revoked(); }
    const ZeroCopy& of;
    bool revoked = false;
  } nics{past};
  past.set_accesses(nics);
  past.revoke();
  CHECK(nics.revoked);
}

TEST_CASE("registrations of connections that are closed do not accumulate") {
  struct OfConnection {
    std::weak_ptr<int> connection;
    bool ended() const { return connection.expired(); }
  };
  constexpr int connections = 10;
  RegisteredMemory memory{nullptr, 0};
  std::vector<std::weak_ptr<OfConnection>> made;
  const char devices[connections + 1] = {};
  const auto register_for = [&](const char& device, const std::shared_ptr<int>& connection) {
    made.push_back(memory.with<OfConnection>(
        &device, [&] { return std::make_shared<OfConnection>(OfConnection{connection}); }));
  };
  const auto stays = std::make_shared<int>(0);
  register_for(devices[connections], stays);
  for (int n = 0; n < connections; ++n) register_for(devices[n], std::make_shared<int>(n));
  int kept = 0;
  for (const auto& one : made) kept += int(!one.expired());
  CHECK(kept == 2);  // the one whose connection is open, and the latest
  CHECK_FALSE(made.front().expired());
}

}  // namespace ccl::test
