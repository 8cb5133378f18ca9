// Requirements of NCCL's communicators for kernels, by the version of the program's headers.
#include "nccl/device/kernel_needs.hpp"

#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/error_matchers.hpp"
#include "support/kernel_wants.hpp"

using namespace ccl;
using namespace ccl::test;
using namespace ccl::detail::nccl;

TEST_CASE("the layout follows from the version and the size") {
  const DevCommRequirements usual = usual_wants();
  struct Case {
    unsigned version;
    DevCommLayout layout;
  };
  for (const Case& one : {Case{22902, DevCommLayout::v2_28}, Case{22903, DevCommLayout::v2_28},
                          Case{22907, DevCommLayout::v2_29_7}, Case{23003, DevCommLayout::v2_30},
                          Case{23004, DevCommLayout::v2_30}, Case{23007, DevCommLayout::v2_30},
                          Case{23102, DevCommLayout::v2_31}, Case{23203, DevCommLayout::v2_31}}) {
    CAPTURE(one.version);
    const auto needs = KernelNeeds::read(wants_of(one.version, usual).data(), 2);
    REQUIRE(needs);
    CHECK(needs->layout() == one.layout);
    CHECK(needs->version() == one.version);
    CHECK(needs->bytes() == 128);
  }
  const auto first = KernelNeeds::read(&usual, 2);
  REQUIRE(first);
  CHECK(first->layout() == DevCommLayout::v2_28);
}

TEST_CASE("members that a version does not have are not read") {
  DevCommRequirements wants = usual_wants();
  wants.cftCaps = 1;
  wants.worldGinBarrierCount = 1;
  CHECK(KernelNeeds::read(wants_of(22907, wants).data(), 2));
  CHECK(!KernelNeeds::read(wants_of(23007, wants).data(), 2));
  wants.worldGinBarrierCount = 0;
  CHECK(KernelNeeds::read(wants_of(23007, wants).data(), 2));
  CHECK(!KernelNeeds::read(wants_of(23102, wants).data(), 2));
  wants.cftCaps = 0;
  wants.useRuntimeVersion = true;
  const auto needs = KernelNeeds::read(wants_of(23102, wants).data(), 2);
  REQUIRE(needs);
  CHECK(needs->version() == NCCL_VERSION_CODE);
}

TEST_CASE("an unknown structure is refused") {
  const auto refused = [](std::vector<std::byte> wants, const char* words) {
    const auto needs = KernelNeeds::read(wants.data(), 2);
    if (needs) return std::string{"it is not refused"};
    const Error& error = needs.error();
    return error.code == Errc::invalid_usage && mentions(error.what, words) ? "" : error.what;
  };
  auto wants = wants_of(23102, usual_wants());
  wants[0] = std::byte{104};
  CHECK(refused(wants, "104 bytes").empty());
  CHECK(refused(wants_of(23300, usual_wants()), "23300").empty());
  wants = wants_of(23102, usual_wants());
  wants[8] = std::byte{1};
  CHECK(refused(wants, "NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER").empty());
}

TEST_CASE("wrong numbers and endless lists are refused") {
  const auto refused = [](const DevCommRequirements& wants) {
    const auto needs = KernelNeeds::read(wants_of(23102, wants).data(), 2);
    return !needs && needs.error().code == Errc::invalid_argument;
  };
  DevCommRequirements wants = usual_wants();
  wants.barrierCount = -1;
  CHECK(refused(wants));
  wants = usual_wants();
  wants.lsaBarrierCount = 1 << 30;
  CHECK(refused(wants));
  ncclDevResourceRequirements_t list{};
  wants = usual_wants();
  wants.resourceRequirementsList = &list;
  list.bufferSize = std::size_t(-1);
  CHECK(refused(wants));
  list.bufferSize = 1;
  list.bufferAlign = std::size_t{1} << 60;
  CHECK(refused(wants));
  list.bufferAlign = 1;
  list.next = &list;
  CHECK(refused(wants));
}

TEST_CASE("handles are written when asked, and equal requirements have one fingerprint") {
  ncclDevResourceHandle_t handles[2] = {99, 99};
  ncclDevResourceRequirements_t list[2]{};
  list[0].next = &list[1];
  list[0].bufferSize = 1;
  list[0].outBufferHandle = &handles[0];
  list[1].bufferSize = 1000;
  list[1].bufferAlign = 384;  // not a power of two
  list[1].outBufferHandle = &handles[1];
  DevCommRequirements wants = usual_wants();
  wants.lsaBarrierCount = 3;
  wants.resourceRequirementsList = list;
  const auto needs = KernelNeeds::read(wants_of(23102, wants).data(), 4);
  REQUIRE(needs);
  CHECK(handles[0] == 99);
  needs->write_handles();
  CHECK(needs->barrier().nBarriers == 3);
  CHECK(handles[0] == 1);  // behind 3 * 7 words
  CHECK(handles[1] == 3);
  CHECK(needs->bytes() == 3 * 128 + 1024);
  const auto same = KernelNeeds::read(wants_of(23203, wants).data(), 4);
  REQUIRE(same);
  CHECK(same->fingerprint() == needs->fingerprint());
  list[0].bufferSize = 2;
  const auto other = KernelNeeds::read(wants_of(23203, wants).data(), 4);
  REQUIRE(other);
  CHECK(other->bytes() == needs->bytes());
  CHECK(other->fingerprint() != needs->fingerprint());
}
