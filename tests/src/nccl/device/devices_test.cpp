// What the library leaves in the CUDA runtime's last error.
#include "nccl/device/devices.hpp"

#include "support/catch.hpp"
#include "support/fake_cuda_runtime.hpp"

using namespace ccl;
using namespace ccl::detail::nccl;
using ccl::test::fake_runtime::fails;
using ccl::test::fake_runtime::last;

TEST_CASE("a failed call of the CUDA runtime is reported and leaves no error behind") {
  for (const cudaError_t code : {cudaErrorInvalidDevice, cudaErrorMemoryAllocation}) {
    fails = code;
    CHECK(current_device() == -1);
    CHECK(last == cudaSuccess);
    CHECK(!set_device(7));
    CHECK(last == cudaSuccess);
    CHECK(!allocate(1));
    CHECK(last == cudaSuccess);
    CHECK(!put_after(nullptr, nullptr));
    CHECK(last == cudaSuccess);
  }
}

TEST_CASE("a stream is captured if its work goes into a graph") {
  const auto captured = reinterpret_cast<cudaStream_t>(8);
  fails = cudaSuccess;
  CHECK_FALSE(is_capturing(nullptr));
  CHECK(is_capturing(captured));
  fails = cudaErrorStreamCaptureImplicit;
  CHECK_FALSE(is_capturing(captured));
  CHECK(last == cudaSuccess);
}

TEST_CASE("an error that the program has left stays through calls that succeed") {
  fails = cudaSuccess;
  last = cudaErrorInvalidValue;
  CHECK(current_device() == 0);
  CHECK(set_device(0));
  CHECK(allocate(1));
  CHECK(release(nullptr));
  CHECK(copy(nullptr, nullptr, 0, nullptr));
  CHECK(last == cudaErrorInvalidValue);
}
