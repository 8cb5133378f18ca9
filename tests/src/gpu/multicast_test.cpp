// Multicast objects over a driver that is a fake. The real one is never asked: see `setting`.
#include "gpu/multicast.hpp"

#include <map>
#include <string>

#include "support/catch.hpp"
#include "support/environment.hpp"
#include "support/fake_multicast.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
std::shared_ptr<detail::Gpu> gpu_of(int device) {
  auto gpu = detail::Gpu::open(device);
  if (!gpu) FAIL(gpu.error().what);
  return *gpu;
}
FakeMulticast& install() {
  FakeGpus::install(2);
  return FakeMulticast::install();
}
}  // namespace

TEST_CASE("without CCL_NVLS_ENABLE=1, no call of multicast is made") {
  FakeMulticast& fake = install();
  const char* const name = GENERATE("CCL_OTHER", "NCCL_NVLS_ENABLE", "CCL_NVLS_ENABLE");
  const Environment setting{name, std::string(name) == "CCL_NVLS_ENABLE" ? "0" : "1"};
  const auto block = detail::MulticastBlock::create(gpu_of(0), 1 << 20, 2);
  REQUIRE_FALSE(block);
  CHECK(block.error().code == Errc::not_supported);
  CHECK(block.error().what.find("CCL_NVLS_ENABLE=1") != std::string::npos);
  const auto opened = detail::MulticastBlock::open(gpu_of(1), 1 << 20, detail::Fd{});
  REQUIRE_FALSE(opened);
  CHECK(opened.error().code == Errc::not_supported);
  CHECK(fake.so_far().empty());
}

TEST_CASE("ranks add their GPUs, then bind, and release in turn") {
  FakeMulticast& fake = install();
  const Environment setting{"CCL_NVLS_ENABLE", "1"};
  {
    auto first = detail::MulticastBlock::create(gpu_of(0), 5, 2);
    if (!first) FAIL(first.error().what);
    CHECK((*first)->bytes() == 2 << 20);
    auto shared = (*first)->share();
    REQUIRE(shared);
    auto second = detail::MulticastBlock::open(gpu_of(1), (*first)->bytes(), *shared);
    if (!second) FAIL(second.error().what);
    for (auto* block : {first->get(), second->get()}) {
      CHECK(block->all() == 0);
      REQUIRE(block->add());
    }
    CHECK(fake.so_far() == "granularity create add add");
    CHECK(fake.early_binds == 0);
    for (auto* block : {first->get(), second->get()}) REQUIRE(block->bind());
    // Both map the one object, and memory of their own.
    *reinterpret_cast<char*>((*first)->all()) = 7;
    CHECK(*reinterpret_cast<char*>((*second)->all()) == 7);
    *(*first)->own() = std::byte{1};
    CHECK(*(*second)->own() == std::byte{0});
  }
  CHECK(fake.so_far() == "granularity create add add bind bind unbind unbind");
}

TEST_CASE("a call of multicast that fails is named, and leaves nothing bound") {
  const Environment setting{"CCL_NVLS_ENABLE", "1"};
  const std::map<std::string, std::string> texts{{"granularity", "granularity of multicast"},
                                                 {"create", "multicast object of 2 GPUs"},
                                                 {"add", "add device 0"},
                                                 {"bind", "Fabric Manager"}};
  for (const auto& [call, text] : texts) {
    INFO(call);
    FakeMulticast& fake = install();
    fake.failing = call;
    std::string what;
    {
      auto block = detail::MulticastBlock::create(gpu_of(0), 1 << 20, 2);
      if (!block) {
        what = block.error().what;
      } else if (const auto added = (*block)->add(); !added) {
        what = added.error().what;
      } else if (const auto bound = (*block)->bind(); !bound) {
        what = bound.error().what;
      }
    }
    CHECK(what.find(text) != std::string::npos);
    CHECK(fake.times("unbind") == 0);
  }
}
