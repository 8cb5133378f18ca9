#pragma once

#include <ccl/detail/base/ptx.hpp>
#include <ccl/types/word.hpp>

#include <cuda/std/concepts>
#include <nv/target>

namespace ccl {
namespace detail {
template <class G>
concept HasLaneWidth = G::width >= 1 && (G::width & (G::width - 1)) == 0;
template <class G>
concept HasLaneRank = requires(const G g) {
  { g.rank() } -> cuda::std::same_as<int>;
};
template <class G>
concept SynchronizesLanes = requires(const G g, bool vote) {
  g.sync();
  { g.all(vote) } -> cuda::std::same_as<bool>;
};
template <class M>
concept OrdersWords = requires(Word* at, Word value) {
  { M::load_relaxed(at) } -> cuda::std::same_as<Word>;
  { M::load_acquire(at) } -> cuda::std::same_as<Word>;
  { M::load_credit(at) } -> cuda::std::same_as<Word>;
  M::store_release(at, value);
  M::store_credit(at, value);
};
template <class M>
concept MovesPackets = requires(Packet* at, Packet value) {
  { M::load_relaxed(at) } -> cuda::std::same_as<Packet>;
  { M::load_bulk(at) } -> cuda::std::same_as<Packet>;
  M::store_relaxed(at, value);
  M::store_bulk(at, value);
};
template <class M>
concept Waits = requires {
  M::pause();
  M::await_previous();
  { M::now_ns() } -> cuda::std::same_as<Word>;
  { M::check_every } -> cuda::std::convertible_to<unsigned>;
};
template <class M>
concept StatesLineGuarantee = requires {
  { M::lines_land_whole } -> cuda::std::convertible_to<bool>;
};
}  // namespace detail

/// What "written" and "seen" mean to a group. All orders hold between all processors of a machine.
///   relaxed   each word arrives whole; nothing is said about other words
///   bulk      ordinary access; someone else's release and acquire order it
///   release   everything the group wrote before is visible to who acquires the word
///   credit    release/acquire for the way back: loads before, stores after
/// `pause()` is one failed poll; status and clock are looked at every `check_every`-th.
/// `await_previous()`: the launch before, on this rank, has ended and its memory is visible. A
/// launch may begin early; it must not touch what changes before it has called this.
/// `lines_land_whole`: lanes that store a 128-byte line in one instruction publish it at once.
template <class M>
concept Memory = detail::OrdersWords<M> && detail::MovesPackets<M> &&
    detail::StatesLineGuarantee<M> && detail::Waits<M>;

/// How a group falls into smaller ones, its parts, that lanes of large groups may work in.
template <class Group>
struct Parts {
  using Part = Group;
  static constexpr int count = 1;
  CCL_HD static Part part(Group group) { return group; }
  CCL_HD static constexpr int index(Group) { return 0; }
  /// Whether `shared<T>(group)` is a value that lanes hand to each other around a `sync`.
  static constexpr bool shares = false;
};

namespace detail {
/// A launch's arguments are in no cache when it begins: reads a word of each line of them, so that
/// they come while the launch waits for the one before.
template <class Work>
CCL_HD void look_at([[maybe_unused]] const Work& work) {
  NV_IF_TARGET(NV_IS_DEVICE, (ptx::look_at(work);))
}

template <class G>
concept ReducesLanes = requires(const G g, float value, Word word) {
  { g.max(value) } -> cuda::std::same_as<float>;
  { g.from(word, 0) } -> cuda::std::same_as<Word>;
};
template <class G>
concept ReducesBlocks = requires(const G g, float value) {
  { g.block_sum(value) } -> cuda::std::same_as<float>;
  { g.block_max(value) } -> cuda::std::same_as<float>;
};
}  // namespace detail

/// `width` lanes that run the same code and can wait for and vote with each other.
/// `sync()` also orders memory: what a lane wrote before, every lane of the group reads after.
template <class G>
concept LaneGroup = detail::HasLaneWidth<G> && detail::HasLaneRank<G> &&
    detail::SynchronizesLanes<G> && Memory<typename G::Memory>;

/// Lanes that also reduce numbers with each other; all of them call, and all get the same bits.
///   max(x)                      of the group
///   from(word, lane)            what that lane of the group gave
///   block_sum(x), block_max(x)    of all groups that end together (see crew.hpp): in an order that
///                               their number alone decides. Every lane of the crew calls it.
template <class G>
concept ReducingLanes = LaneGroup<G> && detail::ReducesLanes<G> && detail::ReducesBlocks<G>;

namespace detail {
/// The least a LaneGroup may be. Never defined: for checking policies where no group is at hand.
struct AnyMemory {
  static constexpr bool lines_land_whole = false;
  static constexpr unsigned check_every = 1;
  CCL_HD static void pause();
  CCL_HD static void await_previous();
  CCL_HD static Word now_ns();
  CCL_HD static Word load_relaxed(const Word* at);
  CCL_HD static Word load_acquire(const Word* at);
  CCL_HD static Word load_credit(const Word* at);
  CCL_HD static void store_relaxed(Word* at, Word value);
  CCL_HD static void store_release(Word* at, Word value);
  CCL_HD static void store_credit(Word* at, Word value);
  CCL_HD static Packet load_relaxed(const Packet* at);
  CCL_HD static Packet load_bulk(const Packet* at);
  CCL_HD static void store_relaxed(Packet* at, Packet value);
  CCL_HD static void store_bulk(Packet* at, Packet value);
};
struct AnyLanes {
  static constexpr int width = 8;
  using Memory = AnyMemory;
  CCL_HD int rank() const;
  CCL_HD void sync() const;
  CCL_HD bool all(bool vote) const;
};
static_assert(LaneGroup<AnyLanes>);
}  // namespace detail

}  // namespace ccl
