#pragma once

#include <ccl/comm/communicator.hpp>
#include <ccl/comm/stream.hpp>
#include <ccl/detail/choose/chooser.hpp>
#include <ccl/element/data_type.hpp>
#include <ccl/types/plan.hpp>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "redop.hpp"

namespace ccl::perf {

/// One call of a collective. Members that the operation does not have are ignored.
struct Call {
  DataType type = DataType::float32;
  RedOp redop = RedOp::sum;
  const std::byte* send = nullptr;
  std::byte* recv = nullptr;
  Index count = 0;  // elements, in the collective's unit
  int root = 0;
  int next = 0, prev = 0;                            // for SendRecv
  std::span<const Index> send_counts, send_offsets;  // for AllToAllV
  std::span<const Index> recv_counts, recv_offsets;
  Stream stream;
};

/// Composition whose types are chosen at run time.
class Runner {
 public:
  virtual ~Runner() = default;
  virtual Result<void> run(const Call& call) const = 0;
  virtual const Plan& plan() const = 0;
};

/// Facts for ccl's own choice, and the sides on which `Auto` uses the composition.
struct EntryFacts {
  /// Candidate of a list, and its place there.
  struct Listed {
    detail::CandidateFacts facts;
    int place = 0;
  };
  detail::CandidateFacts facts;
  bool is_default = false;             // a candidate of `Auto`
  std::optional<Listed> in_one_order;  // as a candidate of `Deterministic`
};

/// Composition that this program contains.
struct Entry {
  std::string_view op, algo, proto;  // "all_reduce", "Ring", "LL128"
  Result<std::unique_ptr<Runner>> (*make)(const Communicator& comm, std::optional<Plan> plan);
  EntryFacts (*facts)();
};
std::span<const Entry> all_entries();

/// Traced form of a composition that this program contains.
struct TracedEntry {
  std::string_view op, algo, proto;  // of the composition: "all_reduce", "Ring", "LL128"
  Result<std::unique_ptr<Runner>> (*make)(const Communicator& comm, std::optional<Plan> plan);
};
/// Empty: none. See CCL_PERF_TRACED of CMakeLists.txt.
std::span<const TracedEntry> traced_entries();

/// True if this program reduces that type with that operation.
bool carries(DataType type, RedOp redop);

}  // namespace ccl::perf
