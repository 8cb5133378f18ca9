#pragma once

#include <ccl/detail/base/ptx.hpp>
#include <ccl/types/macros.hpp>
#include <ccl/types/word.hpp>

#include <cuda/std/concepts>
#include <nv/target>

CCL_ANY_SPACE_BEGIN

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

/// Memory model of a group. All orders hold between all processors of a machine.
/// - `relaxed`: each word arrives whole, without an order between words.
/// - `bulk`: ordinary access, ordered by the release and acquire of other words.
/// - `release`: all earlier writes of the group are visible to a thread that acquires the word.
/// - `credit`: release and acquire for the reverse direction: loads before, stores after.
/// - `pause()`: one failed poll. Status and clock are read at every `check_every`-th call.
/// - `await_previous()`: blocks until the previous launch on this rank has ended and its memory is
///   visible. A launch may begin early, and must not access changing data before this call.
/// - `lines_land_whole`: true if lanes that store a 128-byte line in one instruction publish it at
///   once.
template <class M>
concept Memory = detail::OrdersWords<M> && detail::MovesPackets<M> &&
                 detail::StatesLineGuarantee<M> && detail::Waits<M>;

/// Division of a group into parts, in which lanes of large groups may work.
template <class Group>
struct Parts {
  using Part = Group;
  static constexpr int count = 1;
  CCL_HD static Part part(Group group) { return group; }
  CCL_HD static constexpr int index(Group) { return 0; }
  /// True if lanes can pass the value `shared<T>(group)` to each other around a `sync`.
  static constexpr bool shares = false;
};

namespace detail {
/// Reads one word of each line of a launch's arguments, which no cache holds at the start. They
/// then load while the launch waits for the previous one.
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

/// Group of `width` lanes that run the same code and can wait for and vote with each other.
/// `sync()` also orders memory: every lane reads the earlier writes of all lanes.
template <class G>
concept LaneGroup = detail::HasLaneWidth<G> && detail::HasLaneRank<G> &&
                    detail::SynchronizesLanes<G> && Memory<typename G::Memory>;

/// Lanes that also reduce numbers with each other. All lanes must call, and all get the same bits.
/// - `max(x)`: maximum of the group.
/// - `from(word, lane)`: the word of that lane of the group.
/// - `block_sum(x)`, `block_max(x)`: sum and maximum of all groups that end together (see
///   block_epilogue.hpp), in an order that depends only on their number. Every lane of the block
///   must call.
template <class G>
concept ReducingLanes = LaneGroup<G> && detail::ReducesLanes<G> && detail::ReducesBlocks<G>;

namespace detail {
/// Minimal LaneGroup, to check policies without a real group. It is never defined.
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

CCL_ANY_SPACE_END
