#pragma once

#include <ccl/detail/copy/work.hpp>
#include <ccl/detail/exchange/mailbox.hpp>
#include <ccl/detail/lanes/copy_run.hpp>
#include <ccl/detail/lanes/spin_wait.hpp>
#include <ccl/detail/numeric/reduction.hpp>
#include <ccl/proto/lane_group.hpp>
#include <ccl/types/macros.hpp>

CCL_ANY_SPACE_BEGIN

namespace ccl::detail {

/// Posts to the peers, then waits for their posts, with one lane for each peer. A post is released
/// after the earlier copies of the stream. The later copies of the stream see the data that a peer
/// released.
///
/// After a failure it posts nothing, because earlier copies may have moved data that had not
/// arrived.
struct CopySyncBody {
  using Work = CopySync;
  static constexpr int max_lanes = 32;
  const Work& work;

  template <LaneGroup Group>
  CCL_HD void operator()(Group group, int) const {
    using Memory = typename Group::Memory;
    Memory::await_previous();
    for (int p = group.rank(); p < work.peers.ranks; p += Group::width) {
      if (Memory::load_relaxed(&work.watch.lane_failure->peer) != 0) return;
      if (Memory::load_relaxed(work.watch.stop) != 0) return;
      for (int kind = 0; kind < CopySync::kinds; ++kind) {
        if ((work.post[kind] >> p & 1) == 0) continue;
        const Word now = count<Memory>(0, kind, p);
        Word* const line = word(p, work.peers.rank, kind);
        Memory::store_relaxed(line + place_of(now), work.place);  // then the count that it is of
        Memory::store_release(line, now);
      }
      if ((work.outside >> p & 1) != 0) {
        Memory::store_release(word(p, work.peers.rank, CopySync::outside_line), work.call);
      }
      SpinWait<Memory> spin_wait{work.watch};
      for (int kind = 0; kind < CopySync::kinds; ++kind) {
        if ((work.await[kind] >> p & 1) == 0) continue;
        const Word want = count<Memory>(1, kind, p);
        const Word* const line = word(work.peers.rank, p, kind);
        while (Index(Memory::load_acquire(line) - want) < 0) {  // until the post or a failure
          if (spin_wait.ends(p, want - 1)) break;
          if (work.place == 0) continue;
          const Word other = place_elsewhere<Memory>(p, kind);
          // Posts are in order: one that came before the other is visible by now.
          if (other == 0 || other == work.place || posted<Memory>(line, want)) continue;
          return report<Memory>(p, other);
        }
        if (work.place == 0 || spin_wait.failed()) continue;
        const Word theirs = Memory::load_relaxed(line + place_of(want));
        if (theirs != work.place) return report<Memory>(p, theirs);
      }
    }
  }

 private:
  /// Returns the word that `writer` posts to `owner`.
  CCL_HD Word* word(int owner, int writer, int line) const {
    return detail::mailbox(work.peers, owner, writer)->reported + line * words_per_line;
  }
  CCL_HD static int place_of(Word count) { return 1 + int(count % CopySync::kept_places); }
  CCL_HD Word* counter(int awaited, int kind, int peer) const {
    return work.counts + (awaited * CopySync::kinds + kind) * CopySync::max_ranks + peer;
  }
  template <class Memory>
  CCL_HD Word count(int awaited, int kind, int peer) const {
    Word* const at = counter(awaited, kind, peer);
    const Word now = Memory::load_relaxed(at) + 1;
    Memory::store_relaxed(at, now);
    return now;
  }
  template <class Memory>
  CCL_HD static bool posted(const Word* line, Word want) {
    return Index(Memory::load_acquire(line) - want) >= 0;
  }
  /// Returns the place that `peer` has told in another way than by a post of `kind`, or 0.
  template <class Memory>
  CCL_HD Word place_elsewhere(int peer, int kind) const {
    const int me = work.peers.rank;
    if (work.call != 0 &&
        Memory::load_acquire(word(me, peer, CopySync::outside_line)) == work.call) {
      return WindowPlaceWord::in_no_window;
    }
    const int other = CopySync::kinds - 1 - kind;
    const Word next = Memory::load_relaxed(counter(1, other, peer)) + 1;
    const Word* const line = word(me, peer, other);
    return posted<Memory>(line, next) ? Memory::load_relaxed(line + place_of(next)) : 0;
  }
  template <class Memory>
  CCL_HD void report(int peer, Word theirs) const {
    report_check<Memory>(work.watch, LaneFailure::other_place, peer, theirs, work.place);
  }
};

struct CopyRunsBody {
  using Work = CopyRuns;
  static constexpr int max_lanes = 512;
  const Work& work;

  template <LaneGroup Group>
  CCL_HD void operator()(Group group, int channel) const {
    Group::Memory::await_previous();
    for (int r = 0; r < work.count; ++r) {
      const CopyRuns::Run& run = work.run[r];
      const Index each = div_up<Index>(run.bytes, Index{128} * work.channels) * 128;
      const Index begin = each * channel, left = run.bytes - begin;
      if (left <= 0) continue;
      detail::copy_run(group, run.to + begin, run.from + begin, left < each ? left : each);
    }
  }
};

/// Body of a reduction. `Wide`: all pieces and results begin at multiples of 16 bytes.
template <class R, bool Wide>
struct CopyReduceBody {
  using Work = CopyReduction<R>;
  using T = typename R::Type;
  static constexpr int max_lanes = 512;
  const Work& work;

  template <LaneGroup Group>
  CCL_HD void operator()(Group group, int channel) const {
    Group::Memory::await_previous();
    const R reduction = work.reduction.load();
    const Index lane = Index{channel} * Group::width + group.rank();
    const Index lanes = Index{work.channels} * Group::width;
    const Index whole = Wide && Element<T>::packed ? work.count / per_fragment : 0;
    for (Index f = lane; f < whole; f += lanes) {
      Fragment<words> piece[max_unrolled_ranks]{};
      CCL_UNROLL for (int r = 0; r < max_unrolled_ranks; ++r) {
        if (r < work.ranks) piece[r] = load(work.piece[r], f);
      }
      auto sum = CellReducer<R, words>::from_own(reduction, piece[0]);
      CCL_UNROLL for (int r = 1; r < max_unrolled_ranks; ++r) {
        if (r < work.ranks) sum.add_own(piece[r]);
      }
      const Fragment<words> result = sum.finish();
      store(work.output, f, result);
      if (work.also != nullptr) store(work.also, f, result);
    }
    for (Index i = whole * per_fragment + lane; i < work.count; i += lanes) {
      auto sum = reduction.prepare(element(work.piece[0], i));
      for (int r = 1; r < work.ranks; ++r) {
        sum = reduction.combine(sum, reduction.prepare(element(work.piece[r], i)));
      }
      const T result = reduction.finish(sum);
      __builtin_memcpy(static_cast<char*>(work.output) + i * size, &result, sizeof(T));
      if (work.also == nullptr) continue;
      __builtin_memcpy(static_cast<char*>(work.also) + i * size, &result, sizeof(T));
    }
  }

 private:
  static constexpr Index size = sizeof(T);
  static constexpr int words = Element<T>::words_per_cell % 2 == 0 ? Element<T>::words_per_cell
                                                                   : 2 * Element<T>::words_per_cell;
  static constexpr Index per_fragment = words / Element<T>::words_per_cell * Element<T>::per_cell;

  CCL_HD static Fragment<words> load(const void* from, Index f) {
    Fragment<words> fragment;
    const char* const at = static_cast<const char*>(from) + f * (words * 8);
    CCL_UNROLL for (int w = 0; w < words; w += 2) {
      const Packet packet = detail::load_unit<Packet>(at + w * 8);
      fragment.word[w] = packet.word[0];
      fragment.word[w + 1] = packet.word[1];
    }
    return fragment;
  }
  CCL_HD static void store(void* to, Index f, const Fragment<words>& fragment) {
    char* const at = static_cast<char*>(to) + f * (words * 8);
    CCL_UNROLL for (int w = 0; w < words; w += 2) {
      const Packet packet{{fragment.word[w], fragment.word[w + 1]}};
      __builtin_memcpy(__builtin_assume_aligned(at + w * 8, sizeof(Packet)), &packet,
                       sizeof(Packet));
    }
  }
  /// Loads an element of any alignment.
  CCL_HD static T element(const void* from, Index i) {
    T value;
    __builtin_memcpy(&value, static_cast<const char*>(from) + i * size, sizeof(T));
    return value;
  }
};

}  // namespace ccl::detail

CCL_ANY_SPACE_END
