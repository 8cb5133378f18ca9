#include "connect/stream_signals.hpp"

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <new>

#include "base/thread.hpp"
#include "comm/edges/memory_exchange.hpp"
#include "comm/rank_results.hpp"

namespace ccl::detail {
namespace {
// A departed rank has set all its flags before this rank learned of the departure.
constexpr double departed_s = 0.5;

using SharedWord = std::atomic<Word>;
static_assert(SharedWord::is_always_lock_free && sizeof(SharedWord) == sizeof(Word));

using Op = CUstreamBatchMemOpParams;
Op write(CUdeviceptr at, Word value) {
  Op op{};
  op.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
  op.writeValue.address = at;
  op.writeValue.value64 = value;
  op.writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;  // after all earlier work of the stream
  return op;
}
Op wait(CUdeviceptr at, Word value) {
  Op op{};
  op.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
  op.waitValue.address = at;
  op.waitValue.value64 = value;
  op.waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
  return op;
}
}  // namespace

/// Board of one rank, in memory that all ranks share. Each writer has its own line.
struct StreamSignals::Board {
  struct alignas(128) Line {
    SharedWord word{0};
  };
  Line flag[CopySync::kinds][CopySync::max_ranks];
  /// Lines that the owner's stream writes for its watching thread. `waits` is a bit mask of awaited
  /// ranks, shifted left by 8, plus the kind + 1; 0: no wait. `moved` reports progress.
  Line waits;
  Line moved;
  Line expected;  // value of the flags that it waits for
  Line call;      // number of the call that waits, or 0
  /// Last call that another composition ran on the writer. Written by its stream, which may be
  /// calls behind its host thread.
  Line outside[CopySync::max_ranks];
};

StreamSignals::Board& StreamSignals::mine() const {
  return *reinterpret_cast<Board*>(boards_[std::size_t(rank_)].base());
}

CUdeviceptr StreamSignals::flag(int owner, int kind, int writer) const {
  const std::size_t line = std::size_t(kind * CopySync::max_ranks + writer);
  return reinterpret_cast<CUdeviceptr>(pins_[std::size_t(owner)].on_device() +
                                       line * sizeof(Board::Line));
}

CUdeviceptr StreamSignals::outside(int owner, int writer) const {
  return reinterpret_cast<CUdeviceptr>(pins_[std::size_t(owner)].on_device() +
                                       offsetof(Board, outside) +
                                       std::size_t(writer) * sizeof(Board::Line));
}

Result<std::unique_ptr<StreamSignals>> StreamSignals::open(CommState& state, int composition,
                                                           std::string_view name) {
  std::unique_ptr<StreamSignals> signals{new StreamSignals{state.device.gpu}};
  signals->rank_ = state.identity.rank();
  signals->ranks_ = state.identity.ranks();
  signals->timeout_s_ = state.limits.timeout_s;
  signals->status_ = &state.status;
  signals->boards_.resize(std::size_t(state.identity.ranks()));
  signals->pins_.resize(std::size_t(state.identity.ranks()));
  Fd memory;
  const auto take = [&](int rank, const Fd& fd) -> Result<void> {
    Mapping& board = signals->boards_[std::size_t(rank)];
    CCL_TRY(board, Mapping::of(fd, sizeof(Board)));
    CCL_TRY(signals->pins_[std::size_t(rank)],
            HostPin::make(state.device.gpu, board.base(), sizeof(Board)));
    return {};
  };
  const auto prepare = [&]() -> Result<void> {
    int able = 0;
    CUdevice device;
    CCL_CHECK(cuda_check(state.device.gpu->driver().device_get(&device, state.device.gpu->device()),
                         "get the device"));
    (void)state.device.gpu->driver().device_get_attribute(
        &able, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, device);
    if (able == 0) {
      return fail(Errc::not_supported,
                  fmt::format("streams of device {} cannot wait for memory (an old driver or "
                              "GPU); use WindowCopies, whose kernels wait",
                              state.device.gpu->device()));
    }
    CCL_TRY(memory, shareable_memory("ccl-signals", sizeof(Board)));
    CCL_CHECK(take(state.identity.rank(), memory));
    new (signals->boards_[std::size_t(state.identity.rank())].base()) Board;
    return {};
  };
  const auto all = [](int) { return true; };
  CCL_CHECK(share_memory(state, {composition, name, "signals", sizeof(Board), all, take}, memory,
                         prepare()));
  const auto start = [&]() -> Result<void> {
    CCL_TRY(signals->thread_, own_thread("signals", [s = signals.get()] { s->watch(); }));
    return {};
  };
  CCL_CHECK(all_agree(state, name, start()));
  return signals;
}

StreamSignals::~StreamSignals() {
  stop_.store(true, std::memory_order_release);
  if (thread_.joinable()) thread_.join();
  pins_.clear();
}

Result<void> StreamSignals::sync(const CopySync& what, CUstream stream) const {
  const auto own = [this](const Board::Line& line) {
    const auto* const begin = boards_[std::size_t(rank_)].base();
    const auto offset = reinterpret_cast<const std::byte*>(&line) - begin;
    return reinterpret_cast<CUdeviceptr>(pins_[std::size_t(rank_)].on_device() + offset);
  };
  // A peer whose buffer has another place sets another value, for which no stream waits.
  const Word value = what.place != 0 ? what.place : 1;
  std::vector<Op> ops;
  for (int p = 0; p < ranks_; ++p) {
    if ((what.outside >> p & 1) != 0) ops.push_back(write(outside(p, rank_), what.call));
  }
  for (int kind = 0; kind < CopySync::kinds; ++kind) {
    for (int p = 0; p < ranks_; ++p) {
      if ((what.post[kind] >> p & 1) != 0) ops.push_back(write(flag(p, kind, rank_), value));
    }
  }
  for (int kind = 0; kind < CopySync::kinds; ++kind) {
    if (what.await[kind] == 0) continue;
    ops.push_back(write(own(mine().expected), value));
    ops.push_back(write(own(mine().call), what.call));
    ops.push_back(write(own(mine().waits), Word(what.await[kind]) << 8 | Word(kind + 1)));
    for (int p = 0; p < ranks_; ++p) {
      if ((what.await[kind] >> p & 1) != 0) ops.push_back(wait(flag(rank_, kind, p), value));
    }
    // All flags are reset together, so that a flag that is 0 names a late rank.
    for (int p = 0; p < ranks_; ++p) {
      if ((what.await[kind] >> p & 1) != 0) ops.push_back(write(flag(rank_, kind, p), 0));
    }
    ops.push_back(write(own(mine().moved), 1));
    ops.push_back(write(own(mine().waits), 0));
  }
  if (ops.empty()) return {};
  const Gpu::Current current{*gpu_};
  return cuda_check(gpu_->driver().stream_batch_mem_op(stream, unsigned(ops.size()), ops.data(), 0),
                    "queue writes and waits on a stream");
}

void StreamSignals::let_go() {
  const Word value = mine().expected.word.load(std::memory_order_acquire);
  for (auto& of_kind : mine().flag) {
    for (Board::Line& line : of_kind) line.word.store(value, std::memory_order_release);
  }
}

StreamSignals::OtherPlace StreamSignals::other_place(Word waits) const {
  const Board& board = mine();
  const int kind = int(waits & 0xff) - 1;
  const Word expected = board.expected.word.load(std::memory_order_acquire);
  const Word call = board.call.word.load(std::memory_order_acquire);
  for (int p = 0; p < ranks_; ++p) {
    if ((waits >> (8 + p) & 1) == 0) continue;
    const Word flag = board.flag[kind][p].word.load(std::memory_order_acquire);
    if (flag == expected) continue;
    if (flag != 0) return {p, flag, expected};
    if (call != 0 && board.outside[p].word.load(std::memory_order_acquire) == call) {
      return {p, WindowPlaceWord::in_no_window, expected};
    }
  }
  return {};
}

int StreamSignals::late_peer(Word waits, double quiet_s) const {
  const int kind = int(waits & 0xff) - 1;
  for (int p = 0; p < ranks_; ++p) {
    if ((waits >> (8 + p) & 1) == 0) continue;
    if (mine().flag[kind][p].word.load(std::memory_order_acquire) != 0) continue;
    if (timeout_s_ > 0 && quiet_s > timeout_s_) return p;
    if (quiet_s > departed_s && status_->has_departed(p)) return p;
  }
  return -1;
}

void StreamSignals::watch() {
  using Clock = std::chrono::steady_clock;
  Board& board = mine();
  Watched& watched = gpu_->watched();
  using Ref = std::atomic_ref<Word>;
  auto moved = Clock::now();
  OtherPlace before;
  while (!stop_.load(std::memory_order_acquire)) {
    const Word waits = board.waits.word.load(std::memory_order_acquire);
    if (waits == 0 || board.moved.word.exchange(0, std::memory_order_acq_rel) != 0) {
      moved = Clock::now();
      before = {};
    }
    const bool failed = Ref{watched.stop}.load(std::memory_order_acquire) != 0 ||
                        Ref{watched.lane_failure.peer}.load(std::memory_order_acquire) != 0;
    if (failed) {
      let_go();
    } else if (const OtherPlace found = waits == 0 ? OtherPlace{} : other_place(waits);
               found.peer >= 0) {
      // Two looks, because the words are read one by one while the stream may go on.
      if (found == before) {
        Ref{watched.lane_failure.step}.store(found.theirs, std::memory_order_relaxed);
        Ref{watched.lane_failure.count}.store(found.mine, std::memory_order_relaxed);
        Ref{watched.lane_failure.why}.store(LaneFailure::other_place, std::memory_order_relaxed);
        Ref{watched.lane_failure.peer}.store(Word(found.peer + 1), std::memory_order_release);
      }
      before = found;
    } else if (waits != 0) {
      const std::chrono::duration<double> quiet = Clock::now() - moved;
      if (const int late = late_peer(waits, quiet.count()); late >= 0) {
        Ref{watched.lane_failure.step}.store(0, std::memory_order_relaxed);
        Ref{watched.lane_failure.peer}.store(Word(late + 1), std::memory_order_release);
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds{failed ? 1 : 5});
  }
}

}  // namespace ccl::detail
