#include "connect/registry/buffer_registry.hpp"

#include <ccl/comm/shared_memory.hpp>
#include <ccl/comm/window.hpp>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "comm/edges/memory_rest.hpp"
#include "comm/edges/window_state.hpp"
#include "support/catch.hpp"
#include "support/environment.hpp"
#include "support/gpu_ranks.hpp"
#include "support/pointer_attributes.hpp"

using namespace ccl;
using namespace ccl::test;
using detail::BufferRegistry;
using detail::RemoteBuffer;

namespace {

constexpr Index bytes = 4 << 20;
/// A buffer of device 0 that is not there, by its number; 0: freed.
std::atomic<unsigned long long> number{0};
const auto* const buffer = reinterpret_cast<const char*>(std::uintptr_t{1} << 40);
/// Further buffers behind it, which live; and how often the driver was asked.
std::atomic<int> further{0}, asked{0};
std::atomic<bool> exports{true};  // or else the driver gives no handles
/// The buffer is of cuMem handles, in two mappings of half of it each.
std::atomic<bool> has_handles{false};
std::atomic<int> reached_by{-1};  // the GPU, beside device 0, that may use the mappings

CUresult attributes(unsigned count, CUpointer_attribute* what, void** to, CUdeviceptr at) {
  const auto base = reinterpret_cast<CUdeviceptr>(buffer);
  ++asked;
  if (at >= base + bytes && at < base + CUdeviceptr(bytes) * CUdeviceptr(1 + further)) {
    const CUdeviceptr own = at - (at - base) % bytes;
    return answer_attributes({own, bytes, CU_MEMORYTYPE_DEVICE, own, 0, true, own}, count, what,
                             to);
  }
  if (number == 0 || at < base || at >= base + bytes) return CUDA_ERROR_INVALID_VALUE;
  if (has_handles) {
    const CUdeviceptr mapping = at - (at - base) % (bytes / 2);
    const unsigned long long id = 2 * number + (mapping == base ? 0 : 1);
    return answer_attributes(
        {base, bytes, CU_MEMORYTYPE_DEVICE, base, 0, false, id, mapping, bytes / 2}, count, what,
        to);
  }
  return answer_attributes({base, bytes, CU_MEMORYTYPE_DEVICE, base, 0, true, number}, count, what,
                           to);
}

/// The registries of two ranks, each on a GPU.
struct TwoRegistries {
  std::vector<Result<Communicator>> comms;
  std::vector<std::shared_ptr<BufferRegistry>> of{2};

  TwoRegistries() {
    (void)gpus(2);
    auto cuda = fake::driver();
    cuda.pointer_get_attributes = attributes;
    cuda.ipc_get_mem_handle = [](CUipcMemHandle*, CUdeviceptr) {
      return exports ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
    };
    cuda.mem_get_access = [](unsigned long long* access, const CUmemLocation* of, CUdeviceptr at) {
      const auto base = reinterpret_cast<CUdeviceptr>(buffer);
      if (at < base || at >= base + bytes) return fake::driver().mem_get_access(access, of, at);
      *access = of->id == reached_by ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : 0;
      return CUDA_SUCCESS;
    };
    detail::use_cuda_driver(cuda, 2);
    number = 1;
    comms = create({0, 1});
    std::vector<std::thread> threads;
    for (std::size_t r = 0; r < 2; ++r) {
      REQUIRE(comms[r]);
      threads.emplace_back([this, r] {
        auto made = BufferRegistry::open(*detail::Access::state(*comms[r]), 0, "buffers");
        if (made) of[r] = *std::move(made);
      });
    }
    for (auto& thread : threads) thread.join();
    REQUIRE((of[0] && of[1]));
  }
  /// What rank 1 has in its table for a buffer of rank 0.
  Word entry(Word where) const {
    const Word* const at = of[1]->table() + RemoteBuffer::slot(where);
    return std::atomic_ref<Word>{*const_cast<Word*>(at)}.load();
  }
};

/// Sets a value until the end of the scope.
struct Restored {
  std::atomic<bool>& value;
  Restored(std::atomic<bool>& of, bool now) : value{of} { value = now; }
  ~Restored() { value = false; }
};
/// True if `done()` is soon.
template <class F>
bool soon(F&& done) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + std::chrono::seconds{20};
  while (!done() && Clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
  return done();
}

}  // namespace

TEST_CASE("peers unmap a buffer that was freed, without another call") {
  TwoRegistries ranks;
  const Word where = ranks.of[0]->where(buffer + 256, bytes - 256);
  REQUIRE(where != 0);
  REQUIRE(soon([&] { return RemoteBuffer::leads(ranks.entry(where), where); }));
  CHECK(RemoteBuffer::at(ranks.entry(where), where) == buffer + 256);
  number = 0;
  CHECK(soon([&] { return ranks.entry(where) == 0; }));

  number = 2;  // another buffer at the same address
  const Word next = ranks.of[0]->where(buffer, bytes);
  REQUIRE(next != 0);
  CHECK(next >> RemoteBuffer::id_shift != where >> RemoteBuffer::id_shift);
  CHECK(soon([&] { return RemoteBuffer::leads(ranks.entry(next), next); }));
  number = 3;  // freed, and allocated again at once
  CHECK(soon([&] { return !RemoteBuffer::leads(ranks.entry(next), next); }));
}

TEST_CASE("buffers that are freed while memory rests are unmapped after it has come back") {
  TwoRegistries ranks;
  const Word where = ranks.of[0]->where(buffer, bytes);
  REQUIRE(where != 0);
  REQUIRE(soon([&] { return RemoteBuffer::leads(ranks.entry(where), where); }));
  const auto on_both = [&](Result<void> (*step)(detail::CommState&, const char*)) {
    std::vector<std::thread> threads;
    std::atomic<int> done{0};
    for (const auto& comm : ranks.comms) {
      threads.emplace_back(
          [&] { done += step(*detail::Access::state(*comm), "the test").has_value(); });
    }
    for (auto& thread : threads) thread.join();
    return done == 2;
  };
  REQUIRE(on_both(&detail::rest_memory));
  number = 0;
  std::this_thread::sleep_for(std::chrono::milliseconds{1000});  // the table is not mapped
  REQUIRE(on_both(&detail::wake_memory));
  CHECK(soon([&] { return ranks.entry(where) == 0; }));
}

TEST_CASE("more live buffers than slots cost no ids and few questions, and make room when freed") {
  TwoRegistries ranks;
  further = 10'000;
  int mapped = 0;
  for (int n = 1; n <= RemoteBuffer::slots; ++n) {
    mapped += ranks.of[0]->where(buffer + n * bytes, bytes) != 0;
  }
  CHECK(mapped == RemoteBuffer::slots);
  const int before = asked;
  for (int n = RemoteBuffer::slots + 1; n <= 6000; ++n) {
    CHECK(ranks.of[0]->where(buffer + n * bytes, bytes) == 0);
  }
  CHECK(asked - before < 100'000);  // and not 256 for each
  further = 0;                      // all are freed
  Word where = 0;
  CHECK(soon([&] { return (where = ranks.of[0]->where(buffer, bytes)) != 0; }));
  CHECK(soon([&] { return RemoteBuffer::leads(ranks.entry(where), where); }));
}

TEST_CASE("buffers that the driver does not export cost no ids") {
  TwoRegistries ranks;
  exports = false;
  for (int n = 0; n < 600; ++n) CHECK(ranks.of[0]->where(buffer, bytes) == 0);
  exports = true;
  const Word where = ranks.of[0]->where(buffer, bytes);
  CHECK(where != 0);
  CHECK(where >> RemoteBuffer::id_shift < 2 * RemoteBuffer::slots);  // 600 others have had none
}

TEST_CASE("memory of cuMem handles is reached by ranks of its process that have access") {
  const Restored handles{has_handles, true};
  const Index half = bytes / 2;
  for (const int reaches : {1, 0}) {
    reached_by = reaches;
    TwoRegistries ranks;
    const Word second = ranks.of[0]->where(buffer + half + 256, half - 256);
    const Word both = ranks.of[0]->where(buffer + 256, bytes - 256);
    REQUIRE(second != 0);
    REQUIRE(both != 0);
    CHECK(both >> RemoteBuffer::id_shift != second >> RemoteBuffer::id_shift);
    const Word first = ranks.of[0]->where(buffer, half);  // a part of what is open
    CHECK(first >> RemoteBuffer::id_shift == both >> RemoteBuffer::id_shift);
    if (reaches == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds{300});
      CHECK(ranks.entry(both) == 0);
      continue;
    }
    REQUIRE(soon([&] { return RemoteBuffer::leads(ranks.entry(both), both); }));
    REQUIRE(soon([&] { return RemoteBuffer::leads(ranks.entry(second), second); }));
    CHECK(RemoteBuffer::at(ranks.entry(both), both) == buffer + 256);
    CHECK(RemoteBuffer::at(ranks.entry(second), second) == buffer + half + 256);
    number = 0;  // freed
    CHECK(soon([&] { return ranks.entry(both) == 0 && ranks.entry(second) == 0; }));
  }
}

TEST_CASE("a setting keeps buffers unmapped") {
  const Environment off{"CCL_DIRECT_MAP", "0"};
  TwoRegistries ranks;
  CHECK(ranks.of[0]->where(buffer, bytes) == 0);
}

TEST_CASE("a window that a rank drops stays mapped until kernels no longer get its address") {
  TwoRegistries ranks;
  std::vector<Result<SharedMemory>> memory(2, fail(Errc::internal, "not made"));
  std::vector<Result<Window>> windows(2, fail(Errc::internal, "not made"));
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] {
      memory[r] = SharedMemory::allocate(*ranks.comms[r], bytes);
      if (memory[r]) windows[r] = Window::create(*ranks.comms[r], *memory[r]);
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& window : windows) {
    INFO((window ? std::string{} : window.error().message()));
    REQUIRE(window);
  }
  const Word where =
      ranks.of[0]->where(reinterpret_cast<const char*>(memory[0]->data()) + 256, bytes - 256);
  REQUIRE(where != 0);
  REQUIRE(soon([&] { return RemoteBuffer::leads(ranks.entry(where), where); }));
  CHECK(RemoteBuffer::at(ranks.entry(where), where) ==
        reinterpret_cast<const char*>(windows[1]->at(0)) + 256);
  auto& state = *detail::Access::state(*ranks.comms[1]);
  const Word number = detail::window_around(state, memory[1]->data(), bytes).number;
  const std::weak_ptr<void> mapping = detail::window_mapping(state, number, 0).holds;
  windows[1] = fail(Errc::internal, "dropped");
  bool early = false;
  CHECK(soon([&] {
    const bool unmapped = mapping.expired();
    const bool leads = ranks.entry(where) != 0;
    early |= unmapped && leads;
    return unmapped && !leads;
  }));
  CHECK(!early);
}
