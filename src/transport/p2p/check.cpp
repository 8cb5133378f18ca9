#include "transport/p2p/check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/fork_mutex.hpp"
#include "base/made_once.hpp"

namespace ccl::detail {
namespace {
using Clock = std::chrono::steady_clock;
constexpr Word trial_words = path_trial_bytes / sizeof(Word);
// A thread that gets no core between a copy and its marks has learned nothing of the path.
constexpr int fewest_rounds = 5;
constexpr double fewest_ms = 100;

double us_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

/// Index of the first word that is not of `writer`; `trial_words` if all are.
Word first_wrong(const Word* words, Word writer) {
  Word i = 0;
  while (i < trial_words && words[i] == trial_word(writer, i)) ++i;
  return i;
}

PathObservation seen(PathFault fault, std::string detail) {
  PathObservation what;
  what.fault = fault;
  what.detail = std::move(detail);
  return what;
}
PathObservation of_copy(const TrialCopies& copies, const Error& error) {
  return seen(copies.stuck() ? PathFault::stuck : PathFault::failed, error.what);
}
}  // namespace

std::string_view fault_text(PathFault fault) {
  switch (fault) {
    case PathFault::none:
      return "their path works";
    case PathFault::refused:
      return "a setting or the driver is against it";
    case PathFault::excluded:
      return "CCL_P2P_EXCLUDE names them";
    case PathFault::not_mapped:
      return "the driver did not map the memory";
    case PathFault::failed:
      return "a copy between them failed";
    case PathFault::stuck:
      return "a copy between them did not end";
    case PathFault::corrupt:
      return "what one wrote to the other's memory read as something else";
    case PathFault::lost:
      return "what one wrote to the other's memory did not arrive there";
    case PathFault::slow:
      return "copies between them are slower than any link";
  }
  return "unknown";
}

PathFault judge(topo::PathType path, const PathTimes& times) {
  const double longest_us = double(path_trial_bytes) / min_mb_per_s(path);
  return std::max(times.write_us, times.read_us) > longest_us ? PathFault::slow : PathFault::none;
}

Word trial_word(Word writer, Word index) {
  Word x = (writer << 32 | index) + 0x9e37'79b9'7f4a'7c15u;
  x = (x ^ x >> 31) * 0x7fb5'd329'728e'a185u;
  x = (x ^ x >> 27) * 0x81da'def4'bc2d'd44du;
  return x ^ x >> 33;
}

void leave(std::shared_ptr<const void> used) {
  struct Left {
    std::vector<std::shared_ptr<const void>> all;
    ForkMutex mutex{[this] { renew(all); }};
  };
  static constinit MadeOnce<Left> left;
  auto& [all, mutex] = left.get();
  const std::lock_guard lock{mutex};
  all.push_back(std::move(used));
}

Result<std::unique_ptr<TrialCopies>> TrialCopies::make(std::shared_ptr<Gpu> gpu, double longest_s) {
  std::unique_ptr<TrialCopies> copies{new TrialCopies{std::move(gpu)}};
  copies->longest_s_ = longest_s;
  const CudaDriver& cuda = copies->gpu_->driver();
  const Gpu::Current current{*copies->gpu_};
  CCL_CHECK(cuda_check(cuda.stream_create(&copies->stream_, CU_STREAM_NON_BLOCKING),
                       "make a stream to try paths"));
  for (CUevent* const event : {&copies->begun_, &copies->ended_}) {
    CCL_CHECK(cuda_check(cuda.event_create(event, CU_EVENT_DEFAULT), "make an event to try paths"));
  }
  CCL_TRY(copies->staging_, Pinned::take(cuda, path_trial_bytes));
  return copies;
}

TrialCopies::~TrialCopies() {
  if (stuck_) {
    leave(gpu_);
    leave(std::make_shared<Pinned>(std::move(staging_)));
    return;
  }
  const CudaDriver& cuda = gpu_->driver();
  const Gpu::Current current{*gpu_};
  for (const CUevent event : {begun_, ended_}) {
    if (event != nullptr) (void)cuda.event_destroy(event);
  }
  if (stream_ != nullptr) (void)cuda.stream_destroy(stream_);
}

Result<double> TrialCopies::copy(void* to, const void* from, std::size_t bytes) {
  if (stuck_) return fail(Errc::timed_out, "the copy before it has not ended");
  const CudaDriver& cuda = gpu_->driver();
  const Gpu::Current current{*gpu_};
  const auto begin = Clock::now();
  CCL_CHECK(cuda_check(cuda.event_record(begun_, stream_), "mark a copy"));
  CCL_CHECK(cuda_check(cuda.memcpy_async(reinterpret_cast<CUdeviceptr>(to),
                                         reinterpret_cast<CUdeviceptr>(from), bytes, stream_),
                       "copy"));
  CCL_CHECK(cuda_check(cuda.event_record(ended_, stream_), "mark a copy"));
  for (;;) {
    const CUresult code = cuda.event_query(ended_);
    if (code == CUDA_SUCCESS) break;
    if (code != CUDA_ERROR_NOT_READY) return fail(cuda_error(code, "copy"));
    const double us = us_since(begin);
    if (us > longest_s_ * 1e6) {
      stuck_ = true;
      return fail(Errc::timed_out,
                  fmt::format("a copy of {} bytes was under way for {} s", bytes, longest_s_));
    }
    if (us < 1000) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds{50});
    }
  }
  float ms = 0;
  CCL_CHECK(cuda_check(cuda.event_elapsed_time(&ms, begun_, ended_), "time a copy"));
  return double(ms) * 1e3;
}

PathObservation try_path(TrialCopies& copies, topo::PathType path, Word writer,
                         const std::byte* from, std::byte* there, std::byte* back) {
  const auto begin = Clock::now();
  PathObservation result;
  for (int round = 0;; ++round) {
    const auto wrote = copies.copy(there, from, path_trial_bytes);
    if (!wrote) return of_copy(copies, wrote.error());
    const auto read = copies.copy(back, there, path_trial_bytes);
    if (!read) return of_copy(copies, read.error());
    PathTimes& best = result.times;
    best.write_us = round == 0 ? *wrote : std::min(best.write_us, *wrote);
    best.read_us = round == 0 ? *read : std::min(best.read_us, *read);
    result.fault = judge(path, best);
    if (result.fault == PathFault::none) break;
    if (round + 1 >= fewest_rounds && us_since(begin) > fewest_ms * 1e3) break;
  }
  if (const auto got = copies.copy(copies.staging(), back, path_trial_bytes); !got) {
    return of_copy(copies, got.error());
  }
  if (const Word wrong = first_wrong(copies.staging(), writer); wrong < trial_words) {
    return seen(PathFault::corrupt, fmt::format("word {} of {}", wrong, trial_words));
  }
  if (result.fault == PathFault::slow) {
    const auto speed = [](double us) { return double(path_trial_bytes) / us / 1e3; };
    result.detail = fmt::format("{:.3f} GB/s in writes, {:.3f} in reads, where {:.1f} is the least",
                                speed(result.times.write_us), speed(result.times.read_us),
                                min_mb_per_s(path) / 1e3);
  }
  return result;
}

PathObservation look_for(TrialCopies& copies, Word writer, const std::byte* at) {
  if (const auto got = copies.copy(copies.staging(), at, path_trial_bytes); !got) {
    return of_copy(copies, got.error());
  }
  const Word wrong = first_wrong(copies.staging(), writer);
  if (wrong == trial_words) return {};
  return seen(PathFault::lost, fmt::format("word {} of {}", wrong, trial_words));
}

}  // namespace ccl::detail
