#pragma once

#include <ccl/choice.hpp>
#include <ccl/collective/arguments.hpp>
#include <ccl/collective/call_arguments.hpp>
#include <ccl/collective/checks.hpp>
#include <ccl/collective/copies.hpp>
#include <ccl/collective/default_plans.hpp>
#include <ccl/collective/device_launch.hpp>
#include <ccl/collective/host_launch.hpp>
#include <ccl/collective/peer_call.hpp>
#include <ccl/collective/seats.hpp>
#include <ccl/collective/wire_call.hpp>
#include <ccl/communicator.hpp>
#include <ccl/connector.hpp>
#include <ccl/handle.hpp>
#include <ccl/links.hpp>
#include <ccl/transport/one_side.hpp>

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace ccl::detail {

/// What every composition has: the links, shared by all copies.
template <class Op, class Algo, class Proto, Sides sides>
class Composition {
 public:
  /// The numbers that this composition runs with.
  const Plan& plan() const { return links_->plan(); }
  /// "all_reduce/Ring/LL128/shm": what runs.
  const std::string& name() const { return links_->name(); }
  /// Of the communicator's compositions, in order of creation.
  int number() const { return links_->number(); }
  int ranks() const { return links_->comm().ranks(); }

 protected:
  explicit Composition(std::shared_ptr<Links> links) : links_{std::move(links)} {}
  Composition() = default;  // of nobody

  /// Collective. `late`: on CPU ranks, wires wait for the first call.
  template <Transport T>
  static Result<std::shared_ptr<Links>> make_links(const Communicator& comm,
                                                   std::optional<Plan> plan, bool late = false) {
    CCL_CHECK(check_ready(comm));
    CCL_TRY(const auto lock, creating_alone(comm, name_with<T>()));
    CCL_CHECK(check_side(comm, name_with<T>(), sides.cpus, sides.gpus));
    if (plan && plan->slot_bytes == 0) plan->slot_bytes = Proto::default_slot_bytes;
    if (plan) CCL_CHECK(check_plan(comm, *plan));
    static_cast<void>(&known_algorithm<Algo>);
    static_cast<void>(&known_protocol<Proto>);
    const auto may = may_compose(Op::name, Algo::name, Proto::name);
    if constexpr (OverPeers<Algo>) {
      return make_peers<T>(comm, may ? Result<Plans>{peer_plans<Algo>(plan)} : fail(may.error()));
    } else {
      return make_wires<T>(comm, may ? wire_plans<Algo, Proto>(comm, plan) : fail(may.error()),
                           late && comm.device() < 0);
    }
  }

  /// Runs now or, given a stream, when everything before it there has run.
  template <class R>
  Result<void> launch(const CallInfo& info, const R& reduction, const void* input, void* output,
                      const Layout& layout, int root, Stream stream) const {
    if constexpr (constexpr int align = int(alignof(typename R::Type)); align > 1) {
      const bool has_output = !Op::rooted || links_->comm().rank() == root;
      if (links_->on_device()) {
        CCL_CHECK(check_aligned(links_->comm(), input, has_output ? output : nullptr,
                                align < 16 ? align : 16));
      }
    }
    [[maybe_unused]] const CallArguments<R> given{reduction, input, output, layout, root};
    if constexpr (OverPeers<Algo>) {
      if constexpr (MovesByCopies<Algo>) {
        if (stream.recorder() != nullptr) {
          stream.recorder()->call = std::make_unique<GpuCall>(links_, info);
          return {};
        }
        return reduce_by_copies<Op, Algo, Proto>(*links_, info, reduction, input, output, layout,
                                                 stream);
      } else {
        enroll<PeerKernels<Op, Algo, Proto, R>>();
        if (stream.recorder() != nullptr) {
          stream.recorder()->call =
              std::make_unique<PeerCall<Op, Algo, Proto, R>>(links_, info, given);
          return {};
        }
        return launch_over_peers<Op, Algo, Proto>(*links_, info, given, stream);
      }
    } else {
      if (stream.recorder() != nullptr) {
        if constexpr (sides.cpus) {
          stream.recorder()->call =
              std::make_unique<WireCall<Op, Algo, Proto, R>>(links_, info, given);
        } else {
          stream.recorder()->call = std::make_unique<GpuCall>(links_, info);
        }
        return {};
      }
      if constexpr (sides.gpus) {
        enroll<WireKernels<Op, Algo, Proto, R>>();
        if (links_->on_device()) {
          return launch_on_device<Op, Algo, Proto>(*links_, info, given, stream);
        }
      }
      if constexpr (sides.cpus) {
        return queue_on_host(links_, info, stream, [given](Links& links, const CallInfo& noted) {
          return run_on_host<Op, Algo, Proto>(links, noted, given);
        });
      }
      return fail(links_->no_device_code());  // not reached: `make_links` refused
    }
  }

  /// All that a rank alone has to do.
  template <class R>
  Result<void> reduce_alone(const R& reduction, const void* in, void* out, Index count,
                            Stream stream) const {
    enroll<AloneKernels<R>>();
    if (links_->on_device()) {
      return reduce_alone_on_device(*links_, reduction, in, out, count, stream);
    }
    return queue_on_host(*links_, stream,
                         [reduction, in, out, count, keep = links_]() -> Result<void> {
                           alone(reduction.load(), in, out, count);
                           return {};
                         });
  }
  Result<void> move_alone(const void* from, void* to, Index bytes, Stream stream) const {
    if (links_->on_device()) return links_->copy(to, from, bytes, stream);
    return queue_on_host(*links_, stream, [from, to, bytes, keep = links_]() -> Result<void> {
      alone(Bytes{}, from, to, bytes);
      return {};
    });
  }

  Handle<Links, Links::nobody> links_;

 private:
  template <Transport T>
  static std::string name_with() {
    return fmt::format("{}/{}/{}/{}", Op::name, Algo::name, Proto::name, T::name);
  }
  template <Transport T>
  static Result<std::shared_ptr<Links>> make_wires(const Communicator& comm,
                                                   const Result<Plans>& plans, bool late) {
    CCL_TRY(auto links, Links::create(comm, plans, Algo::most_wires(comm.ranks()),
                                      WireNeeds::of<Proto>(), connector<T>(), name_with<T>()));
    const auto prepare = [&]() -> Result<void> {
      if (comm.device() < 0) return {};
      CCL_CHECK(links->reserve());
      return load_kernels<Op, Algo, Proto>(*links);
    };
    const Result<void> ready = prepare();
    if (comm.ranks() == 1) {
      CCL_CHECK(ready);
    } else if (wires_by_root<Op, Algo> || late) {
      CCL_CHECK(links->all_agree(ready));
    } else if (Exchanges<Op, Algo> && links->opens_later()) {
      CCL_CHECK(links->open_later(ready));
    } else {
      CCL_CHECK((connect_seats<Op, Algo>(*links, 0, ready)));
    }
    return links;
  }
  template <Transport T>
  static Result<std::shared_ptr<Links>> make_peers(const Communicator& comm,
                                                   const Result<Plans>& plans) {
    CCL_TRY(auto links,
            Links::create(comm, plans, 1, WireNeeds::of<Proto>(), connector<T>(), name_with<T>()));
    if (comm.ranks() == 1) return links;
    constexpr bool any_count = ExchangesOverPeers<Op, Algo>;
    using Counts = cuda::std::conditional_t<any_count, AnyRankCount, typename Algo::RankCounts>;
    const auto prepare = [&]() -> Result<void> {
      if (comm.device() < 0 || !Counts::has(comm.ranks())) {
        return fail(links->no_peer_view());
      }
      return load_kernels<Op, Algo, Proto>(*links);
    };
    CCL_CHECK(links->map_peers(prepare()));
    if constexpr (MovesByCopies<Algo>) CCL_CHECK(links->open_side(Algo::stages));
    if (TellsByStream<Algo>) CCL_CHECK(links->open_signals());
    if (StoresPlainly<Algo>) CCL_CHECK(links->open_doors());
    return links;
  }
};

}  // namespace ccl::detail
