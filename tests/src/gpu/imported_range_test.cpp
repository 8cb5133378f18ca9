#include "gpu/imported_range.hpp"

#include <vector>

#include "gpu/shared_handle.hpp"
#include "support/handle_memory.hpp"
#include "support/region_attributes.hpp"

using namespace ccl;
using namespace ccl::test;
using detail::ImportedRange;

namespace {
constexpr std::size_t piece = 1 << 20;

struct Owner {
  Owner() {
    for (std::size_t n = 0; n < 3; ++n) memory.map(n, 100 + int(n));
  }
  detail::CudaDriver cuda = install_gpus(2);
  HandleMemory memory{0, 3, piece};
  std::vector<detail::HandleMapping> mappings() const {
    return detail::mappings_around(cuda, 0, reinterpret_cast<CUdeviceptr>(memory.piece(0)),
                                   3 * piece, 8);
  }
  detail::SharedHandle handle(std::size_t n) const {
    auto exported = detail::export_handle(cuda, mappings().at(n));
    REQUIRE(exported);
    return *std::move(exported);
  }
};
int mark(CUdeviceptr at) {
  return *reinterpret_cast<const int*>(at);
}
}  // namespace

TEST_CASE("handles are mapped at adjacent addresses, and outlive their owner's mappings") {
  Owner owner;
  const auto gpu = detail::Gpu::open(1);
  REQUIRE(gpu);
  const std::size_t before = fake::gpus().regions.size();
  auto range = ImportedRange::reserve(*gpu, 3 * piece);
  REQUIRE(range);
  for (std::size_t n = 0; n < 3; ++n) {
    CHECK(!(*range)->open());  // some are missing
    REQUIRE((*range)->append(owner.handle(n)));
  }
  REQUIRE((*range)->open());
  for (std::size_t n = 0; n < 3; ++n) owner.memory.unmap(n);
  for (std::size_t n = 0; n < 3; ++n) CHECK(mark((*range)->base() + n * piece) == 100 + int(n));
  range = nullptr;
  CHECK(fake::gpus().regions.size() == before - 3);
}

TEST_CASE("a handle that does not fit is refused by its size") {
  const Owner owner;
  const auto gpu = detail::Gpu::open(1);
  REQUIRE(gpu);
  const auto range = ImportedRange::reserve(*gpu, piece + piece / 2);
  REQUIRE(range);
  REQUIRE((*range)->append(owner.handle(0)));
  const auto second = (*range)->append(owner.handle(1));
  REQUIRE(!second);
  CHECK(second.error().code == Errc::mismatch);
  CHECK(second.error().what.find("1048576 bytes does not fit into the 524288") !=
        std::string::npos);
  CHECK(!(*range)->append({}));
}

TEST_CASE("a GPU that does not reach the owner's gets no access") {
  const Owner owner;
  fake::gpus().refuses_to_map = 1;
  const auto gpu = detail::Gpu::open(1);
  REQUIRE(gpu);
  const auto range = ImportedRange::reserve(*gpu, piece);
  REQUIRE(range);
  REQUIRE((*range)->append(owner.handle(0)));
  CHECK(!(*range)->open());
  fake::gpus().refuses_to_map = -1;
}

TEST_CASE("a handle is exported only as long as its mapping is the same") {
  Owner owner;
  const auto mappings = owner.mappings();
  owner.memory.unmap(1);
  CHECK(!detail::export_handle(owner.cuda, mappings[1]));
  owner.memory.map(1, 0);
  const auto other = detail::export_handle(owner.cuda, mappings[1]);
  REQUIRE(!other);
  CHECK(other.error().what.find("has been unmapped") != std::string::npos);
  CHECK(detail::export_handle(owner.cuda, owner.mappings()[1]));
  CHECK(detail::can_export(mappings[0]));
  detail::HandleMapping no_types = mappings[0];
  no_types.handle_types = CU_MEM_HANDLE_TYPE_NONE;
  CHECK(!detail::can_export(no_types));
}

TEST_CASE("memory whose handles are of the fabric alone travels by its name") {
  Owner owner;
  detail::HandleMapping mapping = owner.mappings()[2];
  mapping.handle_types = CU_MEM_HANDLE_TYPE_FABRIC;
  auto cuda = owner.cuda;  // the name of a fake handle is valid as long as the handle is there
  cuda.mem_release = [](CUmemGenericAllocationHandle) { return CUDA_SUCCESS; };
  const auto handle = detail::export_handle(cuda, mapping);
  REQUIRE(handle);
  CHECK(!handle->fd);
  const auto gpu = detail::Gpu::open(1);
  REQUIRE(gpu);
  const int imports = fake::gpus().fabric_imports;
  const auto range = ImportedRange::reserve(*gpu, piece);
  REQUIRE(range);
  REQUIRE((*range)->append(*handle));
  REQUIRE((*range)->open());
  CHECK(fake::gpus().fabric_imports == imports + 1);
  CHECK(mark((*range)->base()) == 102);
}
