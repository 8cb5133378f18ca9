#pragma once

#include <ccl/detail/choose/tuning.hpp>

#include <array>
#include <functional>
#include <memory>
#include <string>

#include "explained.hpp"
#include "gpu.hpp"
#include "listing.hpp"
#include "options.hpp"

namespace ccl::perf {

/// Bytes that rank 0 creates and with which all ranks join.
using Invitation = std::array<std::byte, 128>;

/// Steps of one rank that the ranks of its group take together.
class Stage {
 public:
  virtual ~Stage() = default;
  virtual gpu::Queue& queue() = 0;
  /// Blocks until all ranks have called it, or fails at the deadline.
  virtual Result<void> meet() = 0;
  /// Returns the microseconds of this GPU's clock for what `work` queues. All GPUs begin it when
  /// the last rank has queued its own, so CPU time does not count.
  virtual Result<double> clock(const std::function<Result<void>()>& work) = 0;
};

/// One of the compared libraries, as one rank uses it on its GPU.
class Contender {
 public:
  virtual ~Contender() = default;
  virtual Result<Invitation> invite() = 0;
  virtual Result<void> join(const Invitation& invitation, int rank, int ranks, int device) = 0;
  /// Allocates a buffer for the mode of this side. Collective.
  virtual Result<std::byte*> allocate(Index bytes) = 0;
  /// Prepares `choice`. Fails with `Errc::not_supported` if it cannot run. Collective.
  virtual Result<void> prepare(const Choice& choice, const Shape& shape, DataType type,
                               RedOp redop) = 0;
  /// Queues one call on the stream.
  virtual Result<void> run(const Shape& shape, const Call& call, void* stream) = 0;
  /// Returns the first failure of queued calls. It must be called after they have run.
  virtual Result<void> health() = 0;
  /// Times the phases of calls like `call`, of the prepared case. Fails with `Errc::not_supported`
  /// if its kernels can note none. Collective.
  virtual Result<RankPhases> explain(Stage& stage, const Shape& shape, const Call& call) {
    (void)stage, (void)shape, (void)call;
    return fail(Errc::not_supported, "the kernels of a rival note no phases");
  }
  virtual Result<void> leave() = 0;

  virtual std::string label() const = 0;           // name of the running composition: "Ring/LL128"
  virtual std::string note() const { return {}; }  // note for the reader of the table
  virtual Plan plan() const { return {}; }
  /// Returns the case for a `TuningTable`; empty for a rival. Collective at its first call.
  virtual Result<detail::TuningCase> tuning_case() { return detail::TuningCase{}; }
};

/// Setup of a side. NCCL reads its settings once per process, so each mode has its own ranks.
struct Mode {
  std::string name;  // "ccl", "plain", "registered", ...
  bool nccl = false;
  enum class Memory { plain, registered, windows } memory = Memory::plain;
  std::vector<std::pair<std::string, std::string>> environment{};
  Index from_bytes = 0;  // smaller messages are not run in this mode
};

std::unique_ptr<Contender> make_ccl_side(const Options& options);
/// Creates a side of NCCL. `library` is the path or the name of libnccl.so.2.
std::unique_ptr<Contender> make_nccl_side(const Mode& mode, const std::string& library);

/// Returns the modes of NCCL that the options select.
std::vector<Mode> nccl_modes(const Options& options);

/// NCCL library that was found. Trivially copyable.
struct NcclFound {
  char library[600] = {};  // empty: none
  int version = 0;         // such as 22809
  char why_none[400] = {};
};
/// Opens `library`, or else the system's NCCL or that of Python's package. Only a process that ends
/// afterwards may call it.
NcclFound find_nccl(const std::string& library);

}  // namespace ccl::perf
