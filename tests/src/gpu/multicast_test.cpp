// Multicast objects over a driver that is a fake. The real one is never asked: see `setting`.
#include "gpu/multicast.hpp"

#include <map>
#include <string>

#include "support/catch.hpp"
#include "support/environment.hpp"
#include "support/fake_gpus.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
/// What was called, in order, and the call that fails.
std::string called, failing;

CUresult note(const char* call) {
  called += std::string(called.empty() ? "" : " ") + call;
  return failing == call ? CUDA_ERROR_SYSTEM_NOT_READY : CUDA_SUCCESS;
}
/// An object is a file, as other memory of the fake GPUs.
detail::MulticastDriver fake_multicast() {
  detail::MulticastDriver calls;
  calls.create = [](CUmemGenericAllocationHandle* handle, const CUmulticastObjectProp* how) {
    const int fd = ::memfd_create("fake-multicast", MFD_CLOEXEC);
    if (fd < 0 || ::ftruncate(fd, off_t(how->size)) != 0) return CUDA_ERROR_OUT_OF_MEMORY;
    *handle = reinterpret_cast<std::uintptr_t>(new fake::Handle{fd, 0});
    const CUresult result = note("create");
    return result;
  };
  calls.add_device = [](CUmemGenericAllocationHandle, CUdevice) { return note("add"); };
  calls.bind_mem = [](CUmemGenericAllocationHandle, std::size_t, CUmemGenericAllocationHandle,
                      std::size_t, std::size_t, unsigned long long) { return note("bind"); };
  calls.unbind = [](CUmemGenericAllocationHandle, CUdevice, std::size_t, std::size_t) {
    return note("unbind");
  };
  calls.get_granularity = [](std::size_t* bytes, const CUmulticastObjectProp*,
                             CUmulticastGranularity_flags) {
    *bytes = 2 << 20;
    return note("granularity");
  };
  return calls;
}
std::shared_ptr<detail::Gpu> gpu_of(int device) {
  auto gpu = detail::Gpu::open(device);
  if (!gpu) FAIL(gpu.error().what);
  return *gpu;
}
void install() {
  FakeGpus::install(2);
  detail::use_multicast_driver(fake_multicast());
  called.clear();
  failing.clear();
}
}  // namespace

TEST_CASE("without CCL_NVLS_ENABLE=1, no call of multicast is made") {
  install();
  const char* const name = GENERATE("CCL_OTHER", "NCCL_NVLS_ENABLE", "CCL_NVLS_ENABLE");
  const Environment setting{name, std::string(name) == "CCL_NVLS_ENABLE" ? "0" : "1"};
  const auto block = detail::MulticastBlock::create(gpu_of(0), 1 << 20, 2);
  REQUIRE_FALSE(block);
  CHECK(block.error().code == Errc::not_supported);
  CHECK(block.error().what.find("CCL_NVLS_ENABLE=1") != std::string::npos);
  const auto opened = detail::MulticastBlock::open(gpu_of(1), 1 << 20, detail::Fd{});
  REQUIRE_FALSE(opened);
  CHECK(opened.error().code == Errc::not_supported);
  CHECK(called.empty());
}

TEST_CASE("ranks add their GPUs, then bind, and release in turn") {
  install();
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
    CHECK(called == "granularity create add add");
    for (auto* block : {first->get(), second->get()}) REQUIRE(block->bind());
    // Both map the one object, and memory of their own.
    *reinterpret_cast<char*>((*first)->all()) = 7;
    CHECK(*reinterpret_cast<char*>((*second)->all()) == 7);
    *(*first)->own() = std::byte{1};
    CHECK(*(*second)->own() == std::byte{0});
  }
  CHECK(called == "granularity create add add bind bind unbind unbind");
}

TEST_CASE("a call of multicast that fails is named, and leaves nothing bound") {
  install();
  const Environment setting{"CCL_NVLS_ENABLE", "1"};
  const std::map<std::string, std::string> texts{{"granularity", "granularity of multicast"},
                                                 {"create", "multicast object of 2 GPUs"},
                                                 {"add", "add device 0"},
                                                 {"bind", "Fabric Manager"}};
  for (const auto& [call, text] : texts) {
    INFO(call);
    called.clear();
    failing = call;
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
    CHECK(called.find("unbind") == std::string::npos);
  }
}
