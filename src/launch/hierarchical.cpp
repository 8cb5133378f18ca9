#include <ccl/detail/compose/check_composition.hpp>
#include <ccl/detail/compose/creation.hpp>
#include <ccl/detail/hierarchical/parts.hpp>
#include <ccl/detail/map/elements.hpp>
#include <ccl/detail/runtime/connections.hpp>
#include <ccl/detail/runtime/guarded.hpp>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <utility>
#include <vector>

namespace ccl::detail {

Result<void> AnyStage::wrong_operation(const char* op) {
  return fail(Errc::internal, std::string{"a level of "} + op + " runs nothing else");
}
const Plan& HierarchicalParts::plan() const {
  static const Plan none{};  // of moved-from handles
  return outer ? outer->level_plan() : first ? first->level_plan() : none;
}
std::shared_ptr<HierarchicalParts> HierarchicalParts::moved_from() {
  static HierarchicalParts* const parts =
      new HierarchicalParts{Access::communicator(detail::moved_from()), {}};
  return {std::shared_ptr<void>{}, parts};
}

namespace {
/// Creates the stages. Each step needs all ranks. If one rank refuses, all ranks get an error.
Result<void> make_stages(HierarchicalParts& parts, const std::optional<Plan>& plan) {
  const HierarchicalOf& of = parts.of;
  const Communicator& comm = parts.comm;
  const auto step = [&](auto&& prepare) { return agree_on(comm, parts.name, prepare()); };
  CCL_CHECK(step([&]() -> Result<void> {
    CCL_CHECK(may_compose(of.op, of.algo, of.proto, comm.device() >= 0));
    if (!of.by_rail) return {};
    return check_rails(comm, parts.name, of.by_rank);
  }));
  CCL_TRY(parts.levels, levels_of(comm, of.heads));
  const Levels& levels = *parts.levels;
  CCL_CHECK(step([&]() -> Result<void> {
    CCL_TRY(parts.first, of.inner(levels.inner, {}));
    if (of.last == nullptr) return {};
    CCL_TRY(parts.last, of.last(levels.inner, {}));
    return {};
  }));
  return step([&]() -> Result<void> {
    const auto& rail = of.heads ? levels.head_rail : levels.outer;
    if (!rail && !of.heads) return {};
    if (rail) {
      CCL_TRY(parts.outer, of.outer(*rail, plan));
    }
    if (of.last != nullptr && of.rails && comm.device() < 0 && levels.host_count() > 1 &&
        levels.host_count() < comm.ranks()) {
      parts.between = std::make_shared<HostStream>();
    }
    if (!of.needs_scratch) return {};
    return parts.order.take_scratch(level_scratch_bytes(comm.device() >= 0));
  });
}

/// Steps of a `Hierarchical` for each operation, level by level. Arguments have been checked.
/// Addresses advance by bytes, because element types are not known here.
class Steps {
 public:
  explicit Steps(std::shared_ptr<HierarchicalParts> parts) : parts_{std::move(parts)} {}

  Result<void> all_reduce(const char* send, char* recv, Index count, const LevelReductions& by,
                          Stream stream) const {
    const Layout whole{count, 0, 0, true};
    const Index size = by.element_bytes;
    if (hosts() == comm().ranks()) return second(by, send, recv, whole, 0, stream);
    if (!parts_->of.rails) {
      // The data goes through the first rank of each host.
      CCL_CHECK(first(by, send, recv, {count, 0, 0, false}, 0, stream));
      if (levels().local == 0) CCL_CHECK(second(by, recv, recv, whole, 0, stream));
      return parts_->last->broadcast(recv, recv, count * size, 0, stream);
    }
    // Whole lines of equal shares go from buffer to buffer. The rest, or a message too short for
    // equal shares, is filled up in scratch memory.
    const Index each = count / rails();
    const bool is_long = each * size >= 65536;
    const Index straight = is_long ? each / 128 * 128 : each * rails() == count ? each : 0;
    CCL_CHECK(rail_reduce(send, recv, straight, by, stream));
    if (straight * rails() == count) return {};
    const Index most = scratch_bytes() / (rails() * size) * rails();
    if (most == 0) return too_large(rails(), size);
    for (Index at = straight * rails(); at < count; at += most) {
      const Index n = std::min(most, count - at);
      CCL_CHECK(filled_reduce(send + at * size, recv + at * size, n, by, stream));
    }
    return {};
  }

  Result<void> reduce_scatter(const char* send, char* recv, Index count, const LevelReductions& by,
                              Stream stream) const {
    const Index size = by.element_bytes;
    const Index from_host = levels().host_stride * count,
                from_local = levels().local_stride * count;
    if (hosts() == 1 || locals() == 1) {
      const Layout layout{count, count, 0, false};
      if (locals() == 1) return second(by, send, recv, layout, 0, stream);
      return first(by, send, recv, layout, 0, stream);
    }
    const Index most = scratch_bytes() / (hosts() * size);
    if (most == 0) return too_large(hosts(), size);
    const Index step = most >= 128 ? most / 128 * 128 : most;
    char* const partial = scratch();
    for (Index at = 0; at < count; at += step) {
      const Index n = std::min(step, count - at);
      for (Index h = 0; h < hosts(); ++h) {
        CCL_CHECK(first(by, send + (h * from_host + at) * size, partial + h * n * size,
                        {n, from_local, 0, false}, 0, stream));
      }
      CCL_CHECK(second(by, partial, recv + at * size, {n, n, 0, false}, 0, stream));
    }
    return {};
  }

  Result<void> reduce(const char* send, char* recv, Index count, const LevelReductions& by,
                      int root, Stream stream) const {
    const Index size = by.element_bytes;
    const int host = levels().host_of(root), local = levels().local_of(root);
    if (locals() == 1) return second(by, send, recv, {count, 0, 0, false}, host, stream);
    if (hosts() == 1) return first(by, send, recv, {count, 0, 0, false}, local, stream);
    const Index step = scratch_bytes() / size;
    if (step == 0) return too_large(1, size);
    const bool mine = root == comm().rank();
    for (Index at = 0; at < count; at += step) {
      const Index n = std::min(step, count - at);
      char* const partial = mine ? recv + at * size : scratch();
      CCL_CHECK(first(by, send + at * size, partial, {n, 0, 0, false}, local, stream));
      if (levels().local != local) continue;
      CCL_CHECK(second(by, partial, partial, {n, 0, 0, false}, host, stream));
    }
    return {};
  }

  Result<void> all_gather(const char* send, char* recv, Index bytes, Stream stream) const {
    const Index host = levels().host_stride * bytes, local = levels().local_stride * bytes;
    // Place of the first host's rank on this rank's rail.
    char* const mine = recv + levels().local * local;
    if (hosts() == 1) {
      const AnyStage::Run run{send, recv};
      return parts_->first->gather({&run, 1}, bytes, bytes, stream);
    }
    const AnyStage::Run out{send, mine};
    CCL_CHECK(parts_->outer->gather({&out, 1}, bytes, host, stream));
    if (locals() == 1) return {};
    std::vector<AnyStage::Run> runs;
    if (levels().host_stride == 1) {  // data that a rail has gathered lies side by side
      runs.push_back({mine, recv});
      return parts_->first->gather(runs, bytes * hosts(), local, stream);
    }
    for (Index h = 0; h < hosts(); ++h) runs.push_back({mine + h * host, recv + h * host});
    return parts_->first->gather(runs, bytes, local, stream);
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
      const auto relay = [&](int h, int n) { return scratch() + (Index{h} * L + n) * part; };
      if (L > 1 || H == 1) {
        MessageTable inside{L};
        for (int n = 0; n < L; ++n) {
          for (int h = 0; h < H; ++h) {
            const bool stays = h == levels().host;
            inside.send(n, send + place(h, n) + at, part);
            inside.recv(n, stays ? recv + place(h, n) + at : relay(h, n), part);
          }
        }
        CCL_CHECK(parts_->first->send_all(std::move(inside), stream));
      }
      if (H == 1) continue;
      MessageTable between{levels().outer->ranks()};
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

  Result<void> broadcast(const char* send, char* recv, Index bytes, int root, Stream stream) const {
    const int host = levels().host_of(root), local = levels().local_of(root);
    const bool at_home = levels().host == host;
    // With uneven hosts, first ranks send between hosts. The root's host then broadcasts inside
    // first.
    const int first = levels().even ? local : 0;
    const bool early = at_home && (first != local || hosts() == 1);
    if (early) CCL_CHECK(parts_->first->broadcast(send, recv, bytes, local, stream));
    if (hosts() > 1 && levels().local == first) {
      const void* const from = root == comm().rank() ? send : recv;
      CCL_CHECK(parts_->outer->broadcast(from, recv, bytes, host, stream));
    }
    if (early) return {};
    const void* const from = root == comm().rank() ? send : recv;
    return parts_->first->broadcast(from, recv, bytes, first, stream);
  }

 private:
  const Communicator& comm() const { return parts_->comm; }
  const Levels& levels() const { return *parts_->levels; }
  Index locals() const { return levels().locals(); }
  Index hosts() const { return levels().host_count(); }
  /// Rails of an AllReduce, each with a share of the message.
  Index rails() const {
    return parts_->of.heads ? Index(levels().heads[std::size_t(levels().host)].size()) : locals();
  }
  /// Rail of this rank; -1: it is no head.
  int rail() const { return parts_->of.heads ? levels().slice : levels().local; }
  /// Place of this rank's share from its element `at` on. A rank without one stores nothing there.
  char* own_share(char* recv, Index each, Index at, Index size) const {
    return recv + (std::max(rail(), 0) * each + at) * size;
  }
  Index scratch_bytes() const { return parts_->order.scratch_bytes(); }
  char* scratch() const { return parts_->order.scratch(); }

  /// Reduces inside a host, as the only pass or as the first one.
  Result<void> first(const LevelReductions& by, const void* in, void* out, const Layout& layout,
                     int root, Stream stream) const {
    const Pass pass = hosts() == 1 ? Pass::whole : Pass::begun;
    return by.inner(*parts_->first, by.by, pass, in, out, layout, root, stream);
  }
  /// Reduces between hosts, as the only pass or as the second one.
  Result<void> second(const LevelReductions& by, const void* in, void* out, const Layout& layout,
                      int root, Stream stream) const {
    if (hosts() == 1 && comm().ranks() > 1) return {};
    const Pass pass = hosts() == comm().ranks() ? Pass::whole : Pass::ended;
    return by.outer(*parts_->outer, by.by, pass, in, out, layout, root, stream);
  }

  /// Reduces data that fits the scratch, filled up to equal shares with some of its own elements. A
  /// functor never sees other elements.
  Result<void> filled_reduce(const char* send, char* recv, Index count, const LevelReductions& by,
                             Stream stream) const {
    const bool on_device = comm().device() >= 0;
    const Index size = by.element_bytes;
    const Index each = (count + rails() - 1) / rails(), bytes = count * size;
    char* const whole = scratch();
    CCL_CHECK(copy_own(comm(), on_device, whole, send, bytes, stream));
    CCL_CHECK(fill_up(comm(), on_device, whole, bytes, each * rails() * size, stream));
    CCL_CHECK(rail_reduce(whole, whole, each, by, stream));
    return copy_own(comm(), on_device, recv, whole, bytes, stream);
  }
  /// Reduces `each` elements for each rail of a host.
  Result<void> rail_reduce(const char* send, char* recv, Index each, const LevelReductions& by,
                           Stream stream) const {
    if (each == 0) return {};
    const Index parts = std::min(max_parts, each * by.element_bytes / min_part_bytes);
    if (parts_->between && parts > 1) {
      const Index equal = (each + parts - 1) / parts;
      const Index step = equal >= 128 ? equal / 128 * 128 : equal;
      if (stream.host() == nullptr) return rail_reduce_in_turns(send, recv, each, step, by);
      stream.host()->enqueue([=, kept = by.kept(), *this] {
        return guarded(comm(), [&] {
          return shared_failure(comm(), rail_reduce_in_turns(send, recv, each, step, kept));
        });
      });
      return {};
    }
    CCL_CHECK(rail_scatter(send, recv, each, 0, each, by, stream));
    CCL_CHECK(rail_cross(recv, each, 0, each, by, stream));
    return rail_gather(recv, each, 0, each, by.element_bytes, stream);
  }
  /// Long shares are cut into parts. While one part crosses between hosts, the earlier part is
  /// gathered and the next one is scattered inside.
  static constexpr Index max_parts = 8;
  static constexpr Index min_part_bytes = Index{512} << 10;

  /// Reduces part after part. Returns when no part is under way, also after an error.
  Result<void> rail_reduce_in_turns(const char* send, char* recv, Index each, Index step,
                                    const LevelReductions& by) const {
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
      return rail_gather(recv, each, at, std::min(step, each - at), by.element_bytes, {});
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
  Result<void> rail_scatter(const char* send, char* recv, Index each, Index at, Index n,
                            const LevelReductions& by, Stream stream) const {
    const Index size = by.element_bytes;
    char* const mine = own_share(recv, each, at, size);
    return first(by, send + at * size, mine, {n, each, 0, false}, 0, stream);
  }
  Result<void> rail_cross(char* recv, Index each, Index at, Index n, const LevelReductions& by,
                          Stream stream) const {
    if (rail() < 0) return {};
    char* const mine = own_share(recv, each, at, by.element_bytes);
    return second(by, mine, mine, {n, 0, 0, true}, 0, stream);
  }
  Result<void> rail_gather(char* recv, Index each, Index at, Index n, Index size,
                           Stream stream) const {
    const char* const mine = own_share(recv, each, at, size);
    const AnyStage::Run run{mine, recv + at * size};
    return parts_->last->gather({&run, 1}, n * size, each * size, stream);
  }

  /// Returns the error that `pieces` elements do not fit.
  Result<void> too_large(Index pieces, Index element_bytes) const {
    return fail(scratch_too_small(comm(), parts_->name, scratch_bytes(), pieces,
                                  std::size_t(element_bytes), parts_->of.other));
  }

  std::shared_ptr<HierarchicalParts> parts_;
};

/// Runs `steps(Steps, send, recv)` after the launches of earlier calls.
template <class F>
Result<void> in_order(const HierarchicalOwner& parts, const HierarchicalCall& call, F steps) {
  CCL_CHECK(check_ready(parts->comm));
  CCL_CHECK(check_stream(parts->comm, parts->name, call.stream));
  return in_turn(parts->comm, parts, call.stream, [&] {
    return steps(Steps{parts}, static_cast<const char*>(call.send), static_cast<char*>(call.recv));
  });
}
}  // namespace

Result<std::shared_ptr<HierarchicalParts>> make_hierarchical(const Communicator& comm,
                                                             const HierarchicalOf& of,
                                                             const std::optional<Plan>& plan) {
  return guarded(comm, [&]() -> Result<std::shared_ptr<HierarchicalParts>> {
    CCL_CHECK(check_ready(comm));
    if (plan) CCL_CHECK(check_plan(comm, *plan));
    auto parts = std::make_shared<HierarchicalParts>(comm, of);
    parts->name = std::string{of.op} + "/" + of.algo + "/" + of.proto + "/" + of.transport;
    CCL_TRY(const auto lock, creating_alone(comm, parts->name));
    CCL_CHECK(make_stages(*parts, plan));
    return parts;
  });
}

Result<void> all_reduce_on_levels(const HierarchicalOwner& parts, const HierarchicalCall& call,
                                  const LevelReductions& by) {
  return in_order(parts, call, [&](const Steps& steps, const char* send, char* recv) {
    return steps.all_reduce(send, recv, call.count, by, call.stream);
  });
}
Result<void> reduce_scatter_on_levels(const HierarchicalOwner& parts, const HierarchicalCall& call,
                                      const LevelReductions& by) {
  return in_order(parts, call, [&](const Steps& steps, const char* send, char* recv) {
    return steps.reduce_scatter(send, recv, call.count, by, call.stream);
  });
}
Result<void> reduce_on_levels(const HierarchicalOwner& parts, const HierarchicalCall& call,
                              const LevelReductions& by) {
  return in_order(parts, call, [&](const Steps& steps, const char* send, char* recv) {
    return steps.reduce(send, recv, call.count, by, call.root, call.stream);
  });
}
Result<void> all_gather_on_levels(const HierarchicalOwner& parts, const HierarchicalCall& call) {
  return in_order(parts, call, [&](const Steps& steps, const char* send, char* recv) {
    return steps.all_gather(send, recv, call.count, call.stream);
  });
}
Result<void> all_to_all_on_levels(const HierarchicalOwner& parts, const HierarchicalCall& call) {
  return in_order(parts, call, [&](const Steps& steps, const char* send, char* recv) {
    return steps.all_to_all(send, recv, call.count, call.stream);
  });
}
Result<void> broadcast_on_levels(const HierarchicalOwner& parts, const HierarchicalCall& call) {
  return in_order(parts, call, [&](const Steps& steps, const char* send, char* recv) {
    return steps.broadcast(send, recv, call.count, call.root, call.stream);
  });
}

}  // namespace ccl::detail
