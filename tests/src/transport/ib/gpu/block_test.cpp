// Edges of a communicator share memory of a GPU for their slots, with emulated devices. Not run on
// hardware.
#include "transport/ib/gpu/block.hpp"

#include <ccl/transport/ib.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "support/driver.hpp"
#include "support/environment.hpp"
#include "support/fake_verbs.hpp"
#include "support/lent.hpp"
#include <sys/mman.h>

using namespace ccl;
using namespace ccl::test;
using detail::IbGpuBlock;
using detail::IbGpuPlace;
using detail::IbGpuSlots;

namespace {

constexpr unsigned local = IBV_ACCESS_LOCAL_WRITE;
constexpr unsigned remote = unsigned(IBV_ACCESS_LOCAL_WRITE) | unsigned(IBV_ACCESS_REMOTE_WRITE);

/// Memory of GPUs, by their bus ids.
struct Machine {
  std::map<std::int64_t, int> allocations;
  std::size_t bytes = 0;  // that are allocated
  int exports = 0;
} machine;

constexpr detail::GpuCalls calls{
    [](detail::GpuArena*, std::int64_t relay, std::size_t bytes) -> Result<detail::GpuPiece> {
      void* const at =
          ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (at == MAP_FAILED) return fail(Errc::out_of_memory, "no memory");
      ++machine.allocations[relay];
      machine.bytes += bytes;
      return detail::GpuPiece{static_cast<std::byte*>(at), bytes,
                              std::shared_ptr<void>{at, [bytes](void* p) {
                                                      ::munmap(p, bytes);
                                                      machine.bytes -= bytes;
                                                    }}};
    },
    [](detail::GpuArena*, const detail::GpuPiece&) -> Result<detail::Fd> {
      ++machine.exports;
      return detail::Fd{::memfd_create("gpu", MFD_CLOEXEC)};
    },
    [] { return false; }, [] { return false; }};

struct OnGpus {
  OnGpus() {
    machine = {};
    detail::use_gpu_calls(&calls);
  }
  ~OnGpus() { detail::use_gpu_calls(nullptr); }
};

using Slots = std::vector<std::unique_ptr<IbGpuSlots>>;

/// Slots of `count` edges of `bytes` bytes each.
Slots make(const IbGpuPlace& where, int count, std::size_t bytes, unsigned access) {
  const auto found = detail::find_ib_ports();
  REQUIRE(found);
  Slots all;
  for (int n = 0; n < count; ++n) {
    std::string why;
    auto one = IbGpuSlots::make(where, bytes, found->ports, access, why);
    INFO(why);
    REQUIRE((one && *one));
    all.push_back(std::move(*one));
  }
  return all;
}

/// No two edges have a byte in common.
void check_apart(const Slots& all, std::size_t bytes) {
  std::vector<std::byte*> begins;
  for (const auto& one : all) begins.push_back(one->base());
  std::sort(begins.begin(), begins.end());
  for (std::size_t n = 1; n < begins.size(); ++n) {
    CHECK(begins[n] - begins[n - 1] >= std::ptrdiff_t(bytes));
  }
}
}  // namespace

TEST_CASE("edges of a communicator share a relay's memory and its registration") {
  FakeVerbs devices{2};
  const OnGpus gpus;
  const int sharers = 0, others = 0;
  constexpr std::int64_t relay = 0x17000;
  {
    const Slots sends = make({&sharers, nullptr, relay}, 60, 40'000, local);
    CHECK(machine.allocations[relay] == 2);  // 51 places of 40 KiB in each
    CHECK(machine.exports == 2);
    CHECK(devices.dma_bufs_made == 4);  // by each device
    check_apart(sends, 40'000);
    // Another communicator and another GPU have blocks of their own.
    const Slots other = make({&others, nullptr, relay}, 1, 40'000, local);
    const Slots own = make({&sharers, nullptr, -1}, 1, 40'000, local);
    CHECK(machine.allocations[relay] == 3);
    CHECK(machine.allocations[-1] == 1);
  }
  CHECK(machine.bytes == 0);
  CHECK(devices.held() == 0);
}

TEST_CASE("a peer reaches the place of its edge only, in a block that edges share") {
  FakeVerbs devices{1};
  const OnGpus gpus;
  const int sharers = 0;
  const auto found = detail::find_ib_ports();
  REQUIRE(found);
  const Slots receives = make({&sharers}, 10, 100'000, remote);
  CHECK(machine.allocations[-1] == 1);
  check_apart(receives, 100'000);
  std::vector<std::uint32_t> keys;
  for (const auto& one : receives) {
    const auto memory = one->with(found->ports[0].device);
    REQUIRE(memory);
    CHECK(devices.registered_bytes((*memory)->remote_key()) == 128 << 10);
    keys.push_back((*memory)->remote_key());
  }
  std::sort(keys.begin(), keys.end());
  CHECK(std::adjacent_find(keys.begin(), keys.end()) == keys.end());
}

TEST_CASE("slots larger than a block have one, and what is left of it serves others") {
  FakeVerbs devices{1};
  const OnGpus gpus;
  const int sharers = 0;
  const Slots large = make({&sharers}, 2, 3 << 20, local);
  CHECK(machine.allocations[-1] == 2);
  CHECK(machine.bytes == 2 * (3 << 20));
  const Slots half = make({&sharers}, 1, 1 << 20, local);
  CHECK(machine.allocations[-1] == 3);
  const Slots rest = make({&sharers}, 16, 64 << 10, local);
  CHECK(machine.allocations[-1] == 3);
}

TEST_CASE("a place is not used twice, and a block ends with its last edge") {
  FakeVerbs devices{1};
  const OnGpus gpus;
  const int sharers = 0;
  Slots all = make({&sharers}, 2, 64 << 10, local);
  std::byte* const first = all[0]->base();
  all.erase(all.begin());
  Slots later = make({&sharers}, 30, 64 << 10, local);
  for (const auto& one : later) CHECK(one->base() != first);
  CHECK(machine.allocations[-1] == 1);
  later.clear();
  CHECK(machine.bytes > 0);
  all.clear();
  CHECK(machine.bytes == 0);
  CHECK(devices.held() == 0);
}

TEST_CASE("a device that a shared block does not reach gets a new one") {
  FakeVerbs devices{2};
  const OnGpus gpus;
  const int sharers = 0;
  const auto found = detail::find_ib_ports();
  REQUIRE(found);
  const auto make_for = [&](int port, std::string& why) {
    return *IbGpuSlots::make({&sharers}, 4096, {found->ports[std::size_t(port)]}, local, why);
  };
  std::string why;
  const auto first = make_for(0, why);
  REQUIRE(first);
  devices.faults.refuse_dma_buf = EOPNOTSUPP;
  devices.faults.refuse_dma_buf_of = 1;
  CHECK(make_for(1, why) == nullptr);
  CHECK(why.find("fake_1 cannot register a DMA-BUF") != std::string::npos);
  // The first device goes on with its block.
  CHECK(make_for(0, why) != nullptr);
  CHECK(machine.allocations[-1] == 2);
}
