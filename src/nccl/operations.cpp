#include "nccl/abi/operations.hpp"

#include <ccl/comm/log.hpp>
#include <ccl/detail/base/spare.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "base/call_bounds.hpp"
#include "choose/only_selected.hpp"
#include "comm/peer_waits.hpp"
#include "nccl/abi/common_settings.hpp"
#include "nccl/abi/config.hpp"
#include "nccl/abi/zero_copies.hpp"
#include "nccl/contents.hpp"
#include "nccl/device/devices.hpp"
#include "nccl/fallback/reductions.hpp"
#include "nccl/plug_in/tuner.hpp"
#include "nccl/reduce.hpp"

namespace ccl::detail::nccl {
namespace {

template <class T, class... Ts>
constexpr bool listed(ccl::Types<Ts...>) {
  return (std::is_same_v<T, Ts> || ...);
}

template <class... Fs>
bool named(ccl::Reductions<Fs...>, std::string_view name) {
  return ((name == Fs::name) || ...);
}

/// Logs once for a process that a result is left to chance, as NCCL leaves it.
void warn_of_chance(const char* what) {
  static std::atomic<bool> warned{false};
  if (warned.exchange(true, std::memory_order_relaxed)) return;
  log_warn(LogPart::coll, "{}; which bytes are sent is left to chance", what);
}

/// True if a buffer that a message is received into overlaps that of another message of the group.
bool any_overlap(std::span<const Call> messages) {
  struct Run {
    const char *begin, *end;
    bool written;
  };
  std::vector<Run> runs;
  for (const Call& one : messages) {
    const bool sends = one.kind == Kind::send;
    const char* const at = static_cast<const char*>(sends ? one.send : one.recv);
    if (one.count > 0) runs.push_back({at, at + one.count * size_of(one.type), !sends});
  }
  std::ranges::sort(runs, {}, &Run::begin);
  const char *written_to = nullptr, *read_to = nullptr;
  for (const Run& run : runs) {
    if (run.begin < written_to || (run.written && run.begin < read_to)) return true;
    const char*& end = run.written ? written_to : read_to;
    end = std::max(end, run.end);
  }
  return false;
}

/// The operation of all calls, and those of calls that select algorithms.
template <class Op, class Algo>
struct Kept {
  std::optional<Collective<Op, Algo>> plain;
  // Nothing if the selection leaves none and the calls take any.
  std::map<std::string, std::optional<Collective<Op, Algo>>> selected;
};

class Made : public Operations {
 public:
  Made(const Communicator& comm, const CommonSettings& common)
      : comm_{comm}, common_{common}, on_gpu_{comm.peer(comm.rank()).device >= 0} {}

  template <class Op, class Algo = Auto>
  Result<const Collective<Op, Algo>*> get() {
    auto& one = std::get<Kept<Op, Algo>>(made_).plain;
    if (!one) {
      CCL_CHECK(check_may_wait());
      CCL_TRY(auto made, (create_by<Op, Algo>()));
      one.emplace(std::move(made));
    }
    return &*one;
  }

  Result<void> run(const Call& call) override {
    const CallBounds within{bounds_of(call)};
    switch (call.kind) {
      case Kind::all_reduce:
        return reduce<AllReduce>(call);
      case Kind::reduce_scatter:
        return reduce<ReduceScatter>(call);
      case Kind::reduce:
        return reduce<Reduce>(call);
      case Kind::all_gather:
        return move<AllGather>(call);
      case Kind::broadcast:
        return move<Broadcast>(call, call.root);
      case Kind::all_to_all:
        return call.send == call.recv ? all_to_all_in_place(call) : move<AllToAll>(call);
      case Kind::gather:
        return move<Gather>(call, call.root);
      case Kind::scatter:
        return move<Scatter>(call, call.root);
      case Kind::send:
      case Kind::recv:
        break;
    }
    return exchange({&call, 1});
  }

  bool has_code(const Call& call) const override {
    if (!call.reduces()) return true;
    return named(Reductions{}, call.op.name()) &&
           with_type(call.type, []<class T>(TypeTag<T>) { return listed<T>(Types{}); });
  }

  Result<Choice> choice(const Call& call) override {
    const CallBounds within{bounds_of(call)};
    switch (call.kind) {
      case Kind::all_reduce:
        return choice_of_reduction<AllReduce>(call);
      case Kind::reduce_scatter:
        return choice_of_reduction<ReduceScatter>(call, comm_.ranks());
      case Kind::reduce:
        return choice_of_reduction<Reduce>(call);
      case Kind::all_gather:
        return choice_by<AllGather, Auto>(call, comm_.ranks());
      case Kind::broadcast:
        return choice_by<Broadcast, Auto>(call);
      case Kind::all_to_all:
        return choice_by<AllToAll, Auto>(call, comm_.ranks());
      case Kind::gather:
        return choice_by<Gather, Auto>(call, comm_.ranks());
      case Kind::scatter:
        return choice_by<Scatter, Auto>(call, comm_.ranks());
      case Kind::send:
      case Kind::recv:
        break;
    }
    return fail(Errc::internal, "messages have no choice");
  }

  Result<double> predict(const Call& call) const override {
    switch (call.kind) {
      case Kind::all_reduce:
        return predict<AllReduce>(call);
      case Kind::reduce_scatter:
        return predict<ReduceScatter>(call, comm_.ranks());
      case Kind::reduce:
        return predict<Reduce>(call);
      case Kind::all_gather:
        return predict<AllGather>(call, comm_.ranks());
      case Kind::broadcast:
        return predict<Broadcast>(call);
      case Kind::all_to_all:
        return predict<AllToAll>(call, comm_.ranks());
      case Kind::gather:
        return predict<Gather>(call, comm_.ranks());
      case Kind::scatter:
        return predict<Scatter>(call, comm_.ranks());
      case Kind::send:
      case Kind::recv:
        break;
    }
    return predict<SendRecv>(call);
  }

  Result<void> exchange(std::span<const Call> messages) override {
    if (looks_left_ > 0 && messages.size() > 1) {
      --looks_left_;
      if (any_overlap(messages)) warn_of_chance("messages of a group overlap in memory");
    }
    using Messages = Collective<SendRecv>;
    SpareVector<Messages::P2pOp> p2p_ops;
    const cudaStream_t stream = messages.front().stream;
    for (const Call& one : messages) {
      const bool sends = one.kind == Kind::send;
      p2p_ops->push_back({sends, sends ? const_cast<void*>(one.send) : one.recv, one.count,
                          size_of(one.type), one.root});
      if (one.stream != stream) CCL_CHECK(put_after(stream, one.stream));
    }
    CCL_TRY(const auto* all, get<SendRecv>());
    CCL_CHECK(all->group(std::span<const Messages::P2pOp>{*p2p_ops}, Stream{stream},
                         detail::Overlaps::allowed));
    for (const Call& one : messages) {
      if (one.stream != stream) CCL_CHECK(put_after(one.stream, stream));
    }
    return {};
  }

 private:
  template <class Op>
  Result<double> predict(const Call& call, int times = 1) const {
    return Collective<Op>::predict(comm_, call.count * size_of(call.type) * times);
  }

  /// Bounds of the call. On GPUs they count for its launch, where only the upper one has an effect.
  ChannelBounds bounds_of(const Call& call) const {
    if (call.options == nullptr) return {};
    const ChannelBounds& bounds = call.options->blocks;
    if (on_gpu_ && bounds.least) {
      log_without_effect("the call's config", "minCTAs",
                         "the blocks of a launch on a GPU follow from its size");
    }
    return bounds;
  }
  /// Name of the operation that the call selects; empty: that of all calls. Channels of CPU ranks
  /// are created with their operation.
  std::string selection_of(const Call& call) const {
    if (call.options == nullptr) return {};
    const auto& [least, most] = call.options->blocks;
    if (on_gpu_ || (!least && !most)) return call.options->algorithms;
    return fmt::format("{} on {} to {}", call.options->algorithms, least.value_or(0),
                       most.value_or(0));
  }

  /// Frameworks ask for batch-invariant results by NCCL_ALGO=allreduce:tree and NCCL_PROTO=Simple,
  /// which leave nothing of one order. One order is what they want.
  template <class Op, class Algo>
  Result<Collective<Op, Algo>> create_by() const {
    std::optional<OwnListsOnly> lists;
    if constexpr (std::is_same_v<Algo, Deterministic>) lists.emplace();
    return Collective<Op, Algo>::create(comm_);
  }

  /// The operation that the call selects.
  template <class Op, class Algo = Auto>
  Result<const Collective<Op, Algo>*> selected(const Call& call) {
    const CallOptions* const options = call.options.get();
    const std::string selection = selection_of(call);
    if (selection.empty()) return get<Op, Algo>();
    auto& all = std::get<Kept<Op, Algo>>(made_).selected;
    auto known = all.find(selection);
    if (known == all.end()) {
      CCL_CHECK(check_may_wait());
      const OnlySelected only{options->algorithms};
      auto made = create_by<Op, Algo>();
      if (!made && options->algorithms.empty()) return fail(std::move(made).error());
      if (!made && (options->must_select || !may_run_by_any(made.error()))) {
        return no_selection(std::move(made).error(), options->algorithms);
      }
      known = all.try_emplace(selection).first;
      if (made) {
        known->second.emplace(*std::move(made));
      } else {
        log_info(LogPart::tuning, "{}; the call runs by any", made.error().what);
      }
    }
    if (known->second) return &*known->second;
    return get<Op, Algo>();
  }
  /// True if a call whose selection cannot be created may run by another algorithm, on all ranks.
  static bool may_run_by_any(const Error& why) {
    return why.code == Errc::bad_setting || why.code == Errc::over_budget ||
           why.code == Errc::not_supported;
  }
  static cuda::std::unexpected<Error> no_selection(Error why, const std::string& list) {
    if (why.code == Errc::bad_setting) {
      why.code = Errc::invalid_argument;
      why.what = fmt::format(
          "config.algSelection {} leaves nothing ({}); name others, or set "
          "config.forceAlgSelection to 0",
          list, why.what);
    }
    return fail(std::move(why));
  }

  template <class Op, class Algo>
  Result<Choice> choice_by(const Call& call, int times = 1) {
    CCL_TRY(const auto* one, (selected<Op, Algo>(call)));
    return one->plan(call.count * size_of(call.type) * times);
  }
  template <class Op>
  Result<Choice> choice_of_reduction(const Call& call, int times = 1) {
    return one_order(call) ? choice_by<Op, Deterministic>(call, times)
                           : choice_by<Op, Auto>(call, times);
  }

  /// True if the call is to leave the multiprocessors alone: see `ZeroCopies`. An algorithm that it
  /// names comes first.
  bool without_blocks(const Call& call) const {
    if (!on_gpu_ || comm_.ranks() == 1) return false;
    const CallOptions* const options = call.options.get();
    if (options == nullptr) return common_.zero_blocks;
    return options->algorithms.empty() && options->zero_blocks.value_or(common_.zero_blocks);
  }
  bool one_order(const Call& call) const {
    return common_.one_order || (call.options != nullptr && call.options->deterministic);
  }
  template <class Op>
  Result<void> reduce(const Call& call) {
    return one_order(call) ? reduce_by<Op, Deterministic>(call) : reduce_by<Op, Auto>(call);
  }
  template <class Op, class Algo>
  Result<void> reduce_by(const Call& call) {
    CCL_TRY(const auto* one, (selected<Op, Algo>(call)));
    return with_type(call.type, [&]<class T>(TypeTag<T>) -> Result<void> {
      if constexpr (listed<T>(Types{})) {
        return nccl::reduce<Op, Algo, T>(*one, call);
      } else {
        return fail(
            Errc::not_supported,
            fmt::format(
                "there is no code for {} of {}; build with CCL_NCCL_TYPES=all, or name NVIDIA's "
                "library with CCL_NCCL_FALLBACK",
                Op::name, name(call.type)));
      }
    });
  }

  /// Sends a copy, since what arrives replaces what is to be sent.
  Result<void> all_to_all_in_place(const Call& call) {
    const auto bytes = std::size_t(call.count * size_of(call.type)) * std::size_t(comm_.ranks());
    if (bytes == 0) return move<AllToAll>(call);
    CCL_TRY(void* const copied, allocate_on(bytes, call.stream));
    Call other = call;
    other.send = copied;
    auto done = copy(copied, call.send, bytes, call.stream);
    if (done) done = move<AllToAll>(other);
    auto released = release_on(copied, call.stream);
    return done ? released : done;
  }

  template <class Op, class... Root>
  Result<void> move(const Call& call, Root... root) {
    const auto by = [&]<class T>(TypeTag<T>) -> Result<void> {
      const auto* const send = static_cast<const T*>(call.send);
      auto* const recv = static_cast<T*>(call.recv);
      if constexpr (is_one_of<Op, AllGather, AllToAll>) {
        if (without_blocks(call)) {
          auto& zero = std::get<ZeroCopies<Op>>(zero_copies_);
          CCL_TRY(const bool done, zero.run(comm_, send, recv, call.count, Stream{call.stream}));
          if (done) return {};
        }
      }
      CCL_TRY(const auto* one, selected<Op>(call));
      return (*one)(send, recv, call.count, root..., Stream{call.stream});
    };
    // All types of a size are moved alike.
    switch (size_of(call.type)) {
      case 1:
        return by(TypeTag<std::uint8_t>{});
      case 2:
        return by(TypeTag<std::uint16_t>{});
      case 4:
        return by(TypeTag<std::uint32_t>{});
      default:
        return by(TypeTag<std::uint64_t>{});
    }
  }

  template <class... Ops>
  using OneOfEach = std::tuple<Kept<Ops, Auto>..., Kept<AllReduce, Deterministic>,
                               Kept<ReduceScatter, Deterministic>, Kept<Reduce, Deterministic>>;
  Communicator comm_;
  CommonSettings common_;
  bool on_gpu_;
  int looks_left_ = 64;  // groups of messages whose buffers are compared
  OneOfEach<AllReduce, ReduceScatter, Reduce, AllGather, Broadcast, AllToAll, Gather, Scatter,
            SendRecv>
      made_;
  std::tuple<ZeroCopies<AllGather>, ZeroCopies<AllToAll>> zero_copies_;
};

}  // namespace

Result<std::unique_ptr<Operations>> Operations::create(const Communicator& comm,
                                                       const MemberConfig& config) {
  const auto library = real_nccl();
  if (!library) log_warn(LogPart::init, "{}", library.error().what);
  CommonSettings own;
  own.zero_blocks = config.zero_blocks;
  own.fallback = library && *library != nullptr;
  CCL_TRY(const auto common, common_settings(comm, own));
  auto made = std::make_unique<Made>(comm, common);
  CCL_CHECK(made->get<SendRecv>());
  std::shared_ptr<RealRank> real;
  if (common.fallback) {
    CCL_TRY(real, RealRank::create(comm, **library, config));
  }
  CCL_TRY(auto operations, tuned(std::move(made), comm));
  return with_fallback(std::move(operations), std::move(real), common.one_order);
}

}  // namespace ccl::detail::nccl
