#pragma once

#include <ccl/detail/choose/tuning.hpp>

#include <array>
#include <memory>
#include <string>

#include "gpu.hpp"
#include "listing.hpp"
#include "options.hpp"

namespace ccl::perf {

/// What rank 0 makes and all ranks join by.
using Invitation = std::array<std::byte, 128>;

/// One of the libraries that are compared, as one rank uses it on its GPU.
class Side {
 public:
  virtual ~Side() = default;
  virtual Result<Invitation> invite() = 0;
  virtual Result<void> join(const Invitation& invitation, int rank, int ranks, int device) = 0;
  /// Buffers as this side's mode wants them. Collective.
  virtual Result<std::byte*> allocate(Index bytes) = 0;
  /// Gets ready to run `choice`; an error with `not_supported` says that it cannot. Collective.
  virtual Result<void> prepare(const Choice& choice, const Shape& shape, DataType type,
                               RedOp redop) = 0;
  /// Queues one call on the stream.
  virtual Result<void> run(const Shape& shape, const Call& call, void* stream) = 0;
  /// Whether all that was queued has gone well. After it has run.
  virtual Result<void> health() = 0;
  virtual Result<void> leave() = 0;

  virtual std::string label() const = 0;           // of what runs: "Ring/LL128"
  virtual std::string note() const { return {}; }  // what the reader must know about it
  virtual Plan plan() const { return {}; }
  /// See `TuningTable`; nothing of a rival. Collective at first.
  virtual Result<detail::TuningCase> tuning_case() { return detail::TuningCase{}; }
};

/// How a side is set up. NCCL reads its settings once per process, so each mode has its own.
struct Mode {
  std::string name;  // "ccl", "plain", "registered", ...
  bool nccl = false;
  enum class Memory { plain, registered, windows } memory = Memory::plain;
  std::vector<std::pair<std::string, std::string>> environment{};
  Index from_bytes = 0;  // smaller messages are not run in this mode
};

std::unique_ptr<Side> make_ccl_side(const Options& options);
/// `library`: path or name of libnccl.so.2.
std::unique_ptr<Side> make_nccl_side(const Mode& mode, const std::string& library);

/// The modes of NCCL that the options ask for.
std::vector<Mode> nccl_modes(const Options& options);

/// What was found of NCCL. Trivially copyable.
struct NcclFound {
  char library[600] = {};  // empty: nowhere
  int version = 0;         // 22809
  char why_none[400] = {};
};
/// Opens `library`, or, if that is empty, the system's NCCL or that of Python's package. Only in a
/// process that ends afterwards.
NcclFound find_nccl(const std::string& library);

}  // namespace ccl::perf
