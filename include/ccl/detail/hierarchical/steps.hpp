#pragma once

#include <ccl/detail/base/handle.hpp>
#include <ccl/detail/hierarchical/parts.hpp>
#include <ccl/detail/map/elements.hpp>
#include <ccl/detail/numeric/reduction.hpp>

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace ccl::detail {

/// Reductions of a level: as the only level, as the first of two, and as the second of two.
template <class Whole, class Begun, class Ended>
struct LevelReductions {
  Whole whole;
  Begun begun;
  Ended ended;
};

/// Error of a composition whose scratch does not hold `pieces` elements at once. `other` is the
/// algorithm to suggest instead.
Error scratch_too_small(const Communicator& comm, const std::string& name, Index scratch_bytes,
                        Index pieces, std::size_t element_bytes, const char* other);

/// Steps of a `Hierarchical` for each operation, level by level. Arguments have been checked.
template <class Op, class Algo, class Proto, class Transport>
class HierarchicalSteps {
 public:
  using Parts = HierarchicalParts<Op, Algo, Proto, Transport>;
  explicit HierarchicalSteps(std::shared_ptr<Parts> parts) : parts_{std::move(parts)} {}

  const Communicator& comm() const { return parts_->comm; }
  const std::shared_ptr<Parts>& parts() const { return parts_; }

  template <class T, class Rs>
  Result<void> all_reduce(const T* send, T* recv, Index count, const Rs& by, Stream stream) const {
    const Layout whole{count, 0, 0, true};
    if (hosts() == comm().ranks()) return second(by, send, recv, whole, 0, stream);
    if constexpr (!Parts::rails) {
      // The data goes through the first rank of each host.
      CCL_CHECK(first(by, send, recv, {count, 0, 0, false}, 0, stream));
      if (levels().local == 0) CCL_CHECK(second(by, recv, recv, whole, 0, stream));
      return parts_->last.broadcast(recv, recv, count * Index{sizeof(T)}, 0, stream);
    } else {
      // Whole lines of equal shares go from buffer to buffer. The rest, or a message too short for
      // equal shares, is filled up in scratch memory.
      const Index each = count / locals();
      const bool is_long = each * Index{sizeof(T)} >= 65536;
      const Index straight = is_long ? each / 128 * 128 : each * locals() == count ? each : 0;
      CCL_CHECK(rail_reduce(send, recv, straight, by, stream));
      if (straight * locals() == count) return {};
      const Index most = scratch_bytes() / (locals() * Index{sizeof(T)}) * locals();
      if (most == 0) return too_large(locals(), sizeof(T));
      for (Index at = straight * locals(); at < count; at += most) {
        const Index n = std::min(most, count - at);
        CCL_CHECK(filled_reduce(send + at, recv + at, n, by, stream));
      }
      return {};
    }
  }

  template <class T, class Rs>
  Result<void> reduce_scatter(const T* send, T* recv, Index count, const Rs& by,
                              Stream stream) const {
    const Index from_host = levels().host_stride * count,
                from_local = levels().local_stride * count;
    if (hosts() == 1 || locals() == 1) {
      const Layout layout{count, count, 0, false};
      if (locals() == 1) return second(by, send, recv, layout, 0, stream);
      return first(by, send, recv, layout, 0, stream);
    }
    const Index most = scratch_bytes() / (hosts() * Index{sizeof(T)});
    if (most == 0) return too_large(hosts(), sizeof(T));
    const Index step = most >= 128 ? most / 128 * 128 : most;
    T* const partial = scratch<T>();
    for (Index at = 0; at < count; at += step) {
      const Index n = std::min(step, count - at);
      for (Index h = 0; h < hosts(); ++h) {
        CCL_CHECK(first(by, send + h * from_host + at, partial + h * n, {n, from_local, 0, false},
                        0, stream));
      }
      CCL_CHECK(second(by, partial, recv + at, {n, n, 0, false}, 0, stream));
    }
    return {};
  }

  template <class T, class Rs>
  Result<void> reduce(const T* send, T* recv, Index count, const Rs& by, int root,
                      Stream stream) const {
    const int host = levels().host_of(root), local = levels().local_of(root);
    if (locals() == 1) return second(by, send, recv, {count, 0, 0, false}, host, stream);
    if (hosts() == 1) return first(by, send, recv, {count, 0, 0, false}, local, stream);
    const Index step = scratch_bytes() / Index{sizeof(T)};
    if (step == 0) return too_large(1, sizeof(T));
    const bool mine = root == comm().rank();
    for (Index at = 0; at < count; at += step) {
      const Index n = std::min(step, count - at);
      T* const partial = mine ? recv + at : scratch<T>();
      CCL_CHECK(first(by, send + at, partial, {n, 0, 0, false}, local, stream));
      if (levels().local != local) continue;
      CCL_CHECK(second(by, partial, partial, {n, 0, 0, false}, host, stream));
    }
    return {};
  }

  Result<void> all_gather(const char* send, char* recv, Index bytes, Stream stream) const {
    using Run = typename Parts::First::Run;
    const Index host = levels().host_stride * bytes, local = levels().local_stride * bytes;
    // Place of the first host's rank on this rank's rail.
    char* const mine = recv + levels().local * local;
    if (hosts() == 1) {
      const Run run{send, recv};
      return parts_->first.gather({&run, 1}, bytes, bytes, stream);
    }
    const typename Parts::Outer::Run out{send, mine};
    CCL_CHECK(parts_->outer->gather({&out, 1}, bytes, host, stream));
    if (locals() == 1) return {};
    std::vector<Run> runs;
    if (levels().host_stride == 1) {  // data that a rail has gathered lies side by side
      runs.push_back({mine, recv});
      return parts_->first.gather(runs, bytes * hosts(), local, stream);
    }
    for (Index h = 0; h < hosts(); ++h) runs.push_back({mine + h * host, recv + h * host});
    return parts_->first.gather(runs, bytes, local, stream);
  }

  Result<void> all_to_all(const char* send, char* recv, Index bytes, Stream stream) const {
    const int H = int(hosts()), L = int(locals());
    const auto place = [&](int host, int local) {
      return (Index{host} * levels().host_stride + Index{local} * levels().local_stride) * bytes;
    };
    // Bytes of a message that go through the scratch at once.
    Index most = scratch_bytes() / comm().ranks();
    if (most >= 128) most = most / 128 * 128;
    if (most == 0) return too_large(comm().ranks(), 1);
    if (H == 1 || L == 1) most = std::max<Index>(bytes, 1);
    for (Index at = 0; at < bytes; at += most) {
      const Index part = std::min(most, bytes - at);
      // The relay holds [destination host][source rank of this host], for the ranks of this rail.
      const auto relay = [&](int h, int n) { return scratch<char>() + (Index{h} * L + n) * part; };
      if (L > 1 || H == 1) {
        auto inside = parts_->first.table();
        for (int n = 0; n < L; ++n) {
          for (int h = 0; h < H; ++h) {
            const bool stays = h == levels().host;
            inside.send(n, send + place(h, n) + at, part);
            inside.recv(n, stays ? recv + place(h, n) + at : relay(h, n), part);
          }
        }
        CCL_CHECK(parts_->first.send_all(std::move(inside), stream));
      }
      if (H == 1) continue;
      auto between = parts_->outer->table();
      // One message is enough if all parts end up in one piece.
      const int step = part == bytes && levels().local_stride == 1 ? L : 1;
      for (int h = 0; h < H; ++h) {
        if (h == levels().host && L > 1) continue;
        for (int n = 0; n < L; n += step) {
          between.send(h, L > 1 ? relay(h, n) : send + place(h, 0) + at, step * part);
          between.recv(h, recv + place(h, n) + at, step * part);
        }
      }
      CCL_CHECK(parts_->outer->send_all(std::move(between), stream));
    }
    return {};
  }

  Result<void> broadcast(const void* send, void* recv, Index bytes, int root, Stream stream) const {
    const int host = levels().host_of(root), local = levels().local_of(root);
    const bool at_home = levels().host == host;
    // With uneven hosts, first ranks send between hosts. The root's host then broadcasts inside
    // first.
    const int first = levels().even ? local : 0;
    const bool early = at_home && (first != local || hosts() == 1);
    if (early) CCL_CHECK(parts_->first.broadcast(send, recv, bytes, local, stream));
    if (hosts() > 1 && levels().local == first) {
      const void* const from = root == comm().rank() ? send : recv;
      CCL_CHECK(parts_->outer->broadcast(from, recv, bytes, host, stream));
    }
    if (early) return {};
    const void* const from = root == comm().rank() ? send : recv;
    return parts_->first.broadcast(from, recv, bytes, first, stream);
  }

 private:
  const Levels& levels() const { return *parts_->levels; }
  Index locals() const { return levels().locals(); }
  Index hosts() const { return levels().host_count(); }
  Index scratch_bytes() const { return parts_->order.scratch_bytes(); }
  template <class T>
  T* scratch() const {
    return reinterpret_cast<T*>(parts_->order.scratch());
  }

  /// Reduces inside a host, as the only step or as the first one.
  template <class Rs>
  Result<void> first(const Rs& by, const void* in, void* out, const Layout& layout, int root,
                     Stream stream) const {
    if (hosts() == 1) return parts_->first.reduce(by.whole, in, out, layout, root, stream);
    return parts_->first.reduce(by.begun, in, out, layout, root, stream);
  }
  /// Reduces between hosts, as the only step or as the second one.
  template <class Rs>
  Result<void> second(const Rs& by, const void* in, void* out, const Layout& layout, int root,
                      Stream stream) const {
    if (hosts() == comm().ranks()) {
      return parts_->outer->reduce(by.whole, in, out, layout, root, stream);
    }
    if (hosts() == 1) return {};
    return parts_->outer->reduce(by.ended, in, out, layout, root, stream);
  }

  /// Reduces data that fits the scratch, filled up to equal shares with some of its own elements. A
  /// functor never sees other elements.
  template <class T, class Rs>
  Result<void> filled_reduce(const T* send, T* recv, Index count, const Rs& by,
                             Stream stream) const {
    const bool on_device = comm().device() >= 0;
    const Index each = (count + locals() - 1) / locals(), bytes = count * Index{sizeof(T)};
    T* const whole = scratch<T>();
    CCL_CHECK(copy_own(comm(), on_device, whole, send, bytes, stream));
    CCL_CHECK(fill_up(comm(), on_device, whole, bytes, each * locals() * Index{sizeof(T)}, stream));
    CCL_CHECK(rail_reduce(whole, whole, each, by, stream));
    return copy_own(comm(), on_device, recv, whole, bytes, stream);
  }
  /// Reduces `each` elements for each rank of a host.
  template <class T, class Rs>
  Result<void> rail_reduce(const T* send, T* recv, Index each, const Rs& by, Stream stream) const {
    if (each == 0) return {};
    const Index parts = std::min(max_parts, each * Index{sizeof(T)} / min_part_bytes);
    if (parts_->between && parts > 1) {
      const Index equal = (each + parts - 1) / parts;
      const Index step = equal >= 128 ? equal / 128 * 128 : equal;
      if (stream.host() == nullptr) return rail_reduce_in_turns(send, recv, each, step, by);
      stream.host()->enqueue([=, *this] {
        return guarded(comm(), [&] {
          return shared_failure(comm(), rail_reduce_in_turns(send, recv, each, step, by));
        });
      });
      return {};
    }
    CCL_CHECK(rail_scatter(send, recv, each, 0, each, by, stream));
    CCL_CHECK(rail_cross(recv, each, 0, each, by, stream));
    return rail_gather(recv, each, 0, each, stream);
  }
  /// Long shares are cut into parts. While one part crosses between hosts, the earlier part is
  /// gathered and the next one is scattered inside.
  static constexpr Index max_parts = 8;
  static constexpr Index min_part_bytes = Index{512} << 10;

  /// Reduces part after part. Returns when no part is under way, also after an error.
  template <class T, class Rs>
  Result<void> rail_reduce_in_turns(const T* send, T* recv, Index each, Index step,
                                    const Rs& by) const {
    HostStream& between = *parts_->between;
    std::mutex mutex;
    std::condition_variable crossed;
    Index across = 0;  // number of parts that have crossed
    const auto gather_behind = [&](Index part) {
      {
        std::unique_lock lock{mutex};
        crossed.wait(lock, [&] { return across > part; });
      }
      const Index at = part * step;
      return rail_gather(recv, each, at, std::min(step, each - at), {});
    };
    const auto all = [&]() -> Result<void> {
      Index part = 0;
      for (Index at = 0; at < each; at += step, ++part) {
        const Index n = std::min(step, each - at);
        CCL_CHECK(rail_scatter(send, recv, each, at, n, by, {}));
        CCL_CHECK(rail_cross(recv, each, at, n, by, between));
        between.enqueue([&]() -> Result<void> {
          const std::lock_guard lock{mutex};
          ++across;
          crossed.notify_one();
          return {};
        });
        if (part > 0) CCL_CHECK(gather_behind(part - 1));
      }
      return gather_behind(part - 1);
    };
    const Result<void> here = guarded(comm(), all), there = between.synchronize();
    return there ? here : there;
  }

  /// `rail_scatter`, `rail_cross` and `rail_gather` handle elements `at` to `at + n` of each rank's
  /// share.
  /// - `rail_scatter` reduces this rank's part over the host, into its place.
  /// - `rail_cross` reduces it over all hosts.
  /// - `rail_gather` gathers the parts of all ranks of the host.
  template <class T, class Rs>
  Result<void> rail_scatter(const T* send, T* recv, Index each, Index at, Index n, const Rs& by,
                            Stream stream) const {
    T* const mine = recv + levels().local * each + at;
    return first(by, send + at, mine, {n, each, 0, false}, 0, stream);
  }
  template <class T, class Rs>
  Result<void> rail_cross(T* recv, Index each, Index at, Index n, const Rs& by,
                          Stream stream) const {
    T* const mine = recv + levels().local * each + at;
    return second(by, mine, mine, {n, 0, 0, true}, 0, stream);
  }
  template <class T>
  Result<void> rail_gather(T* recv, Index each, Index at, Index n, Stream stream) const {
    const T* const mine = recv + levels().local * each + at;
    const typename Parts::Last::Run run{reinterpret_cast<const char*>(mine),
                                        reinterpret_cast<char*>(recv + at)};
    return parts_->last.gather({&run, 1}, n * Index{sizeof(T)}, each * Index{sizeof(T)}, stream);
  }

  /// Returns the error that `pieces` elements do not fit.
  Result<void> too_large(Index pieces, std::size_t element) const {
    constexpr const char* other = is_one_of<Op, AllToAll>        ? "Pairwise"
                                  : is_one_of<Op, ReduceScatter> ? "Ring"
                                                                 : "Ring or Tree";
    return fail(scratch_too_small(comm(), parts_->name, scratch_bytes(), pieces, element, other));
  }

  Handle<Parts, Parts::moved_from> parts_;
};

}  // namespace ccl::detail
