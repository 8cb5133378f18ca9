// Configurations that programs pass to NCCL's interface, of any version and any values.
#include <ccl/comm/unique_id.hpp>

#include "fuzz/fuzz.hpp"
#include "nccl/abi/abi.hpp"
#include "nccl/abi/operations.hpp"

namespace ccl::detail::nccl {
// The collectives are not part of this target.
Result<std::unique_ptr<Operations>> Operations::create(const Communicator&, const MemberConfig&) {
  return fail(Errc::not_supported, "a fuzzed communicator has no operations");
}
}  // namespace ccl::detail::nccl

namespace ccl::fuzz {

void prepare() {}

void read(Input input) {
  Source source{input};
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  const auto how = source.take<std::uint8_t>();
  // The bytes replace the values behind the version. Pointers must be valid ones.
  const Input bytes = source.take_bytes(sizeof config);
  const std::size_t begin = (how & 1) != 0 ? 0 : offsetof(ncclConfig_t, blocking);
  const std::size_t count = std::min(bytes.size(), sizeof config - begin);
  if (count > 0) std::memcpy(reinterpret_cast<char*>(&config) + begin, bytes.data(), count);
  const std::string name{text_of(source.take_bytes(64))};
  config.netName = (how & 2) != 0 ? name.c_str() : nullptr;
  config.commName = (how & 4) != 0 ? name.c_str() : nullptr;
  config.size = std::min(config.size, sizeof config);
  ncclUniqueId id{};
  ncclComm_t comm = nullptr;
  const ncclResult_t result = ncclCommInitRankConfig(&comm, 1, id, 0, &config);
  if (comm == nullptr) return;
  ncclResult_t state = result;
  for (int n = 0; state == ncclInProgress && n < 10'000; ++n) {
    if (ncclCommGetAsyncError(comm, &state) != ncclSuccess) break;
  }
  (void)ncclCommAbort(comm);
}

std::vector<std::string> seeds() {
  const ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  const std::string whole = bytes_of(config);
  ncclConfig_t other = config;
  other.blocking = 0;
  other.minCTAs = 1;
  other.maxCTAs = 4;
  return {'\1' + whole, '\1' + bytes_of(other), std::string{'\0'} + bytes_of(int{1}, int{2}),
          '\7' + whole + "a name"};
}

}  // namespace ccl::fuzz
